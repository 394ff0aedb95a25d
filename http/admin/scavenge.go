package admin

import (
	"context"
	"errors"
	"fmt"
	"math"
	"slices"
	"time"

	"github.com/annalsdb/annals/admin/scavenge"
	"github.com/annalsdb/annals/api"
	"github.com/annalsdb/annals/event"
	"github.com/annalsdb/annals/http/args"
	"github.com/annalsdb/annals/http/media"
	"github.com/annalsdb/annals/http/outline"
	"github.com/annalsdb/annals/http/problem"
	"github.com/annalsdb/annals/http/request"
	"github.com/annalsdb/annals/internal/logkey"
)

// ScavengeHandlers answer requests about scavenges of this node.
type ScavengeHandlers struct{ Scavenges api.Scavenges }

const scavengePrefix = "/admin/scavenge/"

// Start starts a run, or estimates one.
func (r *ScavengeHandlers) Start(_ context.Context, x *request.Request) error {
	o, err := parseScavenge(x.R.URL.RawQuery)
	if err != nil {
		return err
	}
	if o.dryRun {
		return r.estimateScavenge(x, scavenge.EstimateOptions{Threshold: o.Threshold, Top: o.top})
	}
	id, err := r.Scavenges.Start(o.Request)
	if err != nil {
		return err
	}
	x.Caller.Told("scavenge asked for", logkey.Scavenge, id.String())
	r.awaitScavenge(x, id)
	return x.SendFields("ScavengeResultDto", scavengeIDField(id.String()))
}

// announcePatience bounds how long the answer to a start waits for its record.
const announcePatience = 2 * time.Second

// awaitScavenge waits until clients can read that a run has begun: what they ask for next is its
// stream. Without a leader nothing can be written, and the answer does not wait.
func (r *ScavengeHandlers) awaitScavenge(x *request.Request, id event.ID) {
	if errors.Is(x.Node.Lead(), event.ErrNotReady) {
		return
	}
	ctx, cancel := context.WithTimeout(x.R.Context(), announcePatience)
	defer cancel()
	r.Scavenges.Announced(ctx, id)
}

// Stop stops the run that the path names and answers when it has ended.
func (r *ScavengeHandlers) Stop(_ context.Context, x *request.Request) error {
	var id event.ID // of whichever runs
	if text := x.Route.ID; text != "" {
		var err error
		// A zero id in the path belongs to no run. It does not mean the running one either.
		if id, err = event.ParseID(text); err != nil || id.IsZero() {
			return problem.NoScavenge
		}
	}
	id, err := r.Scavenges.Stop(x.Reads(), id)
	if err != nil {
		return err
	}
	x.Caller.Told("scavenge stopped on demand", logkey.Scavenge, id.String())
	return sendID(x, "ScavengeResultDto", scavengeIDField(id.String()))
}

// Current answers with the running scavenge. When there is none the members that clients
// know are there, and empty.
func (r *ScavengeHandlers) Current(_ context.Context, x *request.Request) error {
	s := r.Scavenges.Current()
	if s.ID.IsZero() {
		return sendStatus(x, "ScavengeGetCurrentResultDto", []outline.Field{scavengeIDField(""), scavengeLinkField("")}, nil, nil)
	}
	known := []outline.Field{scavengeIDField(s.ID.String()), scavengeLinkField(scavengePrefix + s.ID.String())}
	more := slices.Concat(progressFields(&s), []outline.Field{outline.Time("started", s.Started)}, requestFields(&s))
	return sendStatus(x, "ScavengeGetCurrentResultDto", known, more, s.Point)
}

// Last answers with the run that was started last, whether it has ended or not.
func (r *ScavengeHandlers) Last(_ context.Context, x *request.Request) error {
	s := r.Scavenges.Last()
	link := ""
	var more []outline.Field
	if !s.ID.IsZero() {
		link = scavengePrefix + s.ID.String()
		begun := []outline.Field{outline.Reason(s.Error), outline.Time("started", s.Started), outline.Time("ended", s.Ended)}
		more = slices.Concat(begun, progressFields(&s), requestFields(&s))
	}
	known := []outline.Field{scavengeIDField(s.ID.String()), scavengeLinkField(link), outline.Text("scavengeResult", string(s.Result))}
	return sendStatus(x, "ScavengeGetLastResultDto", known, more, s.Point)
}

func scavengeIDField(id string) outline.Field { return outline.Text("scavengeId", id) }

func scavengeLinkField(link string) outline.Field { return outline.Text("scavengeLink", link) }

// progressFields are the progress of a run and its results so far.
func progressFields(s *scavenge.Status) []outline.Field {
	return []outline.Field{
		outline.Text("phase", string(s.Phase)),
		outline.Int("done", s.Done),
		outline.Int("total", s.Total),
		outline.Text("unit", s.Unit),
		outline.Int("bytesSaved", s.Saved),
		outline.Int("eventsRemoved", s.Removed),
		outline.Int("chunksExecuted", int64(s.Executed)),
		outline.Int("chunksSkipped", int64(s.Skipped)),
		outline.Int("chunksMerged", int64(s.Merged)),
	}
}

// requestFields say how a run runs. The threshold of the scavenge point takes the
// place of the one that was asked for.
func requestFields(s *scavenge.Status) []outline.Field {
	threshold := s.Request.Threshold
	if s.Point != nil {
		threshold = s.Point.Threshold
	}
	return []outline.Field{
		outline.Bool("resumed", s.Resumed),
		outline.Int("threads", int64(min(s.Request.Threads, scavenge.MaxThreads))),
		outline.Int("threshold", int64(threshold)),
		outline.Int("throttlePercent", int64(s.Request.ThrottlePercent)),
	}
}

func pointFields(p *scavenge.Point) []outline.Field {
	return []outline.Field{
		outline.Int("number", p.Number),
		outline.Int("position", p.Position),
		outline.Text("effectiveNow", p.EffectiveNow.UTC().Format(outline.TickTime)),
		outline.Int("threshold", int64(p.Threshold)),
	}
}

// sendStatus answers with the status of a run. Clients parse the text that EventStoreDB sends, so
// that text stands alone on the first line. When there is no run there is no more, and no point.
func sendStatus(x *request.Request, root string, known, more []outline.Field, point *scavenge.Point) error {
	if x.Media.Form == media.FormText {
		b := outline.AppendText(x.Out[:0], known...)
		for _, f := range more {
			b = outline.AppendText(append(b, '\n'), f)
		}
		if point != nil {
			b = fmt.Appendf(b, "\nPoint: %d, ", point.Number)
			b = outline.AppendText(b, pointFields(point)[1:]...)
		}
		return x.SendOut(b)
	}
	o := x.NewOutline()
	o.Root(root, func() {
		o.Leaves(known...)
		o.Leaves(more...)
		switch {
		case point != nil:
			o.Object("point", func() { o.Leaves(pointFields(point)...) })
		case len(more) > 0 && !o.IsXML:
			o.Leaves(outline.Null("point"))
		}
	})
	return x.SendOut(o.B)
}

const (
	// defaultTop and maxTop are how many streams an estimate names.
	defaultTop = 20
	maxTop     = 1000

	fullThrottle = 100 // percent
)

// scavengeOptions reads the options of a scavenge from the query.
type scavengeOptions struct {
	scavenge.Request
	dryRun bool
	top    int
}

// parseScavenge reads the parameters in the order of the contract. The chunk to
// start from is checked and has no meaning: a run knows what is left to do. Of
// several values of one parameter the first counts; others are not looked at.
func parseScavenge(raw string) (o scavengeOptions, err error) {
	judge := func(ok bool, wrong string) {
		if !ok && err == nil {
			err = problem.Bad(wrong)
		}
	}
	integer := func(name string, absent, least, most int, wrong string) int {
		n, ok := args.Int(raw, name, absent, least, most)
		judge(ok, name+" must be "+wrong)
		return n
	}
	boolean := func(name string) bool {
		value, ok := args.Bool(raw, name)
		judge(ok, name+" must be a boolean")
		return value
	}
	integer("startFromChunk", 0, 0, math.MaxInt32, "a positive integer")
	o.Threads = integer("threads", 1, 1, math.MaxInt32, "a 1 or above")
	o.Threshold = integer("threshold", 0, math.MinInt32, math.MaxInt32, "an integer")
	o.ThrottlePercent = integer("throttlePercent", fullThrottle, 1, fullThrottle, "between 1 and 100 inclusive")
	judge(o.Threads <= 1 || o.ThrottlePercent == fullThrottle, "throttlePercent must be 100 for a multi-threaded scavenge")
	o.SyncOnly, o.dryRun = boolean("syncOnly"), boolean("dryRun")
	o.top = integer("top", defaultTop, 1, maxTop, "between 1 and 1000 inclusive")
	return o, err
}
