package bench

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"strconv"
	"strings"
	"syscall"
)

// errFinished says that an operation has nothing left to do.
var errFinished = errors.New("finished")

// errCut says that a run ended before the answer came.
var errCut = errors.New("cut off at the end of the run")

// errTooManyRedirects says that following redirects led nowhere.
var errTooManyRedirects = errors.New("too many redirects")

// failure is an error that is counted by its kind, such as "status 503".
type failure struct {
	kind string
	error
}

func (e *failure) Unwrap() error { return e.error }

// refused is an answer that is not what the workload counts as success.
func refused(resp *response) error {
	kind, text := "status "+strconv.Itoa(resp.status), resp.body.Bytes()
	if len(text) == 0 {
		return &failure{kind, errors.New(kind)}
	}
	return &failure{kind, fmt.Errorf("%s: %s", kind, text[:min(len(text), 120)])}
}

// versionConflict is a refusal because of the expected version where the worker knew the version.
type versionConflict struct{ expected, current int64 }

func (e *versionConflict) Error() string {
	return fmt.Sprintf("wrong expected version: expected %d, current %d", e.expected, e.current)
}

// fatalError ends the whole run.
type fatalError struct{ error }

func (e *fatalError) Unwrap() error { return e.error }

// kindOf sorts errors for counting. The words are part of the output.
func kindOf(err error) string {
	f, counted := errors.AsType[*failure](err)
	_, conflict := errors.AsType[*versionConflict](err)
	switch {
	case errors.Is(err, errCut), errors.Is(err, context.Canceled):
		return "cut off"
	case conflict:
		return "wrong version"
	case errors.Is(err, os.ErrDeadlineExceeded):
		return "timeout"
	case counted:
		return f.kind
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

// answered reports whether err is an answer, rather than about the connection.
func answered(err error) bool {
	kind := kindOf(err)
	return kind == "wrong version" || strings.HasPrefix(kind, "status ") && kind != unavailable
}

// unavailable is what gRPC says of a connection that does not come about.
const unavailable = "status Unavailable"
