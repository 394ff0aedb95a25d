package httpapi

import (
	"context"
	"strconv"
	"time"

	"github.com/annalsdb/annals/admin/scavenge"
	"github.com/annalsdb/annals/event"
	"github.com/annalsdb/annals/internal/logkey"
)

const scavengePrefix = "/admin/scavenge/"

// startScavenge starts a run, or finds out what one would do.
func startScavenge(x *exchange) error {
	o, err := parseScavenge(x.r.URL.RawQuery)
	if err != nil {
		return err
	}
	if o.dryRun {
		return estimateScavenge(x, o.EstimateOptions())
	}
	id, err := x.s.opts.Scavenges.Start(o.Request)
	if err != nil {
		return err
	}
	x.s.log.Info("scavenge asked for", logkey.Scavenge, id.String(), logkey.Login, printable(x.who.Login), logkey.Remote, x.r.RemoteAddr)
	awaitScavenge(x, id)
	return sendFields(x, "ScavengeResultDto", []field{scavengeIDField(id.String())})
}

// announcePatience bounds how long the answer to a start waits for its record.
const announcePatience = 2 * time.Second

// awaitScavenge waits until clients can read that a run has begun: what they ask for
// next is its stream. As long as nobody leads nothing is written, and the answer does not wait.
func awaitScavenge(x *exchange, id event.ID) {
	if !x.s.knowsLeader() {
		return
	}
	ctx, cancel := context.WithTimeout(x.r.Context(), announcePatience)
	defer cancel()
	x.s.opts.Scavenges.Announced(ctx, id)
}

// stopScavenge stops the run that the path names and answers when it has ended.
func stopScavenge(x *exchange) error {
	var id event.ID // of whichever runs
	if text := x.route.id; text != "" {
		var err error
		// A zero id in the path is no run's, and does not mean whichever runs either.
		if id, err = event.ParseID(text); err != nil || id.IsZero() {
			return problemNoScavenge
		}
	}
	ctx := x.reads()
	defer ctx.release()
	id, err := x.s.opts.Scavenges.Stop(ctx, id)
	if err != nil {
		return err
	}
	x.s.log.Info("scavenge stopped on demand", logkey.Scavenge, id.String(), logkey.Login, printable(x.who.Login), logkey.Remote, x.r.RemoteAddr)
	return sendID(x, "ScavengeResultDto", scavengeIDField(id.String()))
}

// currentScavenge answers with the run that is under way. When there is none the
// members that clients know are there, and empty.
func currentScavenge(x *exchange) error {
	s := x.s.opts.Scavenges.Current()
	d := statusDocument{root: "ScavengeGetCurrentResultDto", status: &s}
	if s.ID.IsZero() {
		d.known = []field{scavengeIDField(""), scavengeLinkField("")}
		return sendStatus(x, &d)
	}
	d.known = []field{scavengeIDField(s.ID.String()), scavengeLinkField(scavengePrefix + s.ID.String())}
	d.more = append(progressFields(&s), textField("started", "Started", s.Started.UTC().Format(tickTime)))
	d.more = append(d.more, requestFields(&s)...)
	return sendStatus(x, &d)
}

// lastScavenge answers with the run that was started last, whether it has ended or not.
func lastScavenge(x *exchange) error {
	s := x.s.opts.Scavenges.Last()
	d := statusDocument{root: "ScavengeGetLastResultDto", status: &s}
	link := ""
	if !s.ID.IsZero() {
		link = scavengePrefix + s.ID.String()
	}
	d.known = []field{scavengeIDField(s.ID.String()), scavengeLinkField(link), textField("scavengeResult", "ScavengeResult", string(s.Result))}
	if s.ID.IsZero() {
		return sendStatus(x, &d)
	}
	failure, ended := nullField("error", "Error"), nullField("ended", "Ended")
	if s.Error != "" {
		failure = textField("error", "Error", s.Error)
	}
	if !s.Ended.IsZero() {
		ended = textField("ended", "Ended", s.Ended.UTC().Format(tickTime))
	}
	d.more = append([]field{failure, textField("started", "Started", s.Started.UTC().Format(tickTime)), ended}, progressFields(&s)...)
	d.more = append(d.more, requestFields(&s)...)
	return sendStatus(x, &d)
}

func scavengeIDField(id string) field { return textField("scavengeId", "ScavengeId", id) }

func scavengeLinkField(link string) field { return textField("scavengeLink", "ScavengeLink", link) }

// progressFields say how far a run is and what it has done.
func progressFields(s *scavenge.Status) []field {
	return []field{
		textField("phase", "Phase", string(s.Phase)),
		intField("done", "Done", s.Done),
		intField("total", "Total", s.Total),
		textField("unit", "Unit", s.Unit),
		intField("bytesSaved", "BytesSaved", s.Saved),
		intField("eventsRemoved", "EventsRemoved", s.Removed),
		intField("chunksExecuted", "ChunksExecuted", int64(s.Executed)),
		intField("chunksSkipped", "ChunksSkipped", int64(s.Skipped)),
		intField("chunksMerged", "ChunksMerged", int64(s.Merged)),
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
		boolField("resumed", "Resumed", s.Resumed),
		intField("threads", "Threads", int64(min(s.Request.Threads, scavenge.MaxThreads))),
		intField("threshold", "Threshold", int64(threshold)),
		intField("throttlePercent", "ThrottlePercent", int64(s.Request.ThrottlePercent)),
	}
}

func pointFields(p *scavenge.Point) []field {
	return []field{
		intField("number", "Number", p.Number),
		intField("position", "Position", p.Position),
		textField("effectiveNow", "EffectiveNow", p.EffectiveNow.UTC().Format(tickTime)),
		intField("threshold", "Threshold", int64(p.Threshold)),
	}
}

// statusDocument is the status of a run. Clients parse the text that they know,
// hence it stands alone on the first line.
type statusDocument struct {
	root   string
	known  []field // what the reference has too
	more   []field // none when there is no run; nor is the point there then
	status *scavenge.Status
}

func sendStatus(x *exchange, d *statusDocument) error {
	switch x.media.form {
	case formJSON:
		x.out = d.appendJSON(x.out[:0])
	case formTextXML, formAppXML:
		x.out = d.appendXML(x.out[:0])
	default:
		x.out = d.appendText(x.out[:0])
	}
	return sendOut(x, x.out)
}

func (d *statusDocument) appendJSON(b []byte) []byte {
	b = append(b, "{\n"...)
	b = appendMembers(b, "  ", d.known)
	if len(d.more) > 0 {
		b = append(b, ",\n"...)
		b = appendMembers(b, "  ", d.more)
		b = append(b, ",\n  \"point\": "...)
		if p := d.status.Point; p == nil {
			b = append(b, "null"...)
		} else {
			b = append(b, "{\n"...)
			b = append(appendMembers(b, "    ", pointFields(p)), "\n  }"...)
		}
	}
	return append(b, "\n}"...)
}

func (d *statusDocument) appendXML(b []byte) []byte {
	b = append(b, xmlProlog+"<"+d.root+">"...)
	b = appendLeaves(b, d.known)
	b = appendLeaves(b, d.more)
	if p := d.status.Point; p != nil && len(d.more) > 0 {
		b = append(b, "<Point>"...)
		b = append(appendLeaves(b, pointFields(p)), "</Point>"...)
	}
	return append(b, "</"+d.root+">"...)
}

func (d *statusDocument) appendText(b []byte) []byte {
	b = appendTextFields(b, d.known)
	for i := range d.more {
		b = appendTextFields(append(b, '\n'), d.more[i:i+1])
	}
	if p := d.status.Point; p != nil && len(d.more) > 0 {
		b = append(b, "\nPoint: "...)
		b = strconv.AppendInt(b, p.Number, 10)
		b = append(b, ", "...)
		b = appendTextFields(b, pointFields(p)[1:])
	}
	return b
}

// appendTextFields appends fields as a line of text.
func appendTextFields(b []byte, fields []field) []byte {
	for i, f := range fields {
		if i > 0 {
			b = append(b, ", "...)
		}
		b = append(b, f.xml...)
		b = append(b, ": "...)
		b = append(b, f.value...)
	}
	return b
}

// appendRoot appends a document of XML with an element for each field.
func appendRoot(b []byte, root string, fields []field) []byte {
	b = append(b, xmlProlog+"<"+root+">"...)
	return append(appendLeaves(b, fields), "</"+root+">"...)
}
