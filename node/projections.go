package node

import (
	"context"
	"errors"
	"sync/atomic"
	"time"

	"github.com/annalsdb/annals/access"
	"github.com/annalsdb/annals/config"
	"github.com/annalsdb/annals/event"
	"github.com/annalsdb/annals/projection"
	"github.com/annalsdb/annals/projection/standard"
)

// newProjections returns the service of projections, nil when none is to run.
func newProjections(n *Node) *projection.Service {
	c := n.config
	if c.RunProjections == config.ProjectionsNone {
		return nil
	}
	r := &rights{n.policy, access.NewDelegates(n.users, access.AuthenticatorOptions{Insecure: c.Insecure, TrustedAuth: c.EnableTrustedAuth})}
	return projection.New(projection.Options{
		Store: n.store, May: r.may, Links: r.links, Logger: n.logger.Named("projections"), Stats: n.opts.Stats,
		SystemOnly: c.RunProjections == config.ProjectionsSystem, StartStandard: c.StartStandardProjections,
		Threads: c.ProjectionThreads, QueryExpiry: c.ProjectionsQueryExpiry,
		CompileTimeout: c.ProjectionCompilationTimeout, ExecutionTimeout: c.ProjectionExecutionTimeout,
		FaultOutOfOrder: c.FaultOutOfOrderProjections, MaxStateSize: c.MaxProjectionStateSize, WriteTimeout: c.WriteTimeout,
	})
}

// firstLoad is whether a node on its own has loaded its projections since it began to serve. Until
// then it is not ready: a client that waits for readiness asks for projections next. It does not
// wait for them for long, as it serves more than projections.
type firstLoad struct {
	queries *projection.Service // nil: it waits for none
	since   atomic.Pointer[time.Time]
}

// loadPatience is how long the node waits.
const loadPatience = 10 * time.Second

// done reports whether nothing is to be waited for. It is asked once all else is ready.
func (f *firstLoad) done() bool {
	if f.queries == nil {
		return true
	}
	select {
	case <-f.queries.Loaded():
		return true
	default:
	}
	now := time.Now()
	f.since.CompareAndSwap(nil, &now)
	return now.Sub(*f.since.Load()) > loadPatience
}

// wait waits for it.
func (f *firstLoad) wait(ctx context.Context) error {
	if f.queries == nil {
		return nil
	}
	timer := time.NewTimer(loadPatience)
	defer timer.Stop()
	select {
	case <-f.queries.Loaded():
	case <-timer.C:
	case <-ctx.Done():
		return ctx.Err()
	}
	return nil
}

// rights are those of projections, which have the rights that who made them has now.
type rights struct {
	policy *access.Policy
	users  *access.Delegates
}

func (r *rights) may(ctx context.Context, who projection.Identity, stream string, write bool) error {
	right := access.ReadRight
	if write {
		right = access.WriteRight
	}
	is, err := r.users.Now(ctx, who.Name, who.Roles)
	if err != nil {
		return err
	}
	return r.policy.CheckStream(ctx, is, stream, right)
}

// links resolves the links that a projection may follow.
func (r *rights) links(ctx context.Context, who projection.Identity) event.LinkReader {
	return &projectionLinks{r, ctx, who}
}

type projectionLinks struct {
	*rights
	ctx context.Context // of the run
	who projection.Identity
}

func (l *projectionLinks) MayRead(stream string, info *event.StreamInfo) (bool, error) {
	is, err := l.users.Now(l.ctx, l.who.Name, l.who.Roles)
	if errors.Is(err, event.ErrNotAuthorized) {
		return false, nil
	} else if err != nil {
		return false, err
	}
	return l.policy.MayRead(l.ctx, &is, stream, info)
}

// correlations knows the member of an event's metadata that holds its correlation
// id: that which $by_correlation_id goes by.
type correlations struct {
	projections *projection.Service // nil: none run
	known       atomic.Pointer[correlation]
}

// correlation is the result of reading a text of the projection.
type correlation struct{ text, member string }

func (c *correlations) member() string {
	if c.projections == nil {
		return event.CorrelationMember
	}
	known := c.known.Load()
	q, err := c.projections.Query(standard.ByCorrelationID)
	switch {
	case err != nil && known != nil: // They are being loaded.
		return known.member
	case err != nil:
		return event.CorrelationMember
	case known != nil && known.text == q.Text:
		return known.member
	}
	member, err := standard.CorrelationProperty(q.Text)
	if err != nil { // The projection is faulted.
		member = event.CorrelationMember
	}
	c.known.Store(&correlation{q.Text, member})
	return member
}
