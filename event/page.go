package event

import (
	"bytes"
	"errors"
	"strconv"
)

// Head as the start of a backward read means the newest event; End as a
// position means the end of the log.
const (
	Head int64 = -1
	End  int64 = -1
)

// LinkState says what became of a link when a read resolved it.
type LinkState uint8

const (
	NotLink      LinkState = iota // an ordinary event, or links were not resolved
	LinkResolved                  // Target holds the event
	LinkDead                      // the target is gone, never was, or is not for the reader
)

// Resolved is an event of a page. When the event is a link that was resolved,
// Record is the link itself.
type Resolved struct {
	Record
	Link   LinkState
	Target *Record // LinkResolved only

	// What the link names, for both resolved and dead links.
	TargetStream string
	TargetNumber int64
}

// Event returns the event the reader is after: the target of a resolved link, else the record
// itself.
func (r *Resolved) Event() *Record {
	if r.Target != nil {
		return r.Target
	}
	return &r.Record
}

// IsBare reports whether the payload of the event or of its target was left out.
func (r *Resolved) IsBare() bool { return r.Bare || r.Target != nil && r.Target.Bare }

// PayloadBytes is how many bytes of data and metadata the event and its target have, here or not.
func (r *Resolved) PayloadBytes() int {
	n := r.Record.PayloadBytes()
	if r.Target != nil {
		n += r.Target.PayloadBytes()
	}
	return n
}

// Complete returns the event with what was left out of it, and leaves the event itself as it is, so
// that the payload goes when the copy does. A link whose target is gone meanwhile is dead. The
// errors are those of read: ErrEventNotFound says that the event itself is gone.
func (r *Resolved) Complete(read func(*Record) error) (*Resolved, error) {
	if !r.IsBare() {
		return r, nil
	}
	full := *r
	if full.Bare {
		if err := read(&full.Record); err != nil {
			return nil, err
		}
	}
	if full.Target != nil && full.Target.Bare {
		target := *full.Target
		full.Target = &target
		switch err := read(&target); {
		case errors.Is(err, ErrEventNotFound):
			full.Link, full.Target = LinkDead, nil
		case err != nil:
			return nil, err
		}
	}
	return &full, nil
}

// ParseLink splits the data of a link event, <number>@<stream>, at the first "@".
// It is not ok when that cannot be the name of a stream because it is too long.
func ParseLink(data []byte) (number int64, stream string, ok bool) {
	at := bytes.IndexByte(data, '@')
	if at <= 0 || len(data)-at-1 > len(metaPrefix)+MaxNameBytes {
		return 0, "", false
	}
	n, err := strconv.ParseInt(string(data[:at]), 10, 64)
	if err != nil || n < 0 {
		return 0, "", false
	}
	return n, string(data[at+1:]), true
}

// StreamPage is the outcome of reading one stream in one direction.
type StreamPage struct {
	Stream string
	From   int64 // first number asked for; the last event's when the head was asked for
	Last   int64 // number of the last event ever written, -1 when there is none
	Min    int64 // lowest number not hidden by $tb and $maxCount
	End    bool  // nothing more in this direction (by the rules of feeds)
	// Next is where the next read in this direction begins: past what is hidden, and after Last
	// when there is nothing more; backward it is -1 then.
	Next     int64
	Events   []Resolved // in the order read
	Metadata Metadata   // of the stream
}

// SetNext sets Next of a page that is otherwise as it was read.
func (p *StreamPage) SetNext(r *StreamRead) {
	after, before := p.From+r.Span(), p.From-r.Span()
	if n := len(p.Events); n > 0 && n == r.Count {
		after, before = p.Events[n-1].Number+1, p.Events[n-1].Number-1
	}
	switch {
	case r.Backward && p.End:
		p.Next = -1
	case r.Backward:
		p.Next = max(-1, before)
	case p.End && len(p.Events) == 0, after < p.From: // All the rest is hidden, or there is none.
		p.Next = max(p.From, p.Last+1)
	default:
		// A stream can be truncated beyond its end: what is appended later is not to be passed
		// over.
		p.Next = max(p.From, min(max(after, p.Min), p.Last+1))
	}
}

// Room is memory that pages are read into one after the other, which spares allocating it for
// each. What a page read with a Room holds is valid until the next one is read with
// it, its strings included: nothing of it may be kept. The zero value is ready.
type Room struct {
	Events []Resolved
	Block  []byte // texts and payloads of the events
}

// AllPage is the outcome of reading the log in one direction.
type AllPage struct {
	From int64 // where reading began
	Next int64 // where the next read in this direction begins
	// records looked at: those of Events, those the filter did not choose, those that are never
	// shown; without those that were passed over
	Looked int
	Spared int64      // bytes of log passed over, since AllRead.Names says that nothing is there
	Last   int64      // position of the last of them; -1: none
	LogEnd int64      // end of the log when the page was read
	More   bool       // reading stopped before the end (the start) of the log
	Failed error      // of the filter, at the record that the next page begins with
	Events []Resolved // in the order read
}
