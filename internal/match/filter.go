package match

import (
	"strings"
	"time"
)

// Filter chooses events by the name of their stream or of their type.
type Filter struct {
	*Names
	OfStream bool

	// Budget bounds what all matches of an expression that backtracks may take together. 0: each
	// may take Timeout.
	Budget time.Duration
	spent  time.Duration
}

// Ordinary chooses the names that do not begin with "$".
var Ordinary = &Names{is: func(name string) bool { return !strings.HasPrefix(name, "$") }}

// Takes reports whether an event is chosen. It fails with ErrTimeout.
func (f *Filter) Takes(stream, eventType string) (bool, error) {
	name := eventType
	if f.OfStream {
		name = stream
	}
	if f.Budget == 0 || !f.IsSlow() {
		return f.Match(name)
	}
	begun := time.Now()
	isChosen, err := f.Match(name)
	if f.spent += time.Since(begun); err == nil && f.spent > f.Budget {
		err = ErrTimeout
	}
	return isChosen && err == nil, err
}
