package subscription

import (
	"github.com/annalsdb/annals/event"
	"github.com/annalsdb/annals/internal/jsontext"
)

const buckets = 1024

// pinned gives messages with the same text to the same consumer for as long as
// that is there. Texts are hashed into buckets, which consumers own.
type pinned struct {
	hashed
	c *core
	// Both are nil while no consumer exists: most groups have readers that pull.
	owner    []*consumer // by bucket; nil: the bucket was not needed yet
	inFlight []int       // by bucket
}

func (p *pinned) choose(m *message) (to *consumer, full bool) {
	c := p.owner[p.bucket(m)]
	if c == nil {
		for _, other := range p.c.consumers {
			if c == nil || other.buckets < c.buckets {
				c = other
			}
		}
		p.give(int(m.bucket), c)
	}
	if c.free() {
		return c, false
	}
	for _, other := range p.c.consumers {
		if other.free() {
			return nil, false
		}
	}
	return nil, true
}

func (p *pinned) give(bucket int, c *consumer) {
	if was := p.owner[bucket]; was != nil {
		was.buckets--
	}
	if p.owner[bucket] = c; c != nil {
		c.buckets++
	}
}

// joined moves buckets to a new consumer until the others have no more than an
// even share, first those that have no messages in flight.
func (p *pinned) joined(c *consumer) {
	if p.owner == nil {
		p.owner, p.inFlight = make([]*consumer, buckets), make([]int, buckets)
	}
	owned := 0
	for _, other := range p.c.consumers {
		owned += other.buckets
	}
	share := owned / len(p.c.consumers)
	for _, busy := range []bool{false, true} {
		for b, was := range p.owner {
			if c.buckets >= share {
				return
			}
			if was != nil && was != c && was.buckets > share && (p.inFlight[b] > 0) == busy {
				p.give(b, c)
			}
		}
	}
}

func (p *pinned) left(c *consumer) {
	for b := range p.owner {
		if p.owner[b] == c {
			p.give(b, nil)
		}
	}
	if len(p.c.consumers) == 0 {
		p.owner, p.inFlight = nil, nil
	}
}

func (p *pinned) handed(m *message)   { p.inFlight[m.bucket]++ }
func (p *pinned) returned(m *message) { p.inFlight[m.bucket]-- }

// sourceStream returns the stream that an event came from: that of the target of
// a link, also where the link was not resolved.
func sourceStream(e *event.Resolved) string {
	of := e.Event()
	if of.Type == event.TypeLink {
		if _, stream, ok := event.ParseLink(of.Data); ok {
			return stream
		}
	}
	return of.Stream
}

// correlation returns what a member of the metadata names as the cause of an event, else its source
// stream.
func correlation(e *event.Resolved, member string) string {
	if id, ok := jsontext.MemberText(e.Event().Metadata, member); ok {
		return id
	}
	return sourceStream(e)
}
