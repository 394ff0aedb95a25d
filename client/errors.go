package client

import (
	"cmp"
	"errors"
	"fmt"
	"net"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"syscall"
)

// errors.Is compares an *Error with these.
var (
	ErrNotFound     = errors.New("not found")
	ErrDeleted      = errors.New("stream deleted for ever")
	ErrWrongVersion = errors.New("wrong expected version")
	ErrUnauthorized = errors.New("unauthorized")
)

// maxText is how much of a refusal is kept.
const maxText = 4 << 10

// Error is an answer whose status is not one of success.
type Error struct {
	Node   string // host and port
	Method string
	Path   string
	Status int
	Text   string // what the node says, in one line
	Header http.Header
}

func (e *Error) Error() string {
	return fmt.Sprintf("%s refuses %s %s: %s (status %d)", e.Node, e.Method, e.Path, cmp.Or(e.Text, http.StatusText(e.Status)), e.Status)
}

// Is says whether the error is one of the kinds above.
func (e *Error) Is(kind error) bool {
	switch kind {
	case ErrNotFound:
		return e.Status == http.StatusNotFound
	case ErrDeleted:
		return e.Status == http.StatusGone
	case ErrUnauthorized:
		return e.Status == http.StatusUnauthorized
	case ErrWrongVersion:
		_, ok := e.CurrentVersion()
		return ok
	}
	return false
}

// CurrentVersion returns the number of the last event of a stream, after an append that expected
// another version.
func (e *Error) CurrentVersion() (int64, bool) {
	n, err := strconv.ParseInt(e.Header.Get(HeaderCurrentVersion), 10, 64)
	return n, err == nil && e.Status == http.StatusBadRequest
}

// UnreachableError says that a node gave no whole answer.
type UnreachableError struct {
	Node string // host and port
	Sent bool   // the node may have got the request
	Err  error
}

func (e *UnreachableError) Error() string {
	var network *net.OpError
	switch {
	case errors.Is(e.Err, syscall.ECONNREFUSED):
		return e.Node + " refuses the connection: no node listens there"
	case errors.As(e.Err, &network) && network.Op == "dial":
		return fmt.Sprintf("%s is not reached: %v", e.Node, network.Err)
	}
	return fmt.Sprintf("%s does not answer: %v", e.Node, e.Err)
}

func (e *UnreachableError) Unwrap() error { return e.Err }

// RedirectError is a redirect that is not followed. Nothing was done.
type RedirectError struct{ Node, Text string }

func (e *RedirectError) Error() string { return e.Node + " " + e.Text }

// HasStatus says whether a node answered with one of some status codes.
func HasStatus(err error, codes ...int) bool {
	refused, ok := errors.AsType[*Error](err)
	return ok && slices.Contains(codes, refused.Status)
}

// IsAway says whether a node may be about to start: the same question can be answered later.
func IsAway(err error) bool {
	if _, ok := errors.AsType[*UnreachableError](err); ok {
		return true
	}
	return HasStatus(err, http.StatusServiceUnavailable, http.StatusRequestTimeout, http.StatusBadGateway, http.StatusGatewayTimeout)
}

// line returns the beginning of a text in one line.
func line(text []byte) string {
	return strings.Join(strings.Fields(strings.ToValidUTF8(string(text[:min(len(text), maxText)]), "")), " ")
}
