// Package client talks to the nodes of an Annals cluster over HTTP. It appends and reads events,
// queries them and decides on them, subscribes to streams, works for persistent subscription
// groups, manages projections and users, and calls everything else that a node serves.
//
// A Client knows one or more nodes. It asks the node that answered last. It goes to the next node
// when it gets no connection, and follows the redirect of a follower to the leader, with the
// credentials. Options.RetryFor says how long appends, reads and commands are repeated. An append
// carries the ids of its events, so the cluster recognizes a repetition and writes each event once.
//
// A node that refuses is an *Error with the status and the sentence of the node. A node that gives
// no answer is an *UnreachableError, which says whether the node may have got the request.
// errors.Is finds the kinds of both: ErrWrongVersion, ErrNotFound, ErrDeleted, ErrExists,
// ErrAccessDenied, ErrNotLeader and ErrUnavailable.
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
	HeaderPosition        = "ES-Position"
	HeaderWaitFor         = "ES-WaitFor"
	HeaderWaitAtMost      = "ES-WaitAtMost"
)

// AllStream is the stream of all events, in the order of writing.
const AllStream = "$all"

// Expected versions of a stream that are not the number of its last event.
const (
	AnyVersion   int64 = -2
	NoStream     int64 = -1
	StreamExists int64 = -4
)

// Expected versions of the checks of AppendMany alone.
const (
	SoftDeleted int64 = -5 // and not written to since
	Tombstoned  int64 = -6 // deleted for ever
)
