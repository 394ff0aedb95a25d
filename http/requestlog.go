package httpapi

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

// accessLogger is the name of the log of requests and of refused logins.
const accessLogger = "access"

// requestLog writes one line for every request once it is answered.
type requestLog struct {
	log  hclog.Logger
	next http.Handler
}

func (l *requestLog) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	begin := time.Now()
	logged := &loggedWriter{ResponseWriter: w}
	// A handler that panics has answered as well, if only by cutting the connection.
	defer func() {
		l.log.Info("request", "method", printable(r.Method), "path", printable(r.URL.EscapedPath()), "status", logged.status,
			logkey.Bytes, logged.bytes, "duration", time.Since(begin), logkey.Remote, r.RemoteAddr, logkey.Login, printable(logged.login), "proto", r.Proto)
	}()
	l.next.ServeHTTP(logged, r)
}

// loggedWriter remembers what the log says of an answer. It is there only where
// requests are logged.
type loggedWriter struct {
	http.ResponseWriter
	status int // 0 until something was answered
	bytes  int64
	login  string // of the caller, once it is known
}

func (w *loggedWriter) WriteHeader(status int) {
	if w.status < http.StatusOK { // Several of those come before the answer.
		w.status = status
	}
	w.ResponseWriter.WriteHeader(status)
}

func (w *loggedWriter) Write(b []byte) (int, error) {
	if w.status < http.StatusOK {
		w.status = http.StatusOK
	}
	n, err := w.ResponseWriter.Write(b)
	w.bytes += int64(n)
	return n, err
}

// Unwrap lets an http.ResponseController find the connection's own writer.
func (w *loggedWriter) Unwrap() http.ResponseWriter { return w.ResponseWriter }

// maxPrintable bounds what clients can put into one field of a line of the log.
const maxPrintable = 256

// printable returns s fit for a line of the log: not too long, and with escapes
// for what is no printable character.
func printable(s string) string {
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

// maxRefusedLogins is how many refused logins are logged in a second: a flood of
// them must not become one of the log.
const maxRefusedLogins = 10

// refusedLogins logs who was refused because of wrong credentials. How many were
// left out is said by the line that comes next.
type refusedLogins struct {
	mu      sync.Mutex // guards what follows
	second  time.Time  // when the current second began
	logged  int        // in the current second
	leftOut int        // since the last line
}

// note logs the refusal of a request's credentials.
func (l *refusedLogins) note(log hclog.Logger, r *http.Request) {
	leftOut, ok := l.take(time.Now())
	if !ok {
		return
	}
	// The password stays where it is, and so does a header that cannot be taken apart.
	login, _, _ := r.BasicAuth()
	fields := []any{"login", printable(login), "remote", r.RemoteAddr}
	if leftOut > 0 {
		fields = append(fields, "left_out", leftOut)
	}
	log.Warn("credentials were refused", fields...)
}

// take asks for a line, and returns how many were refused one before.
func (l *refusedLogins) take(now time.Time) (leftOut int, ok bool) {
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
