package client

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"syscall"
)

// The kinds of errors that errors.Is finds.
var (
	// ErrWrongVersion: the stream does not have the expected version. Error.CurrentVersion has the
	// version that it has; of AppendMany, a ViolationError has the versions of all.
	ErrWrongVersion = errors.New("wrong expected version")
	// ErrNotFound: there is no such stream, event, group, projection or user.
	ErrNotFound = errors.New("not found")
	// ErrDeleted: the stream has a tombstone, and takes no events.
	ErrDeleted = errors.New("stream deleted for ever")
	// ErrNoProjections: the node runs no projections: see its option RunProjections. It is an
	// ErrNotFound as well.
	ErrNoProjections = errors.New("no projections run")
	// ErrExists: there is such a group, projection or user already.
	ErrExists = errors.New("exists already")
	// ErrAccessDenied: the credentials are missing or wrong, or the user may not do this.
	ErrAccessDenied = errors.New("access denied")
	// ErrNotLeader: the node does not lead, and the client could not get to the leader.
	ErrNotLeader = errors.New("not the leader")
	// ErrUnavailable: no node answers, or none can serve now. The same request may succeed later.
	ErrUnavailable = errors.New("unavailable")
)

// maxText is how much of a refusal is kept.
const maxText = 4 << 10

// Error is an answer that is not a success.
type Error struct {
	Node   string // host and port
	Method string
	Path   string
	Status int
	Reason string // follows the status in the answer
	Text   string // the sentence of the node, in one line; empty if it says none
	Header http.Header
	User   string // who asked; empty if no credentials were sent

	below string // Path without the prefix that the address of the node has
}

func (e *Error) Error() string {
	text := cmp.Or(e.Text, e.Reason, http.StatusText(e.Status))
	switch {
	case e.Status == http.StatusUnauthorized && e.User == "":
		text += ", no user is given"
	case e.Status == http.StatusUnauthorized:
		text += fmt.Sprintf(", user %q has another password, or may not do this", e.User)
	case e.Is(ErrNoProjections):
		text = "the node runs no projections: see its option RunProjections"
	case e.Status == http.StatusNotFound && strings.HasPrefix(e.below, "/projection/"):
		text = "there is no such projection, or the node runs none: see its option RunProjections"
	}
	if current, ok := e.CurrentVersion(); ok && current < 0 {
		text += ", there is no such stream"
	} else if ok {
		text += fmt.Sprintf(", the last event of the stream is %d", current)
	}
	return fmt.Sprintf("%s refuses %s %s: %s (status %d)", e.Node, e.Method, e.Path, text, e.Status)
}

// Is says whether the error is one of the kinds above.
func (e *Error) Is(kind error) bool {
	switch kind {
	case ErrWrongVersion:
		_, ok := e.CurrentVersion()
		return ok || e.isViolated()
	case ErrNotFound:
		return e.Status == http.StatusNotFound
	case ErrNoProjections:
		// A node that runs some answers these paths, whatever it has.
		return e.Status == http.StatusNotFound && strings.HasPrefix(e.below, "/projections/")
	case ErrDeleted:
		return e.Status == http.StatusGone
	case ErrExists:
		return e.Status == http.StatusConflict && !e.isViolated()
	case ErrAccessDenied:
		return e.Status == http.StatusUnauthorized || e.Status == http.StatusForbidden
	case ErrNotLeader:
		return leadsElsewhere(e.Method, e.Status, e.Header)
	case ErrUnavailable:
		return isAway(e.Status)
	}
	return false
}

// isViolated says whether checks of an append to several streams do not hold.
func (e *Error) isViolated() bool { return e.Status == http.StatusConflict && e.below == manyPath }

// leadsElsewhere reports whether an answer names the leader: a redirect, or the refusal of a
// read-only replica.
func leadsElsewhere(method string, status int, h http.Header) bool {
	switch status {
	case http.StatusTemporaryRedirect, http.StatusPermanentRedirect:
		return true
	case http.StatusInternalServerError:
		return method != http.MethodGet && h.Get("Location") != ""
	}
	return false
}

// CurrentVersion returns the number of the last event of a stream whose version was not the
// expected one, NoStream if there is no such stream.
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

// Is says that the error is an ErrUnavailable, unless the caller ended the request.
func (e *UnreachableError) Is(kind error) bool {
	return kind == ErrUnavailable && !errors.Is(e.Err, context.Canceled)
}

// RedirectError is a redirect that is not followed. Nothing was done. It is an ErrNotLeader.
type RedirectError struct{ Node, Text string }

func (e *RedirectError) Error() string { return e.Node + " " + e.Text }

func (e *RedirectError) Is(kind error) bool { return kind == ErrNotLeader }

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
	refused, ok := errors.AsType[*Error](err)
	return ok && isAway(refused.Status)
}

func isAway(status int) bool {
	switch status {
	case http.StatusServiceUnavailable, http.StatusRequestTimeout, http.StatusBadGateway, http.StatusGatewayTimeout:
		return true
	}
	return false
}

// mayPass says whether the same request can succeed later.
func mayPass(err error) bool {
	if _, ok := errors.AsType[*RedirectError](err); ok {
		return true
	}
	if IsAway(err) {
		return true
	}
	// A write of which this is said may have been done. A read that meets it will meet it again.
	refused, ok := errors.AsType[*Error](err)
	return ok && refused.Status == http.StatusInternalServerError && refused.Method != http.MethodGet
}

// undone says whether it is sure that a node has done nothing.
func undone(err error) bool {
	if _, ok := errors.AsType[*RedirectError](err); ok {
		return true
	}
	if failed, ok := errors.AsType[*UnreachableError](err); ok {
		return !failed.Sent
	}
	return HasStatus(err, http.StatusServiceUnavailable)
}

// sentence is what the body of a refusal says: its text in one line, or the text that a JSON
// object has for people.
func sentence(body []byte) string {
	var said struct{ Reason, Error, Message string }
	if len(body) > 0 && body[0] == '{' && json.Unmarshal(body, &said) == nil {
		if text := cmp.Or(said.Reason, said.Error, said.Message); text != "" {
			return line([]byte(text))
		}
	}
	return line(body)
}

// line returns the beginning of a text in one line.
func line(text []byte) string {
	return strings.Join(strings.Fields(strings.ToValidUTF8(string(text[:min(len(text), maxText)]), "")), " ")
}
