package grpcapi

// CutOff has Close wait for no call.
func CutOff(s *Server) { s.patience = 0 }

// OpenCalls is how many calls there are.
func OpenCalls(s *Server) (n int) {
	s.conns.each(func(c *conn) { c.each(func(*call) { n++ }) })
	return n
}
