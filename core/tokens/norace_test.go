//go:build !race

package tokens

// slack stretches times that are asserted, for slow machines.
const slack = 10
