package schedule

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"slices"
	"time"

	journal "github.com/annalsdb/annals/admin/record"
	"github.com/annalsdb/annals/admin/scavenge"
	"github.com/annalsdb/annals/event"
	"github.com/annalsdb/annals/internal/logkey"
)

// Stream is where the leader keeps how far rounds are, whole in each event. It, the type of these
// events and the names in them are stored: do not change. Events of other types are of earlier
// versions, and are passed over.
const (
	Stream     = "$scavengeSchedule"
	TypeRecord = "$scavengeScheduleState"
)

const (
	keptEvents = 1000 // $maxCount, for operators to read; the last event alone counts
	readPage   = 50
	writeTime  = 10 * time.Second // for one append; its outcome shows in the stream
)

// Results of turns beyond those of a scavenge, and of rounds.
const (
	TurnLost      = "Lost"      // the node was away for too long: others continued
	TurnWithdrawn = "Withdrawn" // the node has no schedule any more
	RoundComplete = "Completed" // every node that could has had its turn
	RoundAbandon  = "Abandoned" // no node was left to continue it, or none for long
)

// maxAttempts is how often a node takes its turn in a round: one that does not
// survive its scavenge, or is lost again and again, does not keep the others waiting for ever.
const maxAttempts = 5

// record is what a leader must know of the time before it led.
type record struct {
	Schedules map[string]time.Time `json:"schedules,omitempty"` // no due time before counts
	Through   time.Time            `json:"through,omitzero"`    // due times up to it are done
	Round     *round               `json:"round,omitempty"`     // that is running
	Last      *round               `json:"last,omitempty"`      // that ended last
}

type round struct {
	Due      time.Time        `json:"due"`
	Schedule string           `json:"schedule"`
	Started  time.Time        `json:"started"` // as the leader's clock said, like all times
	Touched  time.Time        `json:"touched"` // when it changed last
	Ended    time.Time        `json:"ended,omitzero"`
	Result   string           `json:"result,omitzero"`
	Turn     *turn            `json:"turn,omitempty"` // that is held
	Turns    []turn           `json:"turns,omitempty"`
	Attempts map[event.ID]int `json:"attempts,omitempty"`
}

type turn struct {
	Node     event.ID  `json:"node"`
	Endpoint string    `json:"endpoint"`
	Session  event.ID  `json:"session"`
	Taken    time.Time `json:"taken"`
	Attempt  int       `json:"attempt"`
	Ended    time.Time `json:"ended,omitzero"`
	Result   string    `json:"result,omitzero"` // once it ended, and what follows
	Scavenge event.ID  `json:"scavengeId,omitzero"`
	Error    string    `json:"error,omitzero"`
}

// clone returns a copy that may be changed.
func (r *record) clone() *record {
	c := *r
	if c.Schedules = maps.Clone(r.Schedules); c.Schedules == nil {
		c.Schedules = make(map[string]time.Time)
	}
	if r.Round != nil {
		now := *r.Round
		now.Turns = slices.Clone(now.Turns)
		if now.Attempts = maps.Clone(now.Attempts); now.Attempts == nil {
			now.Attempts = make(map[event.ID]int)
		}
		c.Round = &now
	}
	return &c
}

// done reports whether a node has had its turn. A turn that was lost does not
// count, if the node was not lost too often.
func (r *round) done(node event.ID) bool {
	return r.Attempts[node] >= maxAttempts && (r.Turn == nil || r.Turn.Node != node) ||
		slices.ContainsFunc(r.Turns, func(t turn) bool { return t.Node == node && t.Result != TurnLost })
}

// succeeded is the number of turns that ended well.
func (r *round) succeeded() (n int) {
	for i := range r.Turns {
		if r.Turns[i].Result == string(scavenge.ResultSuccess) {
			n++
		}
	}
	return n
}

// errStreamGone says that there can be no rounds any more.
var errStreamGone = fmt.Errorf("the stream %s was deleted for good: %w", Stream, event.ErrStreamDeleted)

// load reads the record, if the stream has changed. An operator who deletes the stream has all that
// is in it forgotten.
func (s *Scheduler) load(ctx context.Context) error {
	info, err := s.opts.Store.StreamInfo(ctx, Stream)
	switch {
	case err != nil:
		return fmt.Errorf("look at %s: %w", Stream, err)
	case info.HardDeleted:
		return errStreamGone
	case info.Last == s.version && s.info.Metadata.TruncateBefore == info.Metadata.TruncateBefore:
		s.info = info
		return nil
	}
	r := &record{}
	page, err := s.opts.Store.ReadStream(ctx, event.StreamRead{Stream: Stream, From: event.Head, Count: readPage, Backward: true})
	if err != nil && !errors.Is(err, event.ErrStreamNotFound) && !errors.Is(err, event.ErrStreamDeleted) {
		return fmt.Errorf("read %s: %w", Stream, err)
	}
	for i := range page.Events {
		e := &page.Events[i].Record
		if e.Type != TypeRecord {
			continue
		}
		var found record
		if json.Unmarshal(e.Data, &found) == nil {
			r = &found
			break
		}
		s.logger.Warn("an event of the schedule of scavenges is invalid and ignored", logkey.Number, e.Number, logkey.Type, e.Type)
	}
	s.info, s.version, s.record = info, info.Last, r
	return nil
}

// save appends a record after all that the stream has. Nil means that it is written, or that the
// leader after this one was faster: both show in the stream, which is then awaited.
func (s *Scheduler) save(ctx context.Context, st *step) error {
	ctx, cancel := context.WithTimeout(ctx, writeTime)
	defer cancel()
	m := &s.info.Metadata
	var conflict *event.WrongExpectedVersion
	if s.info.MetaLast < 0 || !m.SoftDeleted() && (m.MaxCount < keptEvents || m.MaxAge != 0) {
		document := []byte(fmt.Sprintf(`{"$maxCount":%d,%s}`, keptEvents, journal.ACL))
		if m.TruncateBefore > 0 {
			document = event.WithTruncateBefore(document, m.TruncateBefore)
		}
		_, err := s.opts.Store.WriteOwn(ctx, journal.Append(event.MetaStreamOf(Stream), s.info.MetaLast, journal.Proposed(event.TypeMetadata, document)))
		if err != nil && !errors.As(err, &conflict) {
			return fmt.Errorf("set the metadata of %s: %w", Stream, err)
		}
	}
	written, err := s.opts.Store.WriteOwn(ctx, journal.Append(Stream, s.version, journal.Proposed(TypeRecord, journal.Encode(st.next))))
	switch {
	case errors.As(err, &conflict):
		s.metrics.lost.Inc()
	case err != nil:
		return fmt.Errorf("append to %s: %w", Stream, err)
	default:
		s.written = written.Last
		if st.say != "" {
			s.logger.Log(st.level, st.say, st.about...)
		}
	}
	// Not to see it in time is not an error: this node lags, and looks again.
	_ = s.opts.Store.WaitStream(ctx, Stream, s.version)
	return nil
}
