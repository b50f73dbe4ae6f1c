package llm

// ScanHead fills h from one strict pass over a request body: duplicate or wrongly typed known members, folded
// look-alikes of known members ("MODEL", "max_to\u212aens"), a second document, invalid UTF-8 and nesting deeper than
// 256 are refused with a *Error of KindInvalid that names the field. What it accepts is what is forwarded.
func ScanHead(ep Endpoint, body []byte, h *Head) error { panic("skeleton") }
