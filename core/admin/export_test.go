package admin

// Routes lists what the mux serves, as "METHOD path".
func Routes() (lines []string) {
	for _, r := range new(API).routes() {
		lines = append(lines, r.method+" "+r.path)
	}
	return lines
}
