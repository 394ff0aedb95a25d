package subscription

import (
	"context"
	"encoding/json"
	"strconv"
	"time"

	"github.com/annalsdb/annals/event"
	"github.com/annalsdb/annals/internal/logkey"
)

const (
	parkTries    = 5
	parkBatch    = 100       // messages parked with one write
	parkBytes    = 256 << 10 // the data of such a write, unless one message is larger
	parkLinkSize = 64 << 10  // a larger link is parked as a link to itself
)

// parkedMetadata is stored with a parked message. Other versions read it, but for how often it was
// tried again, which they do not know: do not change.
type parkedMetadata struct {
	Added   string `json:"added"`
	Reason  string `json:"reason"`
	Number  int64  `json:"subscriptionEventNumber"`
	Retries *int64 `json:"retryCount,omitempty"`
}

// givenUp are the messages that are to be parked, in the order in which that was decided. Each is
// in the state parking and in no other list by its place until the write that parks it has a
// result, so that it holds the checkpoint back. There is one such write at a time.
type givenUp struct {
	list
	isWriting bool // the messages of the write are the first of the list
}

// add has a message parked that is in no list by its place.
func (p *givenUp) add(m *message, reason string) {
	m.state, m.reason = parking, &reason
	p.pushBack(m)
}

// write returns the messages to be parked with the next write; none: it is not time for one.
func (p *givenUp) write() (batch []*message) {
	if p.isWriting {
		return nil
	}
	size := 0
	for m := p.head; m != nil && len(batch) < parkBatch; m = p.next(m) {
		if size += len(parkedData(m)); size > parkBytes && len(batch) > 0 {
			break
		}
		batch = append(batch, m)
	}
	p.isWriting = len(batch) > 0
	return batch
}

// park writes messages that are to be parked.
func (g *group) park(batch []*message, w *event.Write) {
	err := g.streams.park(w, g.metrics.failed.Inc)
	if g.ctx.Err() != nil {
		return
	}
	g.troubles.note(troubleParking, err)
	if err == nil {
		g.metrics.parked.Add(uint64(len(batch)))
		g.counters.parked.Add(uint64(len(batch)))
	}
	g.apply(func(c *core, now time.Time) { c.parked(batch, err == nil, now) })
	if err != nil {
		g.logger.Warn("messages could not be parked and are handed out again", "messages", len(batch), logkey.Error, err)
	}
}

// parkedEvents returns the events that park messages. Their ids are made for this write and its
// repetitions: see DESIGN.md.
func parkedEvents(batch []*message, now time.Time) []event.Proposed {
	all := make([]event.Proposed, len(batch))
	added := now.UTC().Format("2006-01-02T15:04:05.0000000Z07:00")
	for i, m := range batch {
		retries := int64(m.retries)
		metadata, err := json.Marshal(parkedMetadata{Added: added, Reason: *m.reason, Number: subscribedNumber(m), Retries: &retries})
		if err != nil {
			panic(err) // Texts and numbers always have a form in JSON.
		}
		all[i] = event.Proposed{ID: newID(), Type: event.TypeLink, Data: parkedData(m), Metadata: metadata}
	}
	return all
}

// parkedData is a link to the event that was delivered.
func parkedData(m *message) []byte {
	e := m.event
	if e.Link == event.LinkDead && !e.Bare && len(e.Data) <= parkLinkSize {
		return e.Data
	}
	of := e.Event()
	return append(strconv.AppendInt(nil, of.Number, 10), "@"+of.Stream...)
}

// subscribedNumber returns the number that a message had in the subscribed stream.
func subscribedNumber(m *message) int64 {
	if !m.replayed {
		return m.number
	}
	var was parkedMetadata
	if json.Unmarshal(m.event.Metadata, &was) != nil {
		return m.event.TargetNumber
	}
	return was.Number
}

// oldestParked returns when the oldest parked message was parked.
func (g *group) oldestParked(ctx context.Context) (at time.Time, count int64) {
	count, oldest := g.desk.count(ctx)
	if count == 0 {
		return at, 0
	}
	g.mu.Lock()
	if g.counters.oldestParked == oldest && !g.counters.oldestParkedAt.IsZero() {
		at = g.counters.oldestParkedAt
		g.mu.Unlock()
		return at, count
	}
	g.mu.Unlock()
	page, err := g.store.ReadStream(ctx, event.StreamRead{Stream: g.ParkedStream(), From: oldest, Count: 1})
	if err != nil || len(page.Events) == 0 {
		return at, count // Unknown for now; the count stands.
	}
	at = page.Events[0].When()
	g.mu.Lock()
	g.counters.oldestParked, g.counters.oldestParkedAt = oldest, at
	g.mu.Unlock()
	return at, count
}
