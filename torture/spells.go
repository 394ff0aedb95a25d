package torture

import "time"

// spells are the times in which clients work and faults strike, counted from the beginning of the
// round. Between two of them only that happens which nodes do by themselves. Without quiet there is
// one spell, which does not end.
type spells struct{ busy, quiet time.Duration }

// at returns when the spell began that is there at a time or was the last one before it, and how
// long it is quiet yet. Both are nanoseconds.
func (s spells) at(now int64) (began, left int64) {
	if s.quiet <= 0 {
		return 0, 0
	}
	in := now % int64(s.busy+s.quiet)
	if in >= int64(s.busy) {
		left = int64(s.busy+s.quiet) - in
	}
	return now - in, left
}

// after is a pause, and the quiet in which it would end.
func (s spells) after(now int64, pause time.Duration) time.Duration {
	_, left := s.at(now + int64(pause))
	return pause + time.Duration(left)
}
