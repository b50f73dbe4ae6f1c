// A policy in standard Go, for profile large:
//
//	GOOS=wasip1 GOARCH=wasm go build -buildmode=c-shared -ldflags='-s -w' -o goguest.wasm .
package main

import (
	"encoding/binary"
	"fmt"
	"math/rand/v2"
	"os"
	"time"
	"unsafe"
)

type buffers struct {
	request  [4096]byte
	response [2048]byte
	params   [65536]byte
}

var (
	memory = aligned()
	config string
)

// aligned gives buffers at a multiple of 16.
func aligned() *buffers {
	raw := make([]byte, unsafe.Sizeof(buffers{})+16)
	at := uintptr(unsafe.Pointer(&raw[0]))
	return (*buffers)(unsafe.Pointer(&raw[(16-at%16)%16]))
}

func address(p *byte) uint32 { return uint32(uintptr(unsafe.Pointer(p))) }

//go:wasmexport weir_abi_version
func version() uint32 { return 1 << 16 }

//go:wasmexport weir_request
func request() uint32 { return address(&memory.request[0]) }

//go:wasmexport weir_response
func response() uint32 { return address(&memory.response[0]) }

//go:wasmexport weir_params_buffer
func paramsBuffer(n uint32) uint32 {
	if int(n) > len(memory.params) {
		return 0
	}
	return address(&memory.params[0])
}

//go:wasmexport weir_configure
func configure(n uint32) uint32 {
	config = string(memory.params[:n])
	return 0
}

//go:wasmexport weir_decide
func decide() uint32 {
	le := binary.LittleEndian
	off, n := le.Uint32(memory.request[160:]), le.Uint32(memory.request[164:])
	model := string(memory.request[off : off+n])
	r := memory.response[:]
	le.PutUint16(r[0:], 1)
	switch model {
	case "panic":
		panic("asked to")
	case "say":
		fmt.Fprintln(os.Stderr, "a line from the guest")
	case "clock":
		le.PutUint32(r[44:], uint32(time.Now().UnixMilli()%1_000_000))
	case "random":
		_ = rand.Uint64()
	case "loop":
		for i := 0; ; i++ {
			r[44] = byte(i)
		}
	default:
		le.PutUint32(r[8:], uint32(len(model))*100)
		le.PutUint32(r[44:], uint32(len(config)))
	}
	return 0
}

func main() {}
