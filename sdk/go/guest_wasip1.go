package weir

import "unsafe"

//go:wasmexport weir_abi_version
func abiVersion() int32 { return Version }

//go:wasmexport weir_request
func request() int32 { return address(unsafe.Pointer(shared.facts)) }

//go:wasmexport weir_response
func response() int32 { return address(unsafe.Pointer(shared.decision)) }

//go:wasmexport weir_attributes
func attributes() int64 { return int64(shared.want) }

//go:wasmexport weir_params_buffer
func paramsBuffer(size int32) int32 {
	return address(unsafe.Pointer(unsafe.SliceData(shared.room(size))))
}

//go:wasmexport weir_configure
func configure(size int32) int32 { return shared.configured(size) }

//go:wasmexport weir_decide
func decide() int32 { return shared.decided() }

func address(p unsafe.Pointer) int32 { return int32(uintptr(p)) }

const maxLine = 256 // bytes

//go:wasmimport weir log
func hostLog(level uint32, text unsafe.Pointer, size uint32)

// Log writes a line (at most 256 bytes; a longer one is left out) to the gateway's log, at LogDebug .. LogError. What is
// printed to standard output or error arrives there too, as LogWarn.
func Log(level uint32, line string) {
	if len(line) > 0 && len(line) <= maxLine {
		hostLog(level, unsafe.Pointer(unsafe.StringData(line)), uint32(len(line)))
	}
}
