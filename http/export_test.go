package httpapi

// ForgetStatistics makes the next request for statistics collect them anew.
func (s *Server) ForgetStatistics() { s.latest.Store(nil) }
