package match

// Sieve chooses names where a failure cannot be told, as in the filter of a page. From a failure on it
// takes every name, so that the page soon has all it may have: it must be thrown away.
type Sieve struct {
	*Names
	Err error // why Takes failed; ErrTimeout
}

// Takes reports whether the name is chosen.
func (s *Sieve) Takes(name string) bool {
	if s.Err != nil {
		return true
	}
	chosen, err := s.Match(name)
	s.Err = err
	return chosen || err != nil
}
