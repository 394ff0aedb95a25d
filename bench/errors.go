package bench

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"strconv"
	"syscall"

	"google.golang.org/grpc/codes"
)

// errFinished says that an operation has nothing left to do.
var errFinished = errors.New("finished")

// errCut says that a run ended before the answer came.
var errCut = errors.New("cut off at the end of the run")

// errTooManyRedirects says that following redirects led nowhere.
var errTooManyRedirects = errors.New("too many redirects")

// statusError is an answer that is not what the workload counts as success.
type statusError struct {
	status int
	text   string // beginning of the body
}

func (e *statusError) Error() string {
	if e.text == "" {
		return "status " + strconv.Itoa(e.status)
	}
	return fmt.Sprintf("status %d: %s", e.status, e.text)
}

func refused(resp *response) error {
	text := resp.body.Bytes()
	return &statusError{status: resp.status, text: string(text[:min(len(text), 120)])}
}

// versionConflict is a refusal because of the expected version where the worker knew the version.
type versionConflict struct{ expected, current int64 }

func (e *versionConflict) Error() string {
	return fmt.Sprintf("wrong expected version: expected %d, current %d", e.expected, e.current)
}

// fatalError ends the whole run.
type fatalError struct{ error }

func (e *fatalError) Unwrap() error { return e.error }

// dialError is a connection that did not come about.
type dialError struct{ error }

func (e *dialError) Unwrap() error { return e.error }

// kindOf sorts errors for counting. The words are part of the output.
func kindOf(err error) string {
	var status *statusError
	var conflict *versionConflict
	var dial *dialError
	var call *callError
	switch {
	case errors.Is(err, errCut), errors.Is(err, context.Canceled):
		return "cut off"
	case errors.As(err, &status):
		return "status " + strconv.Itoa(status.status)
	case errors.As(err, &call):
		return "status " + call.code.String()
	case errors.As(err, &conflict):
		return "wrong version"
	case errors.Is(err, os.ErrDeadlineExceeded):
		return "timeout"
	case errors.As(err, &dial):
		return "connect"
	case errors.Is(err, errMalformed), errors.Is(err, errUnasked):
		return "malformed"
	case errors.Is(err, errTooManyRedirects):
		return "redirect"
	case isLost(err):
		return "connection lost"
	}
	return "other"
}

// isLost reports whether the other side gave up the connection.
func isLost(err error) bool {
	return errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF) || errors.Is(err, net.ErrClosed) ||
		errors.Is(err, syscall.ECONNRESET) || errors.Is(err, syscall.EPIPE)
}

// isTransport reports whether err is about the connection rather than an answer.
func isTransport(err error) bool {
	var status *statusError
	var conflict *versionConflict
	if call, ok := errors.AsType[*callError](err); ok {
		return call.code == codes.Unavailable
	}
	return err != nil && !errors.As(err, &status) && !errors.As(err, &conflict)
}
