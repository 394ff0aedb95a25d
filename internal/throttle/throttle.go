// Package throttle keeps a log from saying the same again and again.
package throttle

import (
	"maps"
	"sync"
	"time"
)

// most bounds the number of remembered keys. Beyond it new lines are silent until old ones may be
// repeated: a flood of different ones tells nothing more.
const most = 512

// Lines are log lines that are repeated only once in a while, each with a key of its own.
type Lines[K comparable] struct {
	Every time.Duration // between two lines with the same key

	mu   sync.Mutex // guards last
	last map[K]*line
}

type line struct {
	at      time.Time
	skipped int // since
}

// Due says whether a line is to be logged now, and how many were not since the last one.
func (l *Lines[K]) Due(key K) (skipped int, due bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	now := time.Now()
	if one := l.last[key]; one != nil && now.Sub(one.at) < l.Every {
		one.skipped++
		return 0, false
	} else if one != nil {
		skipped = one.skipped
	} else if len(l.last) >= most {
		maps.DeleteFunc(l.last, func(_ K, old *line) bool { return now.Sub(old.at) >= l.Every })
		if len(l.last) >= most {
			return 0, false
		}
	}
	if l.last == nil {
		l.last = make(map[K]*line)
	}
	l.last[key] = &line{at: now}
	return skipped, true
}
