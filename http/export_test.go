package httpapi

// ForgetFigures makes the next request for statistics collect them anew.
func (s *Server) ForgetFigures() { s.latest.Store(nil) }
