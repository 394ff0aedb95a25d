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

// giveUp takes a message that is in no list by its place out of the group, to be
// parked. The caller holds mu.
func (g *group) giveUp(m *message, reason string) {
	m.state, m.givenUp = parking, &givenUp{reason: reason, id: newID()}
	g.parking.pushBack(m)
}

// park writes the messages that are to be parked, in the order of these decisions. Until it is
// written a message holds the checkpoint back.
func (g *group) park() {
	for {
		g.mu.Lock()
		var batch []*message
		size := 0
		for m := g.parking.head; m != nil && len(batch) < parkBatch; m = g.parking.next(m) {
			if size += len(parkedData(m)); size > parkBytes && len(batch) > 0 {
				break
			}
			batch = append(batch, m)
		}
		if len(batch) == 0 || g.closed {
			g.tasks.parking = false
			g.mu.Unlock()
			return
		}
		w := event.Write{Stream: g.ParkedStream(), ExpectedVersion: event.AnyVersion, Events: parkedEvents(batch, g.now())}
		g.mu.Unlock()

		err := g.streams.park(&w, g.metrics.failed.Inc)
		if g.ctx.Err() != nil {
			return
		}
		g.troubles.note(troubleParking, err)
		g.mu.Lock()
		for _, m := range batch {
			g.parking.remove(m)
			if err != nil {
				g.wait(m) // It comes again, and is parked again if it fails again.
				continue
			}
			g.forget(m)
			g.metrics.parked.Inc()
			g.statistics.parked.Add(1)
		}
		g.settle()
		g.mu.Unlock()
		if err != nil {
			g.logger.Warn("messages could not be parked and are handed out again", "messages", len(batch), logkey.Error, err)
		}
	}
}

func parkedEvents(batch []*message, now time.Time) []event.Proposed {
	all := make([]event.Proposed, len(batch))
	added := now.UTC().Format("2006-01-02T15:04:05.0000000Z07:00")
	for i, m := range batch {
		retries := int64(m.retries)
		metadata, err := json.Marshal(parkedMetadata{Added: added, Reason: m.givenUp.reason, Number: subscribedNumber(m), Retries: &retries})
		if err != nil {
			panic(err) // Texts and numbers always have a form in JSON.
		}
		all[i] = event.Proposed{ID: m.givenUp.id, Type: event.TypeLink, Data: parkedData(m), Metadata: metadata}
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
	if g.statistics.oldestParked == oldest && !g.statistics.oldestParkedAt.IsZero() {
		at = g.statistics.oldestParkedAt
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
	g.statistics.oldestParked, g.statistics.oldestParkedAt = oldest, at
	g.mu.Unlock()
	return at, count
}
