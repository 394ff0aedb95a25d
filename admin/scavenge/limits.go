package scavenge

import (
	"time"

	"github.com/annalsdb/annals/event"
)

// limits are what metadata say that removes events.
type limits struct {
	maxCount, truncateBefore int64
	maxAge                   time.Duration
}

// limitsOf reads metadata. What nearly all of them look like costs a twentieth
// of what parsing JSON does.
func limitsOf(data []byte) limits {
	s := limitScan{rest: data}
	if s.object() {
		return s.found
	}
	m := event.ParseMetadata(data)
	return limits{maxCount: m.MaxCount, truncateBefore: m.TruncateBefore, maxAge: m.MaxAge}
}

// limitScan reads an object of metadata in which there is nothing but plain numbers and
// a plain access list. Where it meets anything else it gives up: what the whole means is up to event.ParseMetadata.
type limitScan struct {
	rest  []byte
	found limits
}

// space goes behind white space.
func (s *limitScan) space() {
	for len(s.rest) > 0 && (s.rest[0] == ' ' || s.rest[0] == '\n' || s.rest[0] == '\r' || s.rest[0] == '\t') {
		s.rest = s.rest[1:]
	}
}

// take reports whether a byte follows white space, and goes behind it then.
func (s *limitScan) take(c byte) bool {
	if s.space(); len(s.rest) == 0 || s.rest[0] != c {
		return false
	}
	s.rest = s.rest[1:]
	return true
}

// text reads a string of ASCII without escapes.
func (s *limitScan) text() (text []byte, ok bool) {
	if !s.take('"') {
		return nil, false
	}
	for i, c := range s.rest {
		switch {
		case c == '"':
			text, s.rest = s.rest[:i], s.rest[i+1:]
			return text, true
		case c < ' ' || c == '\\' || c > '~':
			return nil, false
		}
	}
	return nil, false
}

// number reads a whole number below 10^18 that is not negative.
func (s *limitScan) number() (n int64, ok bool) {
	s.space()
	digits := 0
	for digits < len(s.rest) && s.rest[digits] >= '0' && s.rest[digits] <= '9' {
		n = n*10 + int64(s.rest[digits]-'0')
		if digits++; digits > 18 {
			return 0, false
		}
	}
	if digits == 0 || digits > 1 && s.rest[0] == '0' {
		return 0, false
	}
	s.rest = s.rest[digits:]
	return n, true // A fraction or an exponent is no comma.
}

// members reads an object, each value with what is called behind its key.
func (s *limitScan) members(value func(key []byte) bool) bool {
	if !s.take('{') {
		return false
	}
	for first := true; ; first = false {
		if s.take('}') {
			return true
		}
		if !first && !s.take(',') {
			return false
		}
		key, ok := s.text()
		if !ok || !s.take(':') || !value(key) {
			return false
		}
	}
}

func (s *limitScan) object() bool {
	whole := s.members(s.member)
	s.space()
	return whole && len(s.rest) == 0
}

func (s *limitScan) member(key []byte) bool {
	switch string(key) {
	case event.KeyACL:
		return s.members(s.roles)
	case event.PlainMaxCount, event.PlainTruncateBefore, event.PlainMaxAge: // Whether they act depends on the rest.
		return false
	}
	n, ok := s.number()
	if !ok {
		return false
	}
	switch string(key) {
	case event.KeyMaxCount:
		s.found.maxCount = n
	case event.KeyTruncateBefore:
		s.found.truncateBefore = n
	case event.KeyMaxAge:
		if n > int64(longest/time.Second) {
			return false
		}
		s.found.maxAge = time.Duration(n) * time.Second
	}
	return true
}

// longest is the longest duration.
const longest = time.Duration(1<<63 - 1)

// roles reads what an access list says of one right: a role, or several.
func (s *limitScan) roles([]byte) bool {
	if !s.take('[') {
		_, ok := s.text()
		return ok
	}
	if s.take(']') {
		return true
	}
	for {
		if _, ok := s.text(); !ok {
			return false
		}
		if s.take(']') {
			return true
		}
		if !s.take(',') {
			return false
		}
	}
}
