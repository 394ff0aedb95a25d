package httpapi

// ForgetStatistics makes the next request for statistics collect them again.
func (s *Server) ForgetStatistics() { s.latest.Store(nil) }
