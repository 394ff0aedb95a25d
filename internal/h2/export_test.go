package h2

// Out is how many bytes are to be written.
func Out(c *Conn) int {
	c.mu.Lock()
	defer c.mu.Unlock()
	return len(c.out)
}
