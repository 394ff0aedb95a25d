// Package client talks to the nodes of an Annals cluster over HTTP: it appends and reads
// events, follows streams, works for persistent subscription groups, and calls
// everything else a node serves.
//
// A Client knows one or more nodes. It asks the one that answered last, goes to the
// next when it cannot connect, and follows the redirect of a follower to the leader, with
// the credentials. Append and the reads repeat a request that gets no answer for
// Options.RetryFor. An append carries ids of its events. By them the cluster recognizes a
// repetition, so that each event is written once.
//
// A refusal is an *Error with the status and text of the node; errors.Is compares it with
// ErrNotFound, ErrDeleted, ErrWrongVersion and ErrUnauthorized. When a node gives no answer,
// the error is an *UnreachableError: it says whether the node may have got the request.
package client

// Media types and headers as the wire spells them.
const (
	MediaJSON     = "application/json"
	MediaBytes    = "application/octet-stream"
	MediaEvents   = "application/vnd.eventstore.events+json"
	MediaAtom     = "application/vnd.eventstore.atom+json"
	MediaMessages = "application/vnd.eventstore.competingatom+json"

	HeaderExpectedVersion = "ES-ExpectedVersion"
	HeaderCurrentVersion  = "ES-CurrentVersion"
	HeaderEventID         = "ES-EventId"
	HeaderEventType       = "ES-EventType"
	HeaderHardDelete      = "ES-HardDelete"
	HeaderLongPoll        = "ES-LongPoll"
	HeaderRequireLeader   = "ES-RequireLeader"
	HeaderResolveLinks    = "ES-ResolveLinkTos"
)

// AllStream is the stream of all events, in the order of writing.
const AllStream = "$all"

// Expected versions of a stream that are not the number of its last event.
const (
	AnyVersion   int64 = -2
	NoStream     int64 = -1
	StreamExists int64 = -4
)
