//go:build race

package llm

import "testing"

func TestMangle(t *testing.T) {
	b := []byte("what was given back")
	Mangle(b[:4])
	for _, c := range b {
		if c != 0xdb {
			t.Fatalf("%q is still there", b)
		}
	}
}
