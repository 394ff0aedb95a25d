package match

import "time"

// Sieve chooses names where no error can be returned, as in the filter of a page. After an error it
// takes every name, so that the page is soon full: the page must be thrown away.
type Sieve struct {
	*Names
	Err error // why Takes failed; ErrTimeout

	// Budget bounds what all matches of an expression that backtracks may take together. 0: each
	// may take Timeout.
	Budget time.Duration
	spent  time.Duration
}

// Takes reports whether the name is chosen.
func (s *Sieve) Takes(name string) bool {
	if s.Err != nil {
		return true
	}
	if s.Budget == 0 || !s.IsSlow() {
		chosen, err := s.Match(name)
		s.Err = err
		return chosen || err != nil
	}
	begun := time.Now()
	chosen, err := s.Match(name)
	if s.spent += time.Since(begun); err == nil && s.spent > s.Budget {
		err = ErrTimeout
	}
	s.Err = err
	return chosen || err != nil
}
