package streams

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"time"

	"github.com/annalsdb/annals/api"
	"github.com/annalsdb/annals/catchup"
	"github.com/annalsdb/annals/event"
	"github.com/annalsdb/annals/http/atom"
	"github.com/annalsdb/annals/http/caching"
	"github.com/annalsdb/annals/http/leader"
	"github.com/annalsdb/annals/http/media"
	"github.com/annalsdb/annals/http/request"
	"github.com/annalsdb/annals/internal/clock"
	"github.com/annalsdb/annals/internal/logkey"
)

// A live tail is an answer that does not end: first it has the events of the log, then new ones as
// they are written. Nothing is queued for a client. Its own goroutine reads a page of the log,
// writes as fast as the client takes it, and waits at the end until the log is longer. A slow
// client reads the log later.
const (
	livePage = 256 // events of a page
	// bytes of data and metadata of a page; what is beyond is read event by event
	livePayload = 128 << 10
	livePart    = 32 << 10 // text that is sent before more is written
	liveBuffer  = 4 << 10  // is kept of it by a tail that waits
	liveTick    = time.Second
	// A tail rests so many times as long as it worked, for each of the others, so that all of them
	// leave the processors to writers, and once more for every liveCrowd others; but no longer than
	// liveRest.
	liveManners = 4
	liveCrowd   = 128
	liveRest    = 4 * time.Second
	liveSilence = 15 * time.Second

	// Old events that a filter looks through are a load that no answer shows.
	liveScanRate = 64 << 20 // bytes a second, of each filter
)

// Values of headers of a live tail.
var (
	liveContentType = []string{media.Live}
	liveUnbuffered  = []string{"no"}
)

// tail is one live tail.
type tail struct {
	room *Handlers
	x    *request.Request
	q    liveQuery
	w    *http.ResponseController

	// Seen is from the beginning what ids are made of: what comes before the first one read.
	catchup.Cursor
	toldDeleted bool // the stream is soft-deleted, and the client knows
	state       liveState
	isOver      bool // what is said last was said

	worked    time.Duration // for the last page
	rested    time.Time     // since when
	begun     bool          // the status was sent
	sent      int64
	scanned   int64  // events looked at
	told      int64  // of them those of which the client knows
	unscan    func() // gives back the share of a filter that looks at old events; nil: it does not
	scanBegan time.Time
	scanBytes int64
	alone     int64     // bytes claimed for an event that is not sent yet
	heard     time.Time // when something was sent
	ticked    time.Time
}

type liveState uint8

const (
	liveOpening liveState = iota // reads what is there
	liveBehind                   // was at the end and reads the log again
	liveAtEnd
)

var errLiveGone = errors.New("the client has gone")

// Live answers with a live tail.
func (s *Handlers) Live(_ context.Context, x *request.Request) error {
	q, err := liveArguments(x, nil)
	if err != nil {
		return err
	}
	return s.serveTail(x, q)
}

// QueryLive answers with a live tail of what the parameters of the request find.
func (s *Handlers) QueryLive(_ context.Context, x *request.Request) error {
	found, err := queryArguments(x.R.URL.RawQuery)
	if err != nil {
		return err
	}
	q, err := liveArguments(x, &found)
	if err != nil {
		return err
	}
	return s.serveTail(x, q)
}

func (s *Handlers) serveTail(x *request.Request, q liveQuery) error {
	ctx, err := leader.Reads(x, q.leader)
	if err != nil {
		return err
	}
	release, err := x.Caller.Share(api.Tail)
	if err != nil {
		return err
	}
	defer release()
	s.tails.Add(1)
	defer s.tails.Add(-1)
	x.IsLive = true
	if q.query != nil && x.Route.Stream != event.IndexStream {
		x.Atom().Index = x.Route.Stream
	}
	x.Out = x.Out[:0]
	at := catchup.Cursor{Store: s.Store, Stream: x.Route.Stream, All: q.all, Query: q.query, Backward: q.backward, Seen: -1, Last: -1}
	t := &tail{Cursor: at, room: s, x: x, q: q, w: http.NewResponseController(x.W), heard: time.Now(), ticked: time.Now()}
	defer t.endScan()
	isThere, err := t.begin(ctx)
	if err != nil {
		return err
	}
	if !isThere {
		x.Send(http.StatusNoContent, nil)
		return nil
	}
	err = t.run()
	switch {
	case err == nil || errors.Is(err, errLiveGone):
		return nil
	case t.begun:
		// Only a broken connection tells the client that this is not the end.
		x.Node.Logger.Warn("a live tail ended", "path", x.R.URL.Path, logkey.Error, err)
		panic(http.ErrAbortHandler)
	}
	return err
}

// begin finds where the tail begins. There is nothing to read when it is false, ever.
func (t *tail) begin(ctx context.Context) (isThere bool, err error) {
	q, store := &t.q, t.room.Store
	var end int64
	if q.all {
		end = store.LogEnd()
	} else {
		info, err := store.StreamInfo(ctx, t.x.Route.Stream)
		switch {
		case err != nil:
			return false, err
		case info.HardDeleted:
			return false, event.ErrStreamDeleted
		}
		end, t.Last = info.Last+1, info.Last
		t.toldDeleted = info.Last >= 0 && info.Metadata.SoftDeleted()
	}
	switch q.from.kind {
	case placeStart:
	case placeNumber:
		if t.Next = q.from.number; q.resumed && !q.all {
			t.Next++
		} else if q.resumed {
			t.After = true
		}
	case placeTime:
		if t.Next, err = t.since(ctx, q.from.number); err != nil {
			return false, err
		}
	default:
		// A client that has not received an event yet resumes after the last record.
		if t.Next = end; q.query != nil {
			t.Seen = end - 1
		} else if q.all && end > 0 {
			page, err := store.ReadAll(ctx, event.AllRead{From: end, Backward: true, Count: 1, MaxScan: 1, MaxPayload: 1})
			if err != nil {
				return false, err
			}
			t.Seen = page.Last
		}
	}
	if q.backward {
		if err := t.turn(ctx, end); err != nil {
			return false, err
		}
		least := int64(0) // of Next
		if q.to.kind == placeNumber {
			least = q.to.number
		}
		if q.all {
			least++ // What is read ends at Next.
		}
		return t.Next >= least, nil
	}
	if !q.all {
		t.Seen = t.Next - 1
	}
	if q.isFiltered() && t.Next < end {
		if t.unscan, err = t.x.Caller.Share(api.Scan); err != nil {
			return false, err
		}
		t.scanBegan = time.Now()
	}
	switch q.to.kind {
	case placeNumber:
		return t.Next < q.to.number || t.Next == q.to.number && !t.After, nil
	case placeEnd:
		return t.Next < end, nil
	}
	return true, nil
}

// since returns where to start so that no event before a time is read.
func (t *tail) since(ctx context.Context, when int64) (int64, error) {
	if t.q.all {
		return t.room.Store.PositionAt(ctx, when)
	}
	return numberSince(ctx, t.room.Store, t.x.Route.Stream, when)
}

// turn converts the start of a forward tail into the start of a backward one. In a stream that is
// the same number; in the log it is the position after the event.
func (t *tail) turn(ctx context.Context, end int64) (err error) {
	q := &t.q
	switch {
	case q.from.kind == placeStart && q.all:
		t.Next, err = t.endOf(ctx, 0)
	case q.from.kind == placeStart:
	case q.from.kind == placeTime:
		if t.Next, err = t.since(ctx, q.from.number+1); !q.all {
			t.Next--
		}
	case q.from.kind != placeNumber:
		if !q.all {
			t.Next = end - 1
		}
	case q.resumed && !q.all:
		t.Next -= 2 // It was made the one above.
	case q.resumed: // Backward the log is read from where an event ends.
		t.After = false
	case q.all:
		t.Next, err = t.endOf(ctx, t.Next)
	}
	if !q.all {
		t.Next = min(t.Next, end-1)
	}
	return err
}

// endOf returns where the record at a position ends.
func (t *tail) endOf(ctx context.Context, position int64) (int64, error) {
	if t.q.query != nil {
		return below(position), nil
	}
	page, err := t.room.Store.ReadAll(ctx, event.AllRead{From: position, Count: 1, MaxScan: 1, MaxPayload: 1})
	if errors.Is(err, event.ErrBadPosition) {
		err = invalidPosition(string(atom.AppendPosition(nil, position)))
	}
	return page.Next, err
}

// run sends old events and then new ones, until the tail ends.
func (t *tail) run() error {
	ctx := t.x.R.Context()
	for {
		if err := t.rest(ctx); err != nil {
			return err
		}
		if t.x.Caller.Check() != nil {
			t.over("denied", "")
			return t.flush()
		}
		begun := time.Now()
		more, err := t.read(ctx)
		if err != nil {
			return err
		}
		if !t.isOver && time.Since(t.ticked) >= liveTick {
			t.tick()
		}
		if !more && !t.isOver {
			t.arrive()
		}
		if t.isOver {
			return t.flush()
		}
		if err := t.flush(); err != nil {
			return err
		}
		t.rested = time.Now()
		t.worked = t.rested.Sub(begun)
		if t.x.R.Method == http.MethodHead {
			return nil
		}
		if more {
			if err := t.goOn(ctx); err != nil {
				return err
			}
			continue
		}
		if err := t.wait(ctx); err != nil {
			return err
		}
	}
}

// write writes an event.
func (t *tail) write(e *event.Resolved, at int64) error {
	b := append(t.x.Out, "id: "...)
	b = t.q.appendPlace(b, at)
	b = append(b, "\ndata: "...)
	b = t.x.Atom().AppendLive(b, e, t.q.level, t.q.maxData)
	t.x.Out = append(b, "\n\n"...)
	t.told = t.scanned
	if t.sent++; t.sent == t.q.limit {
		t.over("end", "limit")
	}
	if len(t.x.Out) < livePart {
		return nil
	}
	return t.flush()
}

// sentAlone gives back the claim of an event that was read alone.
func (t *tail) sentAlone() {
	t.x.Claim.Shrink(t.alone)
	t.alone = 0
}

// say writes something else.
func (t *tail) say(what, data string) {
	t.x.Out = fmt.Appendf(t.x.Out, "event: %s\ndata: %s\n\n", what, data)
}

// over ends the tail with its last message.
func (t *tail) over(what, reason string) {
	t.isOver = true
	switch {
	case reason == "":
		t.say(what, "{}")
	case t.q.isFiltered():
		t.say(what, fmt.Sprintf(`{"reason":%q,"scanned":%d}`, reason, t.scanned))
	default:
		t.say(what, fmt.Sprintf(`{"reason":%q}`, reason))
	}
}

// arrive is for a tail that has read all there is.
func (t *tail) arrive() {
	t.endScan()
	if t.q.to.kind == placeEnd {
		t.over("end", "to")
	} else if t.state != liveAtEnd {
		t.state = liveAtEnd
		// The id lets a client that has not received an event yet resume from here.
		if at := t.at(); at >= 0 {
			t.x.Out = append(t.q.appendPlace(append(t.x.Out, "id: "...), at), '\n')
		}
		t.say("live", "{}")
	}
}

// goOn is for a tail that reads on at once: it may have to wait for its turn, or to slow down.
func (t *tail) goOn(ctx context.Context) error {
	if t.state == liveAtEnd {
		t.state = liveBehind
		t.say("behind", "{}")
		if t.q.isFiltered() && t.unscan == nil {
			if err := t.awaitScan(ctx); err != nil {
				return err
			}
		}
	}
	if t.x.Node.Draining.Err() != nil {
		return t.shutdown()
	}
	if t.unscan == nil {
		return nil
	}
	ahead := time.Duration(t.scanBytes)*time.Second/liveScanRate - time.Since(t.scanBegan)
	if ahead < 10*time.Millisecond {
		return nil
	}
	if clock.Sleep(ctx, min(ahead, liveTick)) != nil {
		return errLiveGone
	}
	return nil
}

// at is how far the tail has looked, as ids have it; below 0 where there is nothing yet.
func (t *tail) at() int64 {
	if t.q.backward && !t.q.all {
		return t.Next + 1
	}
	return t.Seen
}

// rest waits until it is the tail's turn again: the more tails there are, and the more it did, the
// later.
func (t *tail) rest(ctx context.Context) error {
	others := int(t.room.tails.Load()) - 1
	left := min(t.worked*time.Duration(others*(liveManners+others/liveCrowd)), liveRest) - time.Since(t.rested)
	if left <= 0 {
		return nil
	}
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	defer context.AfterFunc(t.x.Node.Draining, cancel)()
	_ = clock.Sleep(ctx, left) // What ends it shows below.
	if t.x.R.Context().Err() != nil {
		return errLiveGone
	}
	return nil
}

// awaitScan waits for the share of a filter that looks at old events. Without one it returns when
// the node stops.
func (t *tail) awaitScan(ctx context.Context) (err error) {
	waiting, cancel := context.WithCancel(ctx)
	defer cancel()
	defer context.AfterFunc(t.x.Node.Draining, cancel)()
	t.unscan, err = t.x.Node.Shares.Wait(waiting, api.Scan, t.x.Caller.Who, t.x.R.RemoteAddr)
	switch {
	case err == nil:
		t.scanBegan, t.scanBytes = time.Now(), 0
	case ctx.Err() != nil:
		return errLiveGone
	}
	return nil
}

// endScan gives the share of a filter that looks at old events back.
func (t *tail) endScan() {
	if t.unscan != nil {
		t.unscan()
		t.unscan = nil
	}
}

// wait returns when there may be more, or something is to be said.
func (t *tail) wait(parent context.Context) error {
	ctx, cancel := context.WithTimeout(parent, liveTick)
	defer cancel()
	defer context.AfterFunc(t.x.Node.Draining, cancel)()
	err := t.Wait(ctx, t.room.Store)
	switch {
	case parent.Err() != nil:
		return errLiveGone
	case t.x.Node.Draining.Err() != nil || errors.Is(err, event.ErrClosed):
		return t.shutdown()
	case err != nil && ctx.Err() == nil && !errors.Is(err, event.ErrStreamDeleted):
		// Not ready: look again in a while.
		if clock.Sleep(ctx, liveTick) == nil || parent.Err() == nil {
			return nil
		}
		return errLiveGone
	}
	return nil
}

// tick is for what time brings, a second after the last one.
func (t *tail) tick() {
	t.ticked = time.Now()
	quiet := time.Since(t.heard)
	switch {
	case len(t.x.Out) > 0:
	case t.q.to.kind == placeTime && !t.q.backward && t.state == liveAtEnd && t.x.Node.Now().UnixNano() > t.q.to.number:
		t.over("end", "to")
	case t.scanned > t.told && quiet >= liveTick:
		t.told = t.scanned
		at := string(t.q.appendPlace(nil, t.at()))
		data := `{"eventNumber":%s,"scanned":%d}`
		if t.q.all && t.q.query == nil {
			data = `{"position":"%s","scanned":%d}`
		}
		t.x.Out = fmt.Appendf(t.x.Out, "event: progress\nid: %s\ndata: "+data+"\n\n", at, at, t.scanned)
	case quiet >= liveSilence:
		t.x.Out = append(t.x.Out, ":\n\n"...)
	}
}

// shutdown ends the tail because the node stops.
func (t *tail) shutdown() error {
	t.over("end", "shutdown")
	if err := t.flush(); err != nil {
		return err
	}
	return errLiveGone
}

// flush sends what there is. The client must take something now and then.
func (t *tail) flush() error {
	x := t.x
	out := x.Out
	if !t.begun {
		t.begun = true
		h := x.W.Header()
		h[request.KeyContentType], h[caching.KeyControl], h["X-Accel-Buffering"] = liveContentType, caching.Nothing, liveUnbuffered
		x.Origin.Vary(h)
		x.W.WriteHeader(http.StatusOK)
		out = append([]byte("retry: 2000\n\n"), out...)
	}
	x.Out = x.Out[:0]
	if len(out) == 0 || x.R.Method == http.MethodHead {
		return nil
	}
	defer t.sentAlone()
	if more := int64(len(out)) - livePart - t.alone; more > 0 {
		if x.Claim.Grow(x.R.Context(), more) != nil {
			return errLiveGone // The client reconnects and resumes from here.
		}
		defer x.Claim.Shrink(more)
	}
	if !t.isOver && x.Caller.Check() != nil { // It may have waited for memory.
		return errLiveGone
	}
	// A client that takes nothing is given up by its connection.
	if _, err := x.W.Write(out); err != nil {
		x.NotTaken(err)
		return errLiveGone
	}
	if err := t.w.Flush(); err != nil {
		x.NotTaken(err)
		return errLiveGone
	}
	t.heard = time.Now()
	if cap(x.Out) > liveBuffer {
		x.Out = nil // There may be hundreds that wait.
	}
	return nil
}
