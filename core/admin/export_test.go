package admin

import "context"

// Routes lists what the mux serves, as "METHOD path".
func Routes() (lines []string) {
	for _, r := range new(API).routes() {
		lines = append(lines, r.method+" "+r.path)
	}
	return lines
}

// Idle waits until no change is under way.
func (a *API) Idle(ctx context.Context) error {
	done, err := a.take(ctx)
	if err == nil {
		done()
	}
	return err
}
