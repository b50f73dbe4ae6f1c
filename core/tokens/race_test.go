//go:build race

package tokens

// slack stretches times that are asserted: the race detector slows this code some forty times.
const slack = 400
