package httpapi_test

import (
	"context"
	"encoding/json"
	"fmt"
	"strings"
	"sync"
	"sync/atomic"
	"testing"

	httpapi "github.com/annalsdb/annals/http"
	"github.com/annalsdb/annals/internal/milestone"
	"github.com/annalsdb/annals/projection"
)

// memProjections answer what a test sets, and remember what they were asked for.
type memProjections struct {
	mu         sync.Mutex
	list       []projection.Statistics
	rests      atomic.Pointer[projection.Resting] // all of them
	line       milestone.Line                     // how far all projections are
	state      projection.Content
	partitions []projection.Partition // of which there are more
	query      projection.Query
	conf       projection.Config
	page       projection.SourcePage
	calls      []string
	fail       error // what every call returns, when set
	block      bool  // every call that has a context waits for it
}

// newProjector is a node with projections.
func newProjector(t testing.TB, change ...func(*httpapi.Options)) (*node, *memProjections) {
	p := &memProjections{}
	set := func(o *httpapi.Options) { o.Projections = p }
	return newNode(t, append([]func(*httpapi.Options){set}, change...)...), p
}

// define makes a projection of which little is known.
func (p *memProjections) define(name string, mode projection.Mode) *projection.Statistics {
	p.list = append(p.list, projection.Statistics{Name: name, EffectiveName: name, Mode: mode, Status: "Stopped", Epoch: -1, Progress: -1})
	return &p.list[len(p.list)-1]
}

// enter notes a call, and finds the projection it is about.
func (p *memProjections) enter(ctx context.Context, name, format string, args ...any) (*projection.Statistics, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.calls = append(p.calls, fmt.Sprintf(format, args...))
	if p.block && ctx.Done() != nil {
		<-ctx.Done()
		return nil, ctx.Err()
	}
	if p.fail != nil {
		return nil, p.fail
	}
	for i := range p.list {
		if p.list[i].Name == name {
			return &p.list[i], nil
		}
	}
	return nil, projection.ErrNotFound
}

// made returns what was asked for since it was called last.
func (p *memProjections) made() string {
	p.mu.Lock()
	defer p.mu.Unlock()
	calls := strings.Join(p.calls, "; ")
	p.calls = nil
	return calls
}

func (p *memProjections) Create(ctx context.Context, c projection.Creation) (string, error) {
	c.Gone = nil // It has no text.
	known, err := p.enter(ctx, c.Name, "%s", strings.NewReplacer(" Gone:<nil>", "", " EngineVersion: ", " ", "Properties:[] ", "").Replace(fmt.Sprintf("create %+v", c)))
	switch {
	case known != nil:
		return "", &projection.Exists{Name: c.Name}
	case p.fail != nil || p.block:
		return "", err
	}
	if c.Name == "" {
		c.Name = "0f9fad5b-d9cb-469f-a165-70867728950e"
	}
	return c.Name, nil
}

func (p *memProjections) Command(ctx context.Context, name string, c projection.Command, by projection.Identity) error {
	_, err := p.enter(ctx, name, "%s %s by %v", c, name, by)
	return err
}

func (p *memProjections) UpdateQuery(ctx context.Context, name string, u projection.Update, by projection.Identity) error {
	choice := "as it was"
	if u.Emit != nil {
		choice = fmt.Sprint(*u.Emit)
	}
	_, err := p.enter(ctx, name, "update %s to %q, emit %s, by %v", name, u.Query, choice, by)
	return err
}

func (p *memProjections) Rebuild(ctx context.Context, name string, u projection.Update, by projection.Identity) error {
	_, err := p.enter(ctx, name, "rebuild %s with %q, emit %t, by %v", name, u.Query, u.Emit != nil && *u.Emit, by)
	return err
}

func (p *memProjections) SwapRebuild(ctx context.Context, name string, by projection.Identity) error {
	_, err := p.enter(ctx, name, "swap %s by %v", name, by)
	return err
}

func (p *memProjections) EndRebuild(ctx context.Context, name string, by projection.Identity) error {
	_, err := p.enter(ctx, name, "end the rebuild of %s by %v", name, by)
	return err
}

func (p *memProjections) RebuildStatus(ctx context.Context, name string, compare, withStates bool, by projection.Identity) (projection.Rebuild, error) {
	_, err := p.enter(ctx, name, "rebuild of %s, compare %t, states %t, by %v", name, compare, withStates, by)
	return projection.Rebuild{Name: name, Status: projection.RebuildReady, Query: "Q", Progress: 100}, err
}

func (p *memProjections) Config(name string) (projection.Settings, error) {
	_, err := p.enter(context.Background(), name, "config of %s", name)
	return projection.Settings{Config: p.conf, Properties: json.RawMessage(`{"team":"a"}`)}, err
}

func (p *memProjections) SetConfig(ctx context.Context, name string, c projection.Config, by projection.Identity) error {
	timeout := "none"
	if c.ProjectionExecutionTimeout != nil {
		timeout = fmt.Sprint(*c.ProjectionExecutionTimeout)
		c.ProjectionExecutionTimeout = nil
	}
	_, err := p.enter(ctx, name, "configure %s: %+v, timeout %s, by %v", name, c, timeout, by)
	return err
}

func (p *memProjections) Delete(ctx context.Context, name string, o projection.DeleteOptions, by projection.Identity) error {
	_, err := p.enter(ctx, name, "delete %s %+v by %v", name, o, by)
	return err
}

func (p *memProjections) Statistics(name string) (projection.Statistics, error) {
	s, err := p.enter(context.Background(), name, "statistics of %s", name)
	if err != nil {
		return projection.Statistics{}, err
	}
	return *s, nil
}

func (p *memProjections) List(k projection.Kinds) ([]projection.Statistics, error) {
	if _, err := p.enter(context.Background(), "", "list %q", k); p.fail != nil {
		return nil, err
	}
	return p.list, nil
}

func (p *memProjections) State(ctx context.Context, name, partition string, _ projection.Identity) (projection.Content, error) {
	_, err := p.enter(ctx, name, "state of %s, partition %q", name, partition)
	return p.state, err
}

func (p *memProjections) Partitions(ctx context.Context, name, contains, after string, most int, _ projection.Identity) ([]projection.Partition, bool, error) {
	_, err := p.enter(ctx, name, "%d partitions of %s with %q after %q", most, name, contains, after)
	return p.partitions, p.partitions != nil, err
}

func (p *memProjections) Result(ctx context.Context, name, partition string, _ projection.Identity) (projection.Content, error) {
	_, err := p.enter(ctx, name, "result of %s, partition %q", name, partition)
	return p.state, err
}

func (p *memProjections) Await(ctx context.Context, _ string, position int64) error {
	if rests := p.rests.Load(); rests != nil && p.line.End() <= position {
		return rests
	}
	return p.line.Wait(ctx, position, nil)
}

func (p *memProjections) Done(string) int64 { return p.line.End() }

func (p *memProjections) Query(name string) (projection.Query, error) {
	_, err := p.enter(context.Background(), name, "query of %s", name)
	return p.query, err
}

func (p *memProjections) ReadEvents(ctx context.Context, request []byte, by projection.Identity) (projection.SourcePage, error) {
	if _, err := p.enter(ctx, "", "read %s by %v", request, by); p.fail != nil || p.block {
		return projection.SourcePage{}, err
	}
	return p.page, nil
}

func (p *memProjections) Restart(ctx context.Context) error {
	if _, err := p.enter(ctx, "", "restart"); p.fail != nil || p.block {
		return err
	}
	return nil
}
