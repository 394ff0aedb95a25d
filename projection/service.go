package projection

import (
	"context"
	"sync"
	"time"

	"github.com/hashicorp/go-hclog"

	"github.com/annalsdb/annals/event"
	"github.com/annalsdb/annals/stats"
)

// Options of a Service.
type Options struct {
	Logger hclog.Logger     // nil: nothing is logged
	Stats  *stats.Registry  // may be nil
	Now    func() time.Time // nil: time.Now
	// SystemOnly lets only projections run whose name begins with "$".
	SystemOnly bool
	// StartStandard enables the system projections once, when they are loaded first.
	StartStandard bool
	QueryExpiry   time.Duration // of transient projections that nobody asks for; 0: 5 minutes
}

// Service runs all projections while its node leads. Its methods may be called
// from any goroutine. While it is not started, or loads the projections, they
// return event.ErrNotReady.
//
// Names are those of projections; ErrNotFound says that there is none. Changes
// return when the deed is done: ErrAborted when another change came first,
// *Refused when the projection cannot be changed so as it is, and the errors of writing.
type Service struct {
	opts Options
	life sync.Mutex // serialises Start and Stop
}

// New returns a service that is not started.
func New(o Options) *Service { return &Service{opts: o} }

// Start begins to load the projections and run them, and returns at once. It does
// nothing when the service is started. The end of ctx ends what was started, as
// Stop does.
func (s *Service) Start(ctx context.Context) {}

// Stop ends all projections without a word to the store, and waits for all
// goroutines. The service can be started again.
func (s *Service) Stop() {}

// Running reports whether the projections are loaded and run on this node.
func (s *Service) Running() bool { return false }

// Restart begins to load all projections again, as if the node began to lead. A
// service that is not running, or restarts already, is *BadInput.
func (s *Service) Restart(ctx context.Context) error { return event.ErrNotReady }

// Create makes a projection and returns its name, when it runs, has faulted, or
// is stopped if it is not enabled. Errors are *BadInput, *Exists,
// event.ErrNotAuthorized and those of writing.
func (s *Service) Create(ctx context.Context, c Creation) (name string, err error) {
	return "", event.ErrNotReady
}

// Command enables, disables, resets or aborts a projection.
func (s *Service) Command(ctx context.Context, name string, c Command, by Identity) error {
	return event.ErrNotReady
}

// UpdateQuery replaces the text of a projection, and with emit not nil whether it may emit.
func (s *Service) UpdateQuery(ctx context.Context, name, query string, emit *bool, by Identity) error {
	return event.ErrNotReady
}

// Config returns the settings of a projection.
func (s *Service) Config(name string) (Config, error) { return Config{}, event.ErrNotReady }

// SetConfig replaces the settings of a projection, which hold from its next start.
func (s *Service) SetConfig(ctx context.Context, name string, c Config, by Identity) error {
	return event.ErrNotReady
}

// Delete removes a projection.
func (s *Service) Delete(ctx context.Context, name string, o DeleteOptions, by Identity) error {
	return event.ErrNotReady
}

// Statistics returns what is known of a projection.
func (s *Service) Statistics(name string) (Statistics, error) {
	return Statistics{}, event.ErrNotReady
}

// List returns what is known of projections, in the order of their creation.
func (s *Service) List(k Kinds) ([]Statistics, error) { return nil, event.ErrNotReady }

// State returns the state of a partition; empty: of the root.
func (s *Service) State(ctx context.Context, name, partition string) (Content, error) {
	return Content{}, event.ErrNotReady
}

// Result returns the result of a partition, as State does.
func (s *Service) Result(ctx context.Context, name, partition string) (Content, error) {
	return Content{}, event.ErrNotReady
}

// Query returns the text of a projection and what comes of it.
func (s *Service) Query(name string) (Query, error) { return Query{}, event.ErrNotReady }

// ReadEvents reads what the definition selects that is asked for, without
// running a projection. The request is the JSON that the console's debugger sends.
// Errors are *BadInput, event.ErrNotAuthorized and those of reading.
func (s *Service) ReadEvents(ctx context.Context, request []byte, by Identity) (SourcePage, error) {
	return SourcePage{}, event.ErrNotReady
}
