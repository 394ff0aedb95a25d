package grpcapi

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/url"
	"strconv"
	"strings"
	"unicode/utf8"

	"golang.org/x/net/http2/hpack"
	"google.golang.org/grpc/codes"

	"github.com/annalsdb/annals/api"
	"github.com/annalsdb/annals/event"
	"github.com/annalsdb/annals/internal/logkey"
	"github.com/annalsdb/annals/internal/match"
	"github.com/annalsdb/annals/subscription"
)

// problem is the end of a call that is not a success: a status, and trailers by which clients
// recognise the error. Clients branch on exception first, then on the code, a few on the text.
type problem struct {
	code      codes.Code
	text      string
	exception string   // empty: no trailer names the error
	fields    []string // further trailers: key, value, key, value
}

func (p *problem) Error() string { return p.text }

// trailersOf are the trailers of a call that ended so; nil: in success.
func trailersOf(p *problem) []hpack.HeaderField {
	if p == nil {
		return success
	}
	fields := statusFields(p.code, p.text)
	if p.exception != "" {
		fields = append(fields, hpack.HeaderField{Name: keyException, Value: p.exception})
	}
	for i := 0; i < len(p.fields); i += 2 {
		fields = append(fields, hpack.HeaderField{Name: p.fields[i], Value: ascii(p.fields[i+1], "")})
	}
	return fields
}

var success = statusFields(codes.OK, "")

// statusFields are a status, as a header has it.
func statusFields(code codes.Code, text string) []hpack.HeaderField {
	return []hpack.HeaderField{
		{Name: fieldStatus, Value: strconv.Itoa(int(code))},
		{Name: fieldMessage, Value: ascii(strings.ToValidUTF8(text, string(utf8.RuneError)), "%")},
	}
}

// ascii percent-encodes the bytes of a text that a header cannot have, and others.
func ascii(text, others string) string {
	const digits = "0123456789ABCDEF"
	var b strings.Builder
	for i := range len(text) {
		if c := text[i]; c < 0x20 || c > 0x7e || strings.IndexByte(others, c) >= 0 {
			b.Write([]byte{'%', digits[c>>4], digits[c&15]})
		} else {
			b.WriteByte(c)
		}
	}
	return b.String()
}

// Keys of trailers. Clients read them: do not change.
const (
	keyPushback   = "grpc-retry-pushback-ms"
	keyException  = "exception"
	keyLeaderHost = "leader-endpoint-host"
	keyLeaderPort = "leader-endpoint-port"
	keyStreamName = "stream-name"
	keyGroupName  = "group-name"
	keyLoginName  = "login-name"
	keyReason     = "reason"
	keyExpected   = "expected-version"
	keyActual     = "actual-version"
)

// exceptionNotLeader sends clients to the leader.
const exceptionNotLeader = "not-leader"

func plain(code codes.Code, text string) *problem { return &problem{code: code, text: text} }

// invalid is the answer to an argument that is not right.
func invalid(format string, args ...any) error {
	return plain(codes.InvalidArgument, fmt.Sprintf(format, args...))
}

var (
	problemUnauthenticated = plain(codes.Unauthenticated, "Unauthenticated")
	problemNotInitialized  = &problem{code: codes.Unavailable, text: "Server not ready", fields: []string{keyPushback, "-1"}}
	problemDenied          = &problem{code: codes.PermissionDenied, text: "Access Denied", exception: "access-denied"}
	problemNotReady        = plain(codes.Unavailable, "Server Is Not Ready")
	problemBusy            = plain(codes.Unavailable, "Server Is Too Busy")
	problemNoRoom          = plain(codes.ResourceExhausted, "Requests take all memory that there is for them")
	problemInternal        = plain(codes.Internal, "Internal Server Error")
)

// named is an error with the names that its answer tells.
type named struct {
	err    error
	doing  string // "Delete" or "HardDelete", as a text has it
	stream string
	group  string // of a persistent subscription
	login  string
}

func (n *named) Error() string { return n.err.Error() }
func (n *named) Unwrap() error { return n.err }

// onStream gives an error, which may be nil, the name of its stream.
func onStream(stream string, err error) error {
	if err == nil {
		return nil
	}
	return &named{err: err, stream: stream}
}

// onGroup gives an error, which may be nil, the name of its group.
func onGroup(k subscription.Key, err error) error {
	if err == nil {
		return nil
	}
	return &named{err: err, stream: k.Stream, group: k.Group}
}

// spoken are the answers that tell names.
var spoken = []struct {
	err    error
	answer func(n *named) *problem
}{
	{event.ErrStreamDeleted, func(n *named) *problem {
		return &problem{codes.FailedPrecondition, fmt.Sprintf("Event stream '%s' is deleted.", n.stream), "stream-deleted", []string{keyStreamName, n.stream}}
	}},
	{event.ErrStreamNotFound, func(n *named) *problem {
		return &problem{codes.NotFound, fmt.Sprintf("Event stream '%s' is not found.", n.stream), "stream-not-found", []string{keyStreamName, n.stream}}
	}},
	{event.ErrUserNotFound, func(n *named) *problem {
		return &problem{codes.NotFound, fmt.Sprintf("User '%s' is not found.", n.login), "user-not-found", []string{keyLoginName, n.login}}
	}},
	{event.ErrUserConflict, func(n *named) *problem {
		return &problem{codes.FailedPrecondition, "Conflict.", "user-conflict", []string{keyLoginName, n.login}}
	}},
	{subscription.ErrNotFound, func(n *named) *problem {
		return n.ofGroup(codes.NotFound, "persistent-subscription-does-not-exist", "Subscription group %s on stream %s does not exist.")
	}},
	{subscription.ErrExists, func(n *named) *problem {
		return n.ofGroup(codes.AlreadyExists, "persistent-subscription-exists", "Subscription group %s on stream %s exists.")
	}},
	{subscription.ErrTooManySubscribers, func(n *named) *problem {
		return n.ofGroup(codes.FailedPrecondition, "maximum-subscribers-reached", "Maximum subscriptions reached for subscription group %s on stream %s.")
	}},
	{subscription.ErrDropped, func(n *named) *problem {
		return n.ofGroup(codes.Canceled, "persistent-subscription-dropped", "Subscription group %s on stream %s was dropped.")
	}},
}

// ofGroup is an answer that tells group and stream.
func (n *named) ofGroup(code codes.Code, exception, text string) *problem {
	return &problem{code, fmt.Sprintf(text, n.group, n.stream), exception, []string{keyStreamName, n.stream, keyGroupName, n.group}}
}

// failedGroup is the answer to a group that cannot be as it was asked for.
func failedGroup(k subscription.Key, reason string) error {
	return &problem{codes.Internal, fmt.Sprintf("Subscription group %s on stream %s failed: '%s'", k.Group, k.Stream, reason),
		"persistent-subscription-failed", []string{keyStreamName, k.Stream, keyGroupName, k.Group, keyReason, reason}}
}

// table is the one place where an error without a name becomes an answer.
var table = []struct {
	err     error
	problem *problem
}{
	{event.ErrNotAuthorized, problemDenied},
	{event.ErrNotInitialized, problemNotInitialized},
	{event.ErrBadPosition, plain(codes.InvalidArgument, "Trying to read from an invalid position.")},
	{match.ErrTimeout, plain(codes.InvalidArgument, "The regular expression of the filter takes too long.")},
	{event.ErrTooWide, plain(codes.Unavailable, api.TextTooWide)},
	{event.ErrEarlierLeader, plain(codes.Unavailable, api.TextEarlierLeader)},
	{event.ErrDiskFull, plain(codes.Unavailable, "Server Is Out Of Disk Space")},
	{event.ErrBusy, problemBusy},
	{event.ErrNoRoom, problemNoRoom},
	{event.ErrNotReady, problemNotReady},
	{event.ErrEntryRefused, problemNotReady},
	{event.ErrClosed, problemNotReady},
	{context.DeadlineExceeded, plain(codes.DeadlineExceeded, "Deadline Exceeded")},
	{context.Canceled, plain(codes.Canceled, "Call canceled.")},
}

// problemOf finds the answer to an error of a method. What no call is expected to meet is logged.
func (s *Server) problemOf(method string, err error) *problem {
	p := s.answerTo(method, err)
	if isToMany(method) {
		return detailed(p)
	}
	return p
}

func (s *Server) answerTo(method string, err error) *problem {
	if p, ok := errors.AsType[*problem](err); ok {
		return p
	}
	n, ok := errors.AsType[*named](err)
	if !ok {
		n = &named{}
	}
	if version, ok := errors.AsType[*event.WrongExpectedVersion](err); ok {
		return wrongVersion(n, version)
	}
	if none, ok := errors.AsType[*api.NoShare](err); ok {
		return plain(codes.ResourceExhausted, none.Text)
	}
	if bad, ok := errors.AsType[*event.BadRequest](err); ok {
		return plain(codes.InvalidArgument, bad.Text)
	}
	if behind, ok := errors.AsType[*api.NotReached](err); ok {
		return plain(codes.Unavailable, behind.Error())
	}
	if late, ok := errors.AsType[*api.WaitedInVain](err); ok {
		return plain(codes.DeadlineExceeded, late.Error())
	}
	if building, ok := errors.AsType[*event.IndexBuilding](err); ok {
		return plain(codes.FailedPrecondition, building.Error())
	}
	if leader, ok := errors.AsType[*event.NotLeader](err); ok {
		return notLeader(leader)
	}
	for i := range spoken {
		if errors.Is(err, spoken[i].err) {
			return spoken[i].answer(n)
		}
	}
	if errors.Is(err, event.ErrWriteTimeout) || errors.Is(err, event.ErrOutcomeUnknown) {
		return plain(codes.Aborted, "Operation timed out: "+err.Error())
	}
	for i := range table {
		if errors.Is(err, table[i].err) {
			return table[i].problem
		}
	}
	if _, ok := errors.AsType[*event.CannotDecide](err); ok {
		text, _ := api.Damage(err)
		return plain(codes.Unavailable, text)
	}
	s.opts.Logger.Error("a call failed", keyMethod, api.Printable(method), logkey.Error, err)
	return problemInternal
}

// wrongVersion is the answer to a deletion; for an append it is not an error.
func wrongVersion(n *named, e *event.WrongExpectedVersion) *problem {
	expected, actual := strconv.FormatInt(e.Expected, 10), strconv.FormatInt(e.Current, 10)
	return &problem{
		codes.FailedPrecondition,
		fmt.Sprintf("%s failed due to WrongExpectedVersion. Stream: %s, Expected version: %s, Actual version: %s", n.doing, e.Stream, expected, actual),
		"wrong-expected-version",
		[]string{keyStreamName, e.Stream, keyExpected, expected, keyActual, actual},
	}
}

// notLeader tells where the leader is. The text is compared by a client.
func notLeader(e *event.NotLeader) *problem {
	u, err := url.Parse(e.Address)
	if e.Address == "" || err != nil {
		return problemNotReady
	}
	host, port, err := net.SplitHostPort(u.Host)
	if err != nil {
		return problemNotReady
	}
	return &problem{codes.NotFound, "Leader info available", exceptionNotLeader, []string{keyLeaderHost, host, keyLeaderPort, port}}
}
