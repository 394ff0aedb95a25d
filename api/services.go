package api

import (
	"context"
	"net/http"
	"time"

	"github.com/annalsdb/annals/access"
	"github.com/annalsdb/annals/admin/activity"
	"github.com/annalsdb/annals/admin/scavenge"
	"github.com/annalsdb/annals/catchup"
	"github.com/annalsdb/annals/event"
	"github.com/annalsdb/annals/projection"
	"github.com/annalsdb/annals/stats/history"
	"github.com/annalsdb/annals/stats/tree"
	"github.com/annalsdb/annals/subscription"
)

// Store writes to streams and reads them. Its errors are those of package event; a call that
// outlives its context returns the context's error.
type Store interface {
	Writer
	Reader
	catchup.Waiter
}

// Writer writes to streams.
type Writer interface {
	// Write does w whole or not at all. On a node that does not lead it returns *event.NotLeader or
	// event.ErrNotReady.
	Write(ctx context.Context, w *event.Write) (event.Written, error)

	// Begin is Write for one who does not wait for each answer: the writes that a goroutine begins
	// are decided in that order. It does not block. wake, of capacity 1, is signalled when the
	// answer is there or ctx is over; a signal may also stand for another write, or for nothing.
	Begin(ctx context.Context, w *event.Write, wake chan<- struct{}) (Pending, error)

	// WriteAnywhere does w here or, on a node that does not lead, at the leader, with the errors
	// that it has there. Two that are on their way at a time may get there in either order. A
	// read-only replica returns *event.NotLeader, and so long as no leader is known it is
	// event.ErrNotReady.
	WriteAnywhere(ctx context.Context, w *event.Write) (event.Written, error)
}

// Pending is a write that was begun. Its answer must be collected.
type Pending interface {
	// Done returns the answer of Write if it is there: ok is true once, and Done must not be called
	// again then. With giveUp it is always true: writes without an answer get
	// event.ErrWriteTimeout.
	Done(giveUp bool) (written event.Written, err error, ok bool)
}

// Reader reads streams and the log.
type Reader interface {
	catchup.Store

	// ReadPayload reads data and metadata of a record that a page left bare;
	// event.ErrEventNotFound when they are gone.
	ReadPayload(ctx context.Context, r *event.Record) error

	// ReadEvent reads one event; event.Head asks for the last visible one. Besides the errors of
	// ReadStream it returns event.ErrEventNotFound. ReadEventUpTo leaves a larger payload out.
	ReadEvent(ctx context.Context, stream string, number int64, links event.LinkReader) (event.Resolved, error)
	ReadEventUpTo(ctx context.Context, stream string, number int64, maxPayload int, links event.LinkReader) (event.Resolved, error)

	// PositionAt returns the position of the first record that was not written before a time, in
	// nanoseconds since 1970; LogEnd when there is none.
	PositionAt(ctx context.Context, time int64) (int64, error)

	// Names reads a page of the names of streams; *event.NamesNotListed while they are being
	// collected.
	Names(ctx context.Context, r event.NamesRead) (event.NamesPage, error)

	// Tombstone reads the tombstone of a hard-deleted stream. A metadata stream has none of its
	// own: event.ErrEventNotFound.
	Tombstone(ctx context.Context, stream string) (event.Record, error)
}

// Cluster is this node's part in its cluster.
type Cluster interface {
	// Role is this node's state in lower case: "leader", "follower" and so on.
	Role() string
	// Redirect returns the base URI of the leader's client address. It is ok only when this node
	// is not the leader and knows who is.
	Redirect() (leader string, ok bool)
	// Confirm returns nil when this node was the leader at some time after the call began and has
	// applied all that was committed before it.
	Confirm(ctx context.Context) error
}

// Membership is the cluster as an operator sees it.
type Membership interface {
	// View is the cluster as this node knows it at the moment. It is prompt and never waits for
	// the network.
	View() event.ClusterView
	// State is the current state of this node.
	State() event.NodeState
	// SetPriority changes this node's priority in elections until it is restarted.
	SetPriority(priority int) error
	// Resign hands leadership over. It is also nil when no other node can take over, and when this
	// node does not lead.
	Resign(ctx context.Context) error
	// AddMember makes a node a member of the cluster, given its id or the address that other nodes
	// reach it at. Besides the context's error it returns *event.NotLeader, event.ErrNotReady, or
	// *event.MemberError.
	AddMember(ctx context.Context, node string) error
	// RemoveMember makes a node no member, with the errors of AddMember.
	RemoveMember(ctx context.Context, node string) error
}

// Access knows callers and their rights.
type Access interface {
	// Authenticate names the caller: event.ErrNotAuthorized for wrong credentials,
	// event.ErrNotInitialized when they cannot be checked yet. A request without credentials is an
	// anonymous caller, not an error.
	Authenticate(r *http.Request) (access.Principal, error)
	// Renew returns the caller as it is now, with the errors of Authenticate.
	Renew(ctx context.Context, p access.Principal) (access.Principal, error)
	// CheckStream returns event.ErrNotAuthorized when the caller lacks the right. The rights of a
	// metadata stream are the metadata rights of its original.
	CheckStream(ctx context.Context, p access.Principal, stream string, right access.Right) error
	// MayRead reports whether the caller has the right to read a stream, of which info is what is
	// known. It decides which links are resolved.
	MayRead(ctx context.Context, p *access.Principal, stream string, info *event.StreamInfo) (bool, error)
}

// Users manages the stored users. Only the leader can change them. Errors are
// event.ErrUserNotFound, event.ErrUserConflict, event.ErrNotAuthorized for a wrong current
// password, event.ErrBusy when too many passwords are being hashed, and those of Writer.Write.
type Users interface {
	// List returns all users, sorted by login.
	List(ctx context.Context) ([]access.Account, error)
	Get(ctx context.Context, login string) (access.Account, error)
	// Create makes a user. One that exists with the same password stays as it is.
	Create(ctx context.Context, a access.NewAccount) error
	Update(ctx context.Context, login, fullName string, groups []string) error
	Delete(ctx context.Context, login string) error
	SetDisabled(ctx context.Context, login string, disabled bool) error
	ResetPassword(ctx context.Context, login, password string) error
	ChangePassword(ctx context.Context, login, current, password string) error
}

// Subscriptions are the persistent subscription groups. Only the leader runs them: nothing of this
// is called elsewhere. Errors are event.ErrNotReady while groups are being loaded, those of package
// subscription, and those of Writer.Write.
type Subscriptions interface {
	// Create and Update judge the settings; an update knows that there is the group when it judges
	// more than their sizes.
	Create(ctx context.Context, k subscription.Key, s subscription.Settings, by string) error
	Update(ctx context.Context, k subscription.Key, s subscription.Settings, by string) error
	Delete(ctx context.Context, k subscription.Key, by string) error
	// SourceOf is the stream, the log or the index that a group reads: its consumers need the right
	// to read that, too.
	SourceOf(k subscription.Key) (string, error)
	// Pause has a group hand out nothing, and Resume ends that. Neither does anything twice.
	Pause(ctx context.Context, k subscription.Key, by string) error
	Resume(ctx context.Context, k subscription.Key, by string) error
	// Read hands out at most count messages, and none when there is none at the moment. links
	// decides what the caller is shown of what messages link to.
	Read(ctx context.Context, k subscription.Key, count int, links event.LinkReader) ([]subscription.Message, error)
	// Ack and Nack answer messages. Ids and groups that are not known are passed over. after is the
	// delay of a retry; nil: that of the group.
	Ack(ctx context.Context, k subscription.Key, ids []event.ID) error
	Nack(ctx context.Context, k subscription.Key, ids []event.ID, action subscription.Action, reason string, after *time.Duration) error
	// Connect adds a consumer that messages are pushed to, until it is closed or the group ends.
	Connect(ctx context.Context, k subscription.Key, o subscription.ConnectOptions) (*subscription.Connection, error)
	// Reset moves a group to another place, and Preview says what that would do.
	Reset(ctx context.Context, k subscription.Key, to subscription.Target, by string) (subscription.Reset, error)
	Preview(ctx context.Context, k subscription.Key, to subscription.Target) (subscription.Reset, error)
	// Replay hands out the parked messages again whose number in the parked stream is below stopAt;
	// -1: all. A rate above 0 is of messages a second.
	Replay(ctx context.Context, k subscription.Key, stopAt int64, rate int) error
	// Parked returns parked messages that are not settled; the others replay and drop them, or
	// leave a note. They fail with *subscription.NotParked, and subscription.ErrDeskFull.
	Parked(ctx context.Context, k subscription.Key, from int64, count int, payload bool, links event.LinkReader) (subscription.ParkedPage, error)
	ReplayParked(ctx context.Context, k subscription.Key, numbers []int64) error
	DropParked(ctx context.Context, k subscription.Key, numbers []int64) error
	NoteParked(ctx context.Context, k subscription.Key, number int64, text, by string) error
	// ForwardParked moves parked messages to a stream, those with the numbers, or some from a
	// number on. Events that links does not let the caller see are event.ErrNotAuthorized.
	ForwardParked(ctx context.Context, k subscription.Key, to string, numbers []int64, from int64, links event.LinkReader) (subscription.Forwarded, error)
	// Restart begins to load all groups again. It fails with event.ErrNotReady when they are not
	// running.
	Restart(ctx context.Context) error
	Info(ctx context.Context, k subscription.Key) (subscription.Info, error)
	// Await returns when all messages that a group's source has up to a position of the log were
	// handed out and answered, or parked. Done is how far the group is.
	Await(ctx context.Context, k subscription.Key, position int64) error
	Done(k subscription.Key) int64
	// List returns all groups, by stream and within a stream in the order of their creation; those
	// of one stream when that is not empty.
	List(ctx context.Context, stream string) ([]subscription.Info, error)
}

// Projections are queries that run over events. Only the leader runs them: nothing of this is
// called elsewhere. Errors are event.ErrNotReady while projections are being loaded,
// event.ErrNotAuthorized for what the caller may not do with this projection, those of package
// projection, and those of Writer.Write. Changes return when the deed is done.
type Projections interface {
	// Create makes a projection and returns its name.
	Create(ctx context.Context, c projection.Creation) (name string, err error)
	Command(ctx context.Context, name string, c projection.Command, by projection.Identity) error
	UpdateQuery(ctx context.Context, name string, u projection.Update, by projection.Identity) error
	Config(name string) (projection.Settings, error)
	SetConfig(ctx context.Context, name string, c projection.Config, by projection.Identity) error
	Delete(ctx context.Context, name string, o projection.DeleteOptions, by projection.Identity) error
	Statistics(name string) (projection.Statistics, error)
	// List returns those of a kind in the order of their creation.
	List(k projection.Kinds) ([]projection.Statistics, error)
	// State and Result return those of a partition; the empty name is the root.
	State(ctx context.Context, name, partition string, by projection.Identity) (projection.Content, error)
	Result(ctx context.Context, name, partition string, by projection.Identity) (projection.Content, error)
	// Await returns when a projection has handled the events of its sources up to a position of the
	// log. Done is how far it is.
	Await(ctx context.Context, name string, position int64) error
	Done(name string) int64
	// Partitions lists the partitions in memory whose names contain a text, after a name.
	Partitions(ctx context.Context, name, contains, after string, most int, by projection.Identity) (list []projection.Partition, more bool, err error)
	Query(name string) (projection.Query, error)
	// Rebuild begins a second version of a projection, SwapRebuild lets it take over, and
	// EndRebuild ends it. RebuildStatus compares both versions first, if it is asked to.
	Rebuild(ctx context.Context, name string, u projection.Update, by projection.Identity) error
	SwapRebuild(ctx context.Context, name string, by projection.Identity) error
	EndRebuild(ctx context.Context, name string, by projection.Identity) error
	RebuildStatus(ctx context.Context, name string, compare, withStates bool, by projection.Identity) (projection.Rebuild, error)
	// ReadEvents reads what a definition selects. The request is JSON.
	ReadEvents(ctx context.Context, request []byte, by projection.Identity) (projection.SourcePage, error)
	// Restart begins to load all projections again. It is *projection.BadInput while they are being
	// loaded.
	Restart(ctx context.Context) error
}

// Operations are the actions of an operator on this node alone. None of them waits.
type Operations interface {
	// Shutdown begins to stop the node. Requests in flight are answered first.
	Shutdown()
	// Reload begins to read the configuration again. Its outcome is in the log.
	Reload()
	// MergeIndexes begins to merge all index tables into one. It does nothing while such a merge
	// runs. It fails with event.ErrNotReady.
	MergeIndexes() (id event.ID, err error)
}

// Index is this node's index of what events say of themselves. Its calls fail with
// event.ErrNotReady.
type Index interface {
	IndexStatus() (event.IndexStatus, error)
	// IndexNames lists categories or types. It fails with *event.IndexBuilding and
	// event.ErrNoNames, too.
	IndexNames(ctx context.Context, r event.IndexNamesRead) (event.IndexNamesPage, error)
	// RebuildIndex begins to make the index again. It fails with event.ErrIndexBuilding while it is
	// being made.
	RebuildIndex() error
}

// Scavenges runs scavenges of this node's files, one at a time.
type Scavenges interface {
	// Start registers a run and returns its id before any work is done. It fails with
	// scavenge.ErrRunning, scavenge.ErrInMemory, event.ErrChunksLocked, event.ErrNotReady or
	// event.ErrClosed.
	Start(r scavenge.Request) (event.ID, error)
	// Announced returns when what the database records of the begin of the run that was started
	// last can be read here, or when the context ends.
	Announced(ctx context.Context, id event.ID)
	// Stop stops the run with the id, whichever runs for the zero id, and returns its id when it
	// has ended and released what it held. It fails with scavenge.ErrNoSuchRun, and with the
	// context's error when that ends first: the run stops nevertheless.
	Stop(ctx context.Context, id event.ID) (event.ID, error)
	// Current describes the running scavenge. Its ID is zero when none runs.
	Current() scavenge.Status
	// Last is what the last run since the process started was or is. Before there was any its ID
	// is zero and its Result scavenge.ResultUnknown.
	Last() scavenge.Status
	// Estimate finds out what a run would do, and does nothing. It may take long. It fails with
	// event.ErrNotReady, event.ErrBusy when too many estimates run, event.ErrClosed, and the
	// context's error.
	Estimate(ctx context.Context, o scavenge.EstimateOptions) (*scavenge.Estimate, error)
}

// Statistics are those of this node.
type Statistics interface {
	// Statistics are those of /stats, at most a second old.
	Statistics() tree.Statistics
	// History is what the main statistics were in the last minutes.
	History(minutes int64) history.Series
	// Replication tells of the nodes that follow this one; none unless it leads.
	Replication() []ReplicationConnection
	// Metrics serves /metrics to callers that may see it.
	Metrics() http.Handler
	// Histogram appends the table of a histogram of /histogram. It is not ok when there is none of
	// the name, or when histograms are switched off.
	Histogram(dst []byte, name string) (table []byte, ok bool)
	// Answered counts an answer that was sent after so long.
	Answered(took time.Duration)
}

// ReplicationConnection is a follower as /stats/replication has it.
type ReplicationConnection struct {
	SubscriptionID, ConnectionID event.ID
	// host:port, as the follower's replication address in gossip
	Endpoint                             string
	Sent, Received                       int64 // bytes
	PendingSent, PendingReceived, Queued int64
}

// Activity records who changed what.
type Activity interface {
	// Begin announces a change, and reports whether it may be made: not when the node ends and
	// nothing more is recorded. End follows.
	Begin() bool
	End()
	// Note has an operation recorded. If it was done it waits while too many wait to be written.
	Note(o activity.Operation)
}
