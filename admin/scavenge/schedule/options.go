package schedule

import (
	"cmp"
	"context"
	"time"

	"github.com/hashicorp/go-hclog"

	"github.com/annalsdb/annals/admin/scavenge"
	"github.com/annalsdb/annals/event"
	"github.com/annalsdb/annals/stats"
)

// Runner scavenges this node.
type Runner interface {
	// Start begins a run, or resumes one that was stopped. It fails with scavenge.ErrRunning if one
	// is running, which Current then returns.
	Start(scavenge.Request) (event.ID, error)
	// Stop ends a run and returns when it has ended, or ctx. It fails with scavenge.ErrNoSuchRun if
	// it has ended before.
	Stop(ctx context.Context, id event.ID) (event.ID, error)
	// Last returns the run that was started last in this process; its id is zero if none was.
	Last() scavenge.Status
	// Current returns the run that is running; its id is zero if there is none.
	Current() scavenge.Status
	// Wait returns when the run has ended, at once if it has. It fails when ctx ends before.
	Wait(ctx context.Context, id event.ID) (scavenge.Status, error)
}

// Store is the database.
type Store interface {
	// WriteOwn does a write of the node's own, wherever the leader is, and waits for
	// a leader as long as ctx allows. It fails with *event.WrongExpectedVersion if the
	// stream is elsewhere.
	WriteOwn(ctx context.Context, w *event.Write) (event.Written, error)
	// StreamInfo returns what this node knows of a stream, of one never written too.
	StreamInfo(ctx context.Context, stream string) (event.StreamInfo, error)
	ReadStream(ctx context.Context, r event.StreamRead) (event.StreamPage, error)
	// WaitStream returns nil when the stream's last number is above after on this node.
	WaitStream(ctx context.Context, stream string, after int64) error
}

// Cluster is the membership as this node sees it.
type Cluster interface {
	Node() event.ID
	View() event.ClusterView
	// Ask asks another node.
	Ask(ctx context.Context, node event.ID, q Ask) (Answer, error)
	// Resign hands leadership over. It returns nil as well when no node took it over.
	Resign(ctx context.Context) error
}

// Options say what a Scheduler works with.
type Options struct {
	Expression string           // see Parse; empty: this node takes no turns
	Request    scavenge.Request // how this node is scavenged
	Endpoint   string           // of this node, host:port, for those who read the stream
	Runner     Runner
	Store      Store
	Cluster    Cluster

	Now    func() time.Time // time.Now if nil
	Logger hclog.Logger     // may be nil
	Stats  *stats.Registry  // may be nil
}

// EnsureDefaults sets the fields that are zero.
func (o *Options) EnsureDefaults() {
	if o.Now == nil {
		o.Now = time.Now
	}
	o.Logger = cmp.Or(o.Logger, hclog.NewNullLogger())
}
