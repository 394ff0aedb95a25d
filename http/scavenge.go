package httpapi

import (
	"context"
	"fmt"
	"slices"
	"time"

	"github.com/annalsdb/annals/admin/scavenge"
	"github.com/annalsdb/annals/api"
	"github.com/annalsdb/annals/event"
	"github.com/annalsdb/annals/internal/logkey"
)

const scavengePrefix = "/admin/scavenge/"

// startScavenge starts a run, or estimates one.
func (r *scavengeHandlers) startScavenge(_ context.Context, x *exchange) error {
	o, err := parseScavenge(x.r.URL.RawQuery)
	if err != nil {
		return err
	}
	if o.dryRun {
		return r.estimateScavenge(x, scavenge.EstimateOptions{Threshold: o.Threshold, Top: o.top})
	}
	id, err := r.scavenges.Start(o.Request)
	if err != nil {
		return err
	}
	x.node.log.Info("scavenge asked for", logkey.Scavenge, id.String(), logkey.Login, api.Printable(x.who.Login), logkey.Remote, x.r.RemoteAddr)
	r.awaitScavenge(x, id)
	return sendFields(x, "ScavengeResultDto", scavengeIDField(id.String()))
}

// announcePatience bounds how long the answer to a start waits for its record.
const announcePatience = 2 * time.Second

// awaitScavenge waits until clients can read that a run has begun: what they ask for next is its
// stream. Without a leader nothing can be written, and the answer does not wait.
func (r *scavengeHandlers) awaitScavenge(x *exchange, id event.ID) {
	if !x.node.knowsLeader() {
		return
	}
	ctx, cancel := context.WithTimeout(x.r.Context(), announcePatience)
	defer cancel()
	r.scavenges.Announced(ctx, id)
}

// stopScavenge stops the run that the path names and answers when it has ended.
func (r *scavengeHandlers) stopScavenge(ctx context.Context, x *exchange) error {
	var id event.ID // of whichever runs
	if text := x.route.id; text != "" {
		var err error
		// A zero id in the path belongs to no run. It does not mean the running one either.
		if id, err = event.ParseID(text); err != nil || id.IsZero() {
			return problemNoScavenge
		}
	}
	ctx = x.reads()
	id, err := r.scavenges.Stop(ctx, id)
	if err != nil {
		return err
	}
	x.node.log.Info("scavenge stopped on demand", logkey.Scavenge, id.String(), logkey.Login, api.Printable(x.who.Login), logkey.Remote, x.r.RemoteAddr)
	return sendID(x, "ScavengeResultDto", scavengeIDField(id.String()))
}

// currentScavenge answers with the running scavenge. When there is none the members that clients
// know are there, and empty.
func (r *scavengeHandlers) currentScavenge(_ context.Context, x *exchange) error {
	s := r.scavenges.Current()
	if s.ID.IsZero() {
		return sendStatus(x, "ScavengeGetCurrentResultDto", []field{scavengeIDField(""), scavengeLinkField("")}, nil, nil)
	}
	known := []field{scavengeIDField(s.ID.String()), scavengeLinkField(scavengePrefix + s.ID.String())}
	more := slices.Concat(progressFields(&s), []field{timeField("started", s.Started)}, requestFields(&s))
	return sendStatus(x, "ScavengeGetCurrentResultDto", known, more, s.Point)
}

// lastScavenge answers with the run that was started last, whether it has ended or not.
func (r *scavengeHandlers) lastScavenge(_ context.Context, x *exchange) error {
	s := r.scavenges.Last()
	link := ""
	var more []field
	if !s.ID.IsZero() {
		link = scavengePrefix + s.ID.String()
		begun := []field{reasonField(s.Error), timeField("started", s.Started), timeField("ended", s.Ended)}
		more = slices.Concat(begun, progressFields(&s), requestFields(&s))
	}
	known := []field{scavengeIDField(s.ID.String()), scavengeLinkField(link), textField("scavengeResult", string(s.Result))}
	return sendStatus(x, "ScavengeGetLastResultDto", known, more, s.Point)
}

func scavengeIDField(id string) field { return textField("scavengeId", id) }

func scavengeLinkField(link string) field { return textField("scavengeLink", link) }

// progressFields are the progress of a run and its results so far.
func progressFields(s *scavenge.Status) []field {
	return []field{
		textField("phase", string(s.Phase)),
		intField("done", s.Done),
		intField("total", s.Total),
		textField("unit", s.Unit),
		intField("bytesSaved", s.Saved),
		intField("eventsRemoved", s.Removed),
		intField("chunksExecuted", int64(s.Executed)),
		intField("chunksSkipped", int64(s.Skipped)),
		intField("chunksMerged", int64(s.Merged)),
	}
}

// requestFields say how a run runs. The threshold of the scavenge point takes the
// place of the one that was asked for.
func requestFields(s *scavenge.Status) []field {
	threshold := s.Request.Threshold
	if s.Point != nil {
		threshold = s.Point.Threshold
	}
	return []field{
		boolField("resumed", s.Resumed),
		intField("threads", int64(min(s.Request.Threads, scavenge.MaxThreads))),
		intField("threshold", int64(threshold)),
		intField("throttlePercent", int64(s.Request.ThrottlePercent)),
	}
}

func pointFields(p *scavenge.Point) []field {
	return []field{
		intField("number", p.Number),
		intField("position", p.Position),
		textField("effectiveNow", p.EffectiveNow.UTC().Format(tickTime)),
		intField("threshold", int64(p.Threshold)),
	}
}

// sendStatus answers with the status of a run. Clients parse the text that EventStoreDB sends, so
// that text stands alone on the first line. When there is no run there is no more, and no point.
func sendStatus(x *exchange, root string, known, more []field, point *scavenge.Point) error {
	if x.media.form == formText {
		b := appendTextFields(x.out[:0], known...)
		for _, f := range more {
			b = appendTextFields(append(b, '\n'), f)
		}
		if point != nil {
			b = fmt.Appendf(b, "\nPoint: %d, ", point.Number)
			b = appendTextFields(b, pointFields(point)[1:]...)
		}
		return sendOut(x, b)
	}
	o := newOutline(x)
	o.root(root, func() {
		o.leaves(known...)
		o.leaves(more...)
		switch {
		case point != nil:
			o.object("point", func() { o.leaves(pointFields(point)...) })
		case len(more) > 0 && !o.isXML:
			o.leaves(nullField("point"))
		}
	})
	return sendOut(x, o.b)
}
