package torture

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"strconv"
	"strings"
	"time"

	"github.com/annalsdb/annals/client"
	"github.com/annalsdb/annals/internal/clock"
)

const (
	// copiesStream begins the name of the stream that the projection of a run emits to; the prefix
	// of the run follows. For the book of the log it is a stream of another client, and none of its
	// events is ever removed.
	copiesStream = "copies-"
	copyType     = "copied"

	byCategory = "$by_category"
	ceStream   = "$ce-"

	// projectionsDrain is how long projections may take to handle everything once all is calm.
	projectionsDrain = 45 * time.Second
	// settled is for how long they must say the same: their statistics lag.
	settled = 1500 * time.Millisecond
)

// projector is an operator with projections: one that copies the events of some streams to another
// and counts them, and the one that links the events of each category. He stops them in every way,
// and enables them again.
type projector struct {
	worker
	// linked says that the projection by category is ours as well.
	linked bool

	state  int64 // events that the projection says it has counted, in the end
	copies []copied
	links  []categoryLink
}

func newProjector(l *load, linked bool) *projector {
	return &projector{worker: l.worker(projections), linked: linked}
}

func (p *projector) name() string { return p.prefix + "copy" }
func (p *projector) out() string  { return copiesStream + p.prefix }

// isCopied says whether the events of a stream are copied. Nothing is ever removed from these
// streams.
func (p *projector) isCopied(stream string) bool {
	own, ok := strings.CutPrefix(stream, p.prefix)
	return ok && (strings.HasPrefix(own, "spread-") || own == queueStream)
}

// script counts events and copies each.
func (p *projector) script() string {
	return fmt.Sprintf(`fromAll().when({
  $init: function () { return {n: 0}; },
  %s: function (s, e) {
    if (!e.streamId.startsWith(%q) && e.streamId !== %q) return s;
    s.n++;
    emit(%q, %q, {n: s.n, of: e.sequenceNumber + "@" + e.streamId});
    return s;
  }
});
`, eventType, p.prefix+"spread-", p.prefix+queueStream, p.out(), copyType)
}

func projectionPath(name string) string { return "/projection/" + url.PathEscape(name) }

// names returns the projections of the run.
func (p *projector) names() []string {
	if p.linked {
		return []string{p.name(), byCategory}
	}
	return []string{p.name()}
}

// create makes the projection, before anything strikes.
func (p *projector) create(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, startupLimit)
	defer cancel()
	// What it copies depends on nothing else, so its checkpoints can be close together: faults fall
	// between them.
	_, err := p.command(ctx, client.Request{
		Method: http.MethodPost, Path: "/projections/continuous?emit=yes&enabled=no&name=" + url.QueryEscape(p.name()),
		Header: map[string]string{"Content-Type": client.MediaJSON}, Body: []byte(p.script()),
	})
	// This comes of an earlier attempt.
	if err != nil && !client.HasStatus(err, http.StatusConflict) {
		return fmt.Errorf("create %s: %w", p.name(), err)
	}
	config, err := json.Marshal(map[string]any{
		"emitEnabled": true, "checkpointAfterMs": 300, "checkpointHandledThreshold": 50, "checkpointUnhandledBytesThreshold": 100_000,
		"pendingEventsThreshold": 100, "maxWriteBatchLength": 20,
	})
	if err != nil {
		return err
	}
	_, err = p.command(ctx, client.Request{
		Method: http.MethodPut, Path: projectionPath(p.name()) + "/config", Header: map[string]string{"Content-Type": client.MediaJSON}, Body: config,
	})
	if err != nil {
		return fmt.Errorf("configure %s: %w", p.name(), err)
	}
	for _, name := range p.names() {
		if err := p.enable(ctx, name); err != nil {
			return err
		}
	}
	return nil
}

// enable enables a projection, and repeats the request until it is accepted.
func (p *projector) enable(ctx context.Context, name string) error {
	if _, err := p.command(ctx, p.control(name, "enable")); err != nil {
		return fmt.Errorf("enable %s: %w", name, err)
	}
	p.count.add(ofProjections, "enable", 1)
	return nil
}

func (p *projector) control(name, what string) client.Request {
	return client.Request{Method: http.MethodPost, Path: projectionPath(name) + "/command/" + what}
}

func (p *projector) turn(ctx context.Context) time.Duration {
	name := p.names()[p.rng.IntN(len(p.names()))]
	switch dice := p.rng.IntN(10); {
	case dice < 4:
		p.act(ctx, "disable", p.control(name, "disable"))
	case dice < 7:
		p.act(ctx, "abort", p.control(name, "abort"))
	case dice < 8:
		p.act(ctx, "restart", client.Request{Method: http.MethodPost, Path: "/projections/restart", Header: map[string]string{"Content-Type": client.MediaJSON}})
		return p.pause(500, 2500)
	}
	// It may also lie still from before: what is asked for in trouble may be done later.
	p.rest(ctx, p.pause(0, 500))
	p.act(ctx, "enable", p.control(name, "enable"))
	return p.pause(500, 2500)
}

// act sends a command once.
func (p *projector) act(ctx context.Context, what string, r client.Request) {
	a, err := p.do(ctx, p.choose(), r)
	switch judge(a, err) {
	case done:
		p.count.add(ofProjections, what, 1)
	case conflict:
		if what != "restart" || a.Status != http.StatusBadRequest { // It restarts already.
			p.find.add(kindAnswer, "%s %s: %s", r.Method, r.Path, a)
		}
	default:
		p.wander()
	}
}

// projectionStatus is the part of the statistics that tells whether a projection has handled
// everything.
type projectionStatus struct {
	Status   string  `json:"status"`
	Reason   string  `json:"stateReason"`
	Position string  `json:"position"`
	Progress float64 `json:"progress"`
	Buffered int64   `json:"bufferedEvents"`
	Before   int64   `json:"writePendingEventsBeforeCheckpoint"`
	After    int64   `json:"writePendingEventsAfterCheckpoint"`
}

// unfinished says what a projection still has to do.
func (s *projectionStatus) unfinished() string {
	switch {
	case s.Status != "Running":
		return fmt.Sprintf("its status is %q: %s", s.Status, strings.Join(strings.Fields(s.Reason), " "))
	case s.Progress < 100 || s.Buffered > 0 || s.Before+s.After > 0:
		return fmt.Sprintf("its progress is %g, %d events are read ahead, %d wait to be written; it is at %s", s.Progress, s.Buffered, s.Before+s.After, s.Position)
	}
	return ""
}

// drain lets the projections handle all events, stops them, and reads their output.
func (p *projector) drain(ctx context.Context) {
	limited, cancel := context.WithTimeout(ctx, projectionsDrain)
	defer cancel()
	for _, name := range p.names() {
		err := p.enable(limited, name)
		if err == nil {
			err = p.finish(limited, name)
		}
		if err != nil {
			p.find.add(kindProjectionStuck, "%s has not handled everything %s after all was calm: %v", name, projectionsDrain, err)
		}
	}
	// From here on nothing is written. The count is now that of the checkpoint.
	limited, cancel = context.WithTimeout(ctx, finalPatience)
	defer cancel()
	for _, name := range p.names() {
		if _, err := p.command(limited, p.control(name, "disable")); err != nil {
			p.find.add(kindAnswer, "disable %s on a calm cluster: %v", name, err)
		}
	}
	var err error
	if p.state, err = p.counted(limited); err != nil {
		p.find.add(kindAnswer, "the state of %s on a calm cluster: %v", p.name(), err)
	}
}

// finish waits until a projection says that it has handled everything, and has done so for a while.
func (p *projector) finish(ctx context.Context, name string) error {
	var since time.Time
	at, why := "", "nothing was asked"
	for {
		a, err := p.do(ctx, p.choose(), client.Request{Method: http.MethodGet, Path: projectionPath(name), Header: map[string]string{"Accept": client.MediaJSON}})
		var s projectionStatus
		switch {
		case err != nil:
			why = err.Error()
			p.wander()
		case a.Status != http.StatusOK || json.Unmarshal(a.Body, &s) != nil:
			why = a.String()
			p.wander()
		default:
			why = s.unfinished()
		}
		if why != "" || s.Position != at {
			since, at = time.Now(), s.Position
		}
		if why == "" && time.Since(since) >= settled {
			return nil
		}
		if clock.Sleep(ctx, 100*time.Millisecond) != nil {
			return errors.Join(ctx.Err(), errors.New(why))
		}
	}
}

// counted returns how many events the projection has counted.
func (p *projector) counted(ctx context.Context) (int64, error) {
	a, err := p.command(ctx, client.Request{Method: http.MethodGet, Path: projectionPath(p.name()) + "/state", Header: map[string]string{"Accept": client.MediaJSON}})
	if err != nil || len(a.Body) == 0 { // It never saw an event.
		return 0, err
	}
	var state struct {
		N int64 `json:"n"`
	}
	return state.N, json.Unmarshal(a.Body, &state)
}

// remove deletes the projection from a given cluster.
func (p *projector) remove(ctx context.Context) {
	a, err := p.do(ctx, p.choose(), client.Request{Method: http.MethodDelete, Path: projectionPath(p.name()) + "?deleteCheckpointStream=yes"})
	if judge(a, err) == conflict {
		p.find.add(kindAnswer, "delete %s: %s", p.name(), a)
	}
}

// copied is an event that the projection emitted.
type copied struct {
	number int64
	kind   string
	n      int64
	of     string
}

// categoryLink is a link that the projection by category wrote.
type categoryLink struct {
	number int64
	origin string // the stream whose event was linked
	to     string
}

// read reads from one node what the projections wrote.
func (p *projector) read(ctx context.Context, from Target) {
	err := p.each(ctx, from, p.out(), func(e *entry, at int64) error {
		var body struct {
			N  int64  `json:"n"`
			Of string `json:"of"`
		}
		err := json.Unmarshal([]byte(e.Data), &body)
		p.copies = append(p.copies, copied{at, e.Type, body.N, body.Of})
		return err
	})
	if err == nil && p.linked {
		category, _, _ := strings.Cut(p.prefix, "-")
		err = p.each(ctx, from, ceStream+category, func(e *entry, at int64) error {
			var meta struct {
				Origin string `json:"$o"`
			}
			// One that leads nowhere has none.
			if err := json.Unmarshal([]byte(e.LinkMetadata), &meta); err != nil && e.LinkMetadata != "" {
				return err
			}
			p.links = append(p.links, categoryLink{at, meta.Origin, strconv.FormatInt(e.Number, 10) + "@" + e.Stream})
			return nil
		})
	}
	if err != nil {
		p.find.add(kindHeal, "%s: what projections wrote cannot be read: %v", from.Name, err)
	}
}

// each reads a stream that a projection writes, links resolved, to its end.
func (p *projector) each(ctx context.Context, from Target, stream string, take func(e *entry, at int64) error) error {
	r := finalReader{p.load, from}
	_, err := r.stream(ctx, stream, func(next int64, entries []entry) (int64, error) {
		for i := range entries {
			if at := entries[i].ReadNumber; at > 0 { // A link that leads nowhere does not show it.
				next = at
			}
			if err := take(&entries[i], next); err != nil {
				return next, fmt.Errorf("number %d: %w", next, err)
			}
			next++
		}
		return next, nil
	})
	return err
}
