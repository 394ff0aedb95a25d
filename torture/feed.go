package torture

import (
	"errors"
	"fmt"
	"hash/fnv"
	"slices"
	"strconv"
	"strings"

	"github.com/annalsdb/annals/client"
	"github.com/annalsdb/annals/event"
)

// A page is what the client of Go programs makes of it, with the newest entry first.
type (
	page  = client.Page
	entry = client.Recorded
)

// oldestFirst turns the entries round.
func oldestFirst(p *page) []entry {
	turned := slices.Clone(p.Entries)
	slices.Reverse(turned)
	return turned
}

var errNoPosition = errors.New("the page has no link with a position")

// nextPosition is the commit position in the link to the page that follows in time.
func nextPosition(p *page) (int64, error) {
	uri := p.Links.Of("previous")
	for part := range strings.SplitSeq(uri, "/") {
		if len(part) != 32 {
			continue
		}
		if n, err := strconv.ParseUint(part[:16], 16, 63); err == nil {
			return int64(n), nil
		}
	}
	return 0, fmt.Errorf("%w: %q", errNoPosition, uri)
}

// Paths of readings. embed=body is what gives ids and data.

func allForward(position int64, count int) string {
	return fmt.Sprintf("/streams/%%24all/%016X%016X/forward/%d?embed=body", position, position, count)
}

func allBackward(position int64, count int) string {
	return fmt.Sprintf("/streams/%%24all/%016X%016X/backward/%d?embed=body", position, position, count)
}

const allHead = "/streams/%24all/head/backward/1?embed=body"

func streamForward(stream string, from int64, count int) string {
	return fmt.Sprintf("/streams/%s/%d/forward/%d?embed=body", stream, from, count)
}

func streamHead(stream string, count int) string {
	return fmt.Sprintf("/streams/%s/head/backward/%d?embed=body", stream, count)
}

// fact is what a reader saw of one event.
type fact struct {
	ref    ref
	number int64
	// after is the position after the event, taken from a full page that ended there; -1 if none
	// did.
	after  int64
	stream *stream
	shape  uint32 // hash of type and time
}

// read turns an entry into a fact. An event of ours with data that is not its own
// is reported, and is not taken for that event.
func (b *book) read(e *entry, from place) fact {
	f := fact{number: e.Number, after: -1, stream: b.stream(e.Stream)}
	h := fnv.New32a()
	// A hash never fails to write.
	_, _ = h.Write([]byte(e.Type + "\x00" + e.Time.String()))
	f.shape = h.Sum32()
	if id, err := event.ParseID(e.ID); err == nil {
		if r, ours := b.ids.ref(id); ours {
			if b.ids.shows(e, r) || e.Redacted && e.Type == b.ids.eventType(r) && b.mayBeBlank(r) {
				f.ref = r
				return f
			}
			b.find.add(kindData, "%s: %d@%s with id %s has type %q and the data %.200q, want type %q and %.200q",
				from, e.Number, e.Stream, e.ID, e.Type, e.Data, b.ids.eventType(r), b.ids.data(r))
		}
	}
	if e.ID == "" {
		b.find.add(kindAnswer, "%s: %q is shown without an event id", from, e.Title)
	}
	f.ref = foreignRef(e.ID, e.Type, e.Data)
	return f
}
