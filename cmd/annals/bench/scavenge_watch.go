package bench

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"strings"
	"sync"
	"time"

	"github.com/annalsdb/annals/client"
	"github.com/annalsdb/annals/internal/clock"
)

const scavengePath = "/admin/scavenge"

// phaseStarting is what the node calls idle: the run has begun, and no phase yet.
const phaseStarting = "Starting"

// scavengeStatus is what a node says of a run.
type scavengeStatus struct {
	ID             string    `json:"scavengeId"`
	Result         string    `json:"scavengeResult"`
	Error          string    `json:"error"`
	Phase          string    `json:"phase"`
	Done           int64     `json:"done"`
	Total          int64     `json:"total"`
	Unit           string    `json:"unit"`
	BytesSaved     int64     `json:"bytesSaved"`
	EventsRemoved  int64     `json:"eventsRemoved"`
	ChunksExecuted int64     `json:"chunksExecuted"`
	ChunksSkipped  int64     `json:"chunksSkipped"`
	ChunksMerged   int64     `json:"chunksMerged"`
	Started        time.Time `json:"started"`
	Ended          time.Time `json:"ended"`
}

// phaseStatistics is one phase of a run, as often as it was seen.
type phaseStatistics struct {
	Phase       string  `json:"phase"`
	Seconds     float64 `json:"seconds"`
	Units       int64   `json:"units"`
	Unit        string  `json:"unit"`
	PerSecond   float64 `json:"unitsPerSecond"`
	MBPerSecond float64 `json:"mbPerSecond,omitempty"` // where the unit is bytes

	begun time.Time
	total int64 // of the pass under way
}

// runStatistics is what a run came to.
type runStatistics struct {
	ID             string             `json:"scavengeId"`
	Seconds        float64            `json:"seconds"`
	InputBytes     int64              `json:"inputBytes"` // of the chunk files that were looked at
	MBPerSecond    float64            `json:"mbPerSecond"`
	BytesSaved     int64              `json:"bytesSaved"`
	EventsRemoved  int64              `json:"eventsRemoved"`
	ChunksExecuted int64              `json:"chunksExecuted"`
	ChunksSkipped  int64              `json:"chunksSkipped"`
	ChunksMerged   int64              `json:"chunksMerged"`
	Phases         []*phaseStatistics `json:"phases"`
}

// runWatch follows a run by asking the node now and then.
type runWatch struct {
	b     *scavengeBench
	c     *client.Client
	id    string
	stop  context.CancelFunc
	owned sync.WaitGroup

	mu     sync.Mutex // guards what follows
	phases []*phaseStatistics
	now    context.Context // ends with the phase
	next   context.CancelFunc
	ended  bool
	last   scavengeStatus // once it has ended
	err    error          // why it cannot be followed
}

// check proves that the node can be scavenged by the caller, before anything takes its time.
func (b *scavengeBench) check(ctx context.Context) error {
	c, err := b.o.control()
	if err != nil {
		return err
	}
	defer c.Close()
	var s scavengeStatus
	if err := c.Call(ctx, http.MethodGet, scavengePath+"/current", nil, &s); err != nil {
		return fmt.Errorf("ask for scavenges, which takes an operator's --user and --password: %w", err)
	}
	if s.ID != "" {
		return fmt.Errorf("scavenge %s is running", s.ID)
	}
	return nil
}

// start starts a run and follows it until it has ended or close.
func (b *scavengeBench) start(ctx context.Context) (*runWatch, error) {
	c, err := b.o.control()
	if err != nil {
		return nil, err
	}
	w := &runWatch{b: b, c: c}
	var answer scavengeStatus
	if err := c.Call(ctx, http.MethodPost, scavengePath+"?"+b.o.query(), nil, &answer); err != nil {
		c.Close()
		return nil, fmt.Errorf("start a scavenge: %w", err)
	}
	w.id = answer.ID
	own, stop := context.WithCancel(ctx)
	w.stop = stop
	w.enter(phaseStarting, time.Now())
	w.owned.Go(func() { w.follow(own) })
	return w, nil
}

// enter begins a phase. It runs before the follower does, or in it.
func (w *runWatch) enter(phase string, now time.Time) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.leave(now)
	w.phases = append(w.phases, &phaseStatistics{Phase: phase, begun: now})
	w.now, w.next = context.WithCancel(context.Background())
}

// leave ends the phase under way. It runs under mu.
func (w *runWatch) leave(now time.Time) {
	if n := len(w.phases); n > 0 {
		p := w.phases[n-1]
		p.Units += p.total
		p.Seconds = now.Sub(p.begun).Seconds()
		p.PerSecond = float64(p.Units) / max(p.Seconds, 1e-9)
		if p.Unit == "bytes" {
			p.MBPerSecond = p.PerSecond / 1e6
		}
		w.next()
	}
}

// follow asks until the run has ended.
func (w *runWatch) follow(ctx context.Context) {
	err := w.untilEnd(ctx)
	w.mu.Lock()
	defer w.mu.Unlock()
	w.leave(time.Now())
	w.ended, w.err = true, err
}

func (w *runWatch) untilEnd(ctx context.Context) error {
	for {
		var s scavengeStatus
		if err := w.c.Call(ctx, http.MethodGet, scavengePath+"/current", nil, &s); err != nil {
			return fmt.Errorf("ask for the scavenge: %w", err)
		}
		if s.ID != w.id {
			break
		}
		w.note(&s)
		if clock.Sleep(ctx, w.b.o.poll) != nil {
			return ctx.Err()
		}
	}
	var s scavengeStatus
	if err := w.c.Call(ctx, http.MethodGet, scavengePath+"/last", nil, &s); err != nil {
		return fmt.Errorf("ask for the scavenge: %w", err)
	}
	switch {
	case s.ID != w.id:
		return fmt.Errorf("scavenge %s is not the last one of the node, %s is", w.id, s.ID)
	case s.Result != "Success":
		return fmt.Errorf("the scavenge ended as %s: %s", s.Result, s.Error)
	}
	w.mu.Lock()
	w.last = s
	w.mu.Unlock()
	return nil
}

// note takes an answer about the run under way.
func (w *runWatch) note(s *scavengeStatus) {
	phase := strings.TrimSuffix(s.Phase, " Phase")
	if phase == "Idle" {
		return // Before the first phase, and after the last.
	}
	p := w.phases[len(w.phases)-1] // Only this goroutine changes the list.
	if p.Phase != phase {
		w.enter(phase, time.Now())
		p = w.phases[len(w.phases)-1]
	}
	if s.Total != p.total || s.Unit != p.Unit {
		p.Units += p.total // Merging begins anew with each pass.
		p.total, p.Unit = s.Total, s.Unit
	}
}

// phase returns the phase under way, a context that ends with it, and whether the run is over.
func (w *runWatch) phase() (name string, now context.Context, ended bool) {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.phases[len(w.phases)-1].Phase, w.now, w.ended
}

// result returns what the run came to. It must have ended.
func (w *runWatch) result() (*runStatistics, error) {
	w.owned.Wait()
	if w.err != nil {
		return nil, w.err
	}
	s := &w.last
	r := &runStatistics{
		ID: w.id, Seconds: s.Ended.Sub(s.Started).Seconds(), BytesSaved: s.BytesSaved, EventsRemoved: s.EventsRemoved,
		ChunksExecuted: s.ChunksExecuted, ChunksSkipped: s.ChunksSkipped, ChunksMerged: s.ChunksMerged, Phases: w.phases,
	}
	for _, p := range w.phases {
		if strings.HasPrefix(p.Phase, "Chunk execution") {
			r.InputBytes = p.Units
		}
	}
	r.MBPerSecond = float64(r.InputBytes) / max(r.Seconds, 1e-9) / 1e6
	return r, nil
}

// close stops the run if it has not ended, and waits for the follower.
func (w *runWatch) close() error {
	w.stop()
	w.owned.Wait()
	defer w.c.Close()
	if w.last.ID != "" {
		return nil
	}
	// An interrupt leaves no run behind.
	err := w.c.Call(context.Background(), http.MethodDelete, scavengePath+"/"+w.id, nil, nil)
	if errors.Is(err, client.ErrNotFound) { // It has ended meanwhile.
		return nil
	}
	return err
}
