//go:build race

package llm

// Mangle writes over all of b.
func Mangle(b []byte) {
	b = b[:cap(b)]
	for i := range b {
		b[i] = 0xdb // no UTF-8, and no JSON
	}
}
