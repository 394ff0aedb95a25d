package api

import (
	"net/http"
	"strconv"
	"sync"
	"time"
	"unicode"
	"unicode/utf8"

	"github.com/hashicorp/go-hclog"

	"github.com/annalsdb/annals/internal/logkey"
)

// maxRefusedLogins is how many refused logins are logged in a second, those of both
// interfaces together: a flood of them must not become a flood of log lines.
const maxRefusedLogins = 10

// RefusedLogins logs who was refused because of wrong credentials. How many were left out is
// said by the line that comes next. A nil RefusedLogins logs nothing.
type RefusedLogins struct {
	log hclog.Logger

	mu      sync.Mutex // guards the fields below
	second  time.Time  // when the current second began
	logged  int        // in the current second
	leftOut int        // since the last line
}

// NewRefusedLogins returns a RefusedLogins that writes to a log.
func NewRefusedLogins(log hclog.Logger) *RefusedLogins { return &RefusedLogins{log: log} }

// Note logs the refusal of a request's credentials.
func (l *RefusedLogins) Note(r *http.Request) {
	if l == nil {
		return
	}
	leftOut, ok := l.take(time.Now())
	if !ok {
		return
	}
	// The log gets neither the password nor a header that cannot be taken apart.
	login, _, _ := r.BasicAuth()
	fields := []any{logkey.Login, Printable(login), logkey.Remote, r.RemoteAddr}
	if leftOut > 0 {
		fields = append(fields, "left_out", leftOut)
	}
	l.log.Warn("credentials were refused", fields...)
}

// take asks for a line, and returns how many were refused one before.
func (l *RefusedLogins) take(now time.Time) (leftOut int, ok bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if now.Sub(l.second) >= time.Second {
		l.second, l.logged = now, 0
	}
	if l.logged == maxRefusedLogins {
		l.leftOut++
		return 0, false
	}
	l.logged++
	leftOut, l.leftOut = l.leftOut, 0
	return leftOut, true
}

// maxPrintable bounds how much clients can put into one field of a log line.
const maxPrintable = 256

// Printable returns a text of a client fit for a line of the log: not too long, and with
// escapes in place of characters that cannot be printed.
func Printable(s string) string {
	cut := len(s) > maxPrintable
	if cut {
		s = s[:maxPrintable]
	}
	for _, r := range s {
		if !unicode.IsPrint(r) || r == utf8.RuneError {
			s = strconv.Quote(s)
			s = s[1 : len(s)-1]
			break
		}
	}
	if cut {
		s += "..."
	}
	return s
}
