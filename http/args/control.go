package args

import (
	"math"
	"net/http"
	"strconv"
	"strings"
	"time"

	"github.com/annalsdb/annals/event"
	"github.com/annalsdb/annals/http/problem"
)

// header is a control header: its name as texts spell it, and the keys under
// which the header map holds it and its later alias.
type header struct {
	name    string
	key     string
	kurrent string
}

func control(name string) header {
	return header{
		name:    "ES-" + name,
		key:     http.CanonicalHeaderKey("ES-" + name),
		kurrent: http.CanonicalHeaderKey("Kurrent-" + name),
	}
}

var (
	headerEventID         = control("EventId")
	HeaderEventType       = control("EventType")
	headerExpectedVersion = control("ExpectedVersion")
	HeaderHardDelete      = control("HardDelete")
	headerLongPoll        = control("LongPoll")
	headerRequireLeader   = control("RequireLeader")
	HeaderResolveLinks    = control("ResolveLinkTos")
	headerWaitAtMost      = control("WaitAtMost")
	headerWaitFor         = control("WaitFor")
)

// Older spellings of ES-RequireLeader.
var leaderKeys = []string{
	http.CanonicalHeaderKey("ES-RequireMaster"),
	http.CanonicalHeaderKey("ES-RequiresMaster"),
}

// In returns the header's value; the new name wins when both are there.
func (h *header) In(m http.Header) (string, bool) {
	v := m[h.kurrent]
	if v == nil {
		if v = m[h.key]; v == nil {
			return "", false
		}
	}
	return strings.TrimSpace(v[0]), true
}

func (h *header) wrong() error { return problem.Bad(h.name + " header in wrong format.") }

// Flag reads True or False in any case.
func (h *header) Flag(m http.Header, absent bool) (bool, error) {
	v, ok := h.In(m)
	if !ok {
		return absent, nil
	}
	b, ok := Flag(v)
	if !ok {
		return false, h.wrong()
	}
	return b, nil
}

// Flag reads true or false in any case.
func Flag(v string) (value, ok bool) {
	switch {
	case strings.EqualFold(v, "true"):
		return true, true
	case strings.EqualFold(v, "false"):
		return false, true
	}
	return false, false
}

// RequireLeader reads the three spellings; any True counts, any other value than
// True and False is wrong.
func RequireLeader(m http.Header) (bool, error) {
	want, err := headerRequireLeader.Flag(m, false)
	if err != nil {
		return false, err
	}
	for _, key := range leaderKeys {
		v := m[key]
		if v == nil {
			continue
		}
		b, ok := Flag(strings.TrimSpace(v[0]))
		if !ok {
			return false, headerRequireLeader.wrong()
		}
		want = want || b
	}
	return want, nil
}

// Reading reads whether the leader must answer for a page, and how long one that is read forward
// may be waited for.
func Reading(m http.Header, backward bool) (leader bool, poll time.Duration, err error) {
	if leader, err = RequireLeader(m); err != nil || backward {
		return leader, 0, err
	}
	poll, err = longPoll(m)
	return leader, poll, err
}

// longPoll reads how long a page may be waited for; 0 without the header.
func longPoll(m http.Header) (time.Duration, error) {
	v, ok := headerLongPoll.In(m)
	if !ok {
		return 0, nil
	}
	n, ok := Number(v, math.MaxInt32)
	if !ok || n == 0 {
		return 0, headerLongPoll.wrong()
	}
	return min(time.Duration(n)*time.Second, maxLongPoll), nil
}

// maxLongPoll bounds the wait of a long poll, whatever the client asks for.
const maxLongPoll = time.Hour

// WaitFor reads which position a request waits for, and how long at most, in headers or in
// parameters of the query; ok is false when it waits for none.
func WaitFor(r *http.Request) (position, atMost string, ok bool) {
	if position, ok = headerWaitFor.In(r.Header); !ok {
		if position, ok = Lookup(r.URL.RawQuery, "waitFor"); !ok {
			return "", "", false
		}
	}
	if atMost, ok = headerWaitAtMost.In(r.Header); !ok {
		atMost = Value(r.URL.RawQuery, "waitAtMost")
	}
	return position, atMost, true
}

// ExpectedVersion reads what version a write expects; any without the header.
func ExpectedVersion(m http.Header) (int64, error) {
	v, ok := headerExpectedVersion.In(m)
	if !ok {
		return event.AnyVersion, nil
	}
	n, err := strconv.ParseInt(v, 10, 64)
	if err != nil || n < event.MinExpectedVersion {
		return 0, headerExpectedVersion.wrong()
	}
	return n, nil
}

// EventID reads the id of a single event; ok is false without the header.
func EventID(m http.Header) (id event.ID, ok bool, err error) {
	v, ok := headerEventID.In(m)
	if !ok {
		return event.ID{}, false, nil
	}
	id, err = event.ParseID(v)
	if err != nil || id.IsZero() {
		return event.ID{}, false, headerEventID.wrong()
	}
	return id, true, nil
}

// Number reads a decimal number of nothing but digits, at most limit.
func Number(s string, limit int64) (int64, bool) {
	if s == "" {
		return 0, false
	}
	var n int64
	for i := range len(s) {
		c := s[i] - '0'
		if c > 9 || n > (limit-int64(c))/10 {
			return 0, false
		}
		n = n*10 + int64(c)
	}
	return n, true
}
