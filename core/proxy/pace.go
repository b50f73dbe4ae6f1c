package proxy

import "time"

// minBodyRate is how many bytes a second a body must bring, on average and beyond the time that its head had: who sends a
// byte a second holds a connection for that time and no longer.
const minBodyRate = 1 << 10

// pace gives the next read of a request that has begun its deadline: as much later as it has brought bytes, and never later
// than fasthttp's for the whole request. A request that arrives at once never comes here.
func (c *conn) pace() error {
	if c.since.IsZero() {
		c.since = c.conns.clock.Wall()
	}
	due := c.since.Add(c.conns.headTimeout + time.Duration(c.size)*(time.Second/minBodyRate))
	if !c.until.IsZero() && c.until.Before(due) {
		due = c.until
	}
	return c.Conn.SetReadDeadline(due)
}

// SetReadDeadline implements net.Conn. The deadline is set with the read that waits: most that fasthttp sets meet none.
func (c *conn) SetReadDeadline(t time.Time) error {
	c.until = t
	return nil
}
