package httpapi

import (
	"net/http"
	"time"

	"github.com/hashicorp/go-hclog"

	"github.com/annalsdb/annals/api"
	"github.com/annalsdb/annals/internal/logkey"
)

// accessLogger is the name of the log of requests.
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
		line := []any{"method", api.Printable(r.Method), "path", api.Printable(r.URL.EscapedPath()), "status", logged.status,
			logkey.Bytes, logged.bytes, "duration", time.Since(begin), logkey.Remote, r.RemoteAddr, logkey.Login, api.Printable(logged.login), "proto", r.Proto}
		if logged.events > 0 {
			line = append(line, "streams", logged.streams, "events", logged.events)
		}
		l.log.Info("request", line...)
	}()
	l.next.ServeHTTP(logged, r)
}

// loggedWriter remembers the parts of an answer that are logged. It is there only where requests
// are logged.
type loggedWriter struct {
	http.ResponseWriter
	status int // 0 until something was answered
	bytes  int64
	login  string // of the caller, once it is known

	streams, events int // of a write to several streams; 0: it is none
}

// NoteWrite tells how much a write to several streams writes.
func (w *loggedWriter) NoteWrite(streams, events int) { w.streams, w.events = streams, events }

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
