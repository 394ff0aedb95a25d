package event

import (
	"math"
	"time"
)

// Retention is what a stream's metadata say about how much of it stays. Reads hide
// the rest, and scavenging removes it, but for the last event. Zero fields are absent.
type Retention struct {
	MaxCount       int64         // only the last so many events stay
	MaxAge         time.Duration // older events go
	TruncateBefore int64         // events below go; TombstoneNumber: the stream is soft-deleted
}

// SoftDeleted reports whether the stream is soft-deleted.
func (r *Retention) SoftDeleted() bool { return r.TruncateBefore == TombstoneNumber }

// MinVisible returns the lowest event number that stays by $tb and $maxCount, for
// a stream whose last event has the number last.
func (r *Retention) MinVisible(last int64) int64 {
	low := max(0, r.TruncateBefore)
	if r.MaxCount > 0 {
		low = max(low, last-r.MaxCount+1)
	}
	return low
}

// Oldest returns the time, in nanoseconds since 1970, that events need to stay by $maxAge.
func (r *Retention) Oldest(now time.Time) int64 {
	if r.MaxAge <= 0 {
		return math.MinInt64
	}
	return now.Add(-r.MaxAge).UnixNano()
}

// ParseRetention is ParseMetadata for the retention alone. What nearly all metadata look like costs
// a twentieth of it.
func ParseRetention(data []byte) Retention {
	s := retentionScan{rest: data}
	if s.object() {
		return s.found
	}
	return ParseMetadata(data).Retention
}

// retentionScan reads an object of metadata in which there is nothing but plain numbers and a plain
// access list. Where it meets anything else it gives up: what the whole means is up to
// ParseMetadata.
type retentionScan struct {
	rest  []byte
	found Retention
}

// space skips white space.
func (s *retentionScan) space() {
	for len(s.rest) > 0 && (s.rest[0] == ' ' || s.rest[0] == '\n' || s.rest[0] == '\r' || s.rest[0] == '\t') {
		s.rest = s.rest[1:]
	}
}

// take reports whether c follows white space, and skips it then.
func (s *retentionScan) take(c byte) bool {
	if s.space(); len(s.rest) == 0 || s.rest[0] != c {
		return false
	}
	s.rest = s.rest[1:]
	return true
}

// text reads a string of ASCII without escapes.
func (s *retentionScan) text() (text []byte, ok bool) {
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
func (s *retentionScan) number() (n int64, ok bool) {
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
	return n, true // A fraction or an exponent is not a comma.
}

// members reads an object. It calls value after each key.
func (s *retentionScan) members(value func(key []byte) bool) bool {
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

func (s *retentionScan) object() bool {
	whole := s.members(s.member)
	s.space()
	return whole && len(s.rest) == 0
}

func (s *retentionScan) member(key []byte) bool {
	switch string(key) {
	case KeyACL:
		return s.members(s.roles)
	case PlainMaxCount, PlainTruncateBefore, PlainMaxAge: // Whether they act depends on the rest.
		return false
	}
	n, ok := s.number()
	if !ok {
		return false
	}
	switch string(key) {
	case KeyMaxCount:
		s.found.MaxCount = n
	case KeyTruncateBefore:
		s.found.TruncateBefore = n
	case KeyMaxAge:
		if n > int64(longest/time.Second) {
			return false
		}
		s.found.MaxAge = time.Duration(n) * time.Second
	}
	return true
}

// longest is the longest duration.
const longest = time.Duration(1<<63 - 1)

// roles reads what an access list says of one right: a role, or several.
func (s *retentionScan) roles([]byte) bool {
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
