package torture

import (
	"cmp"
	"encoding/json"
	"fmt"
	"io"
	"maps"
	"math/rand/v2"
	"net/http"
	"net/http/httptest"
	"net/http/httptrace"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/annalsdb/annals/client"
	"github.com/annalsdb/annals/event"
	"github.com/annalsdb/annals/internal/check"
	"github.com/annalsdb/annals/internal/clock"
)

// Promises that a fake breaks.
const (
	breakNothing = "nothing is broken"
	breakSkip    = "events are skipped"
	breakForget  = "messages to be retried are forgotten"
	breakPark    = "messages to be parked are forgotten"
	breakAhead   = "checkpoints do not wait for answers"
	breakEnd     = "a checkpoint lies behind the stream"
	breakList    = "groups are not listed"
	breakTwice   = "messages are given to two"
	breakPhantom = "messages are invented"
	breakTitle   = "messages show another event"
	breakRetries = "there is no limit of retries"
	breakStuck   = "a group is never live"
	breakDelay   = "messages come before they are due"
	breakOrder   = "messages pass a delayed one"
	breakPause   = "a paused group hands out messages"
	breakReset   = "a reset moves nothing"
	breakForward = "messages are forwarded twice"
)

// fakeGroups is a server with streams and groups in memory, which breaks one promise.
type fakeGroups struct {
	t       *testing.T
	promise string

	mu     sync.Mutex
	log    []entry
	known  map[string]bool    // ids
	events map[string][]entry // by stream
	groups map[string]*fakeGroup
	made   int // ids of the server's own events
}

type fakeMessage struct {
	id       string
	number   int64 // in the stream of the group
	title    string
	retries  int
	deadline time.Time
	due      time.Time // not to be handed out before
	replayed bool
}

type fakeGroup struct {
	stream, name string
	settings     groupSettings
	next         int64
	retry        []*fakeMessage
	out          map[string]*fakeMessage
	checkpoint   int64
	isPaused     bool
	parked       []*fakeMessage
	again        *fakeMessage // to be given to another
}

// fakeWire carries requests to a server, of which one node leads and the other
// redirects to it. Requests and answers take a moment, and may be given up on the way.
type fakeWire struct {
	leader http.Handler

	mu  sync.Mutex
	rng *rand.Rand
}

func newFakeWire(leader http.Handler) *fakeWire {
	return &fakeWire{leader: leader, rng: rand.New(rand.NewPCG(1, 1))}
}

func (f *fakeWire) delay() time.Duration {
	f.mu.Lock()
	defer f.mu.Unlock()
	return time.Duration(f.rng.IntN(8_000)) * time.Microsecond
}

func (f *fakeWire) RoundTrip(r *http.Request) (*http.Response, error) {
	httptrace.ContextClientTrace(r.Context()).GotConn(httptrace.GotConnInfo{})
	if clock.Sleep(r.Context(), f.delay()) != nil {
		return nil, r.Context().Err()
	}
	w := httptest.NewRecorder()
	if r.URL.Host == "follower" {
		w.Header().Set("Location", "http://leader"+r.URL.RequestURI())
		w.WriteHeader(http.StatusTemporaryRedirect)
	} else {
		f.leader.ServeHTTP(w, r)
	}
	if clock.Sleep(r.Context(), f.delay()) != nil {
		return nil, r.Context().Err()
	}
	return w.Result(), nil
}

func newFakeGroups(t *testing.T, promise string) *fakeGroups {
	return &fakeGroups{
		t: t, promise: promise, known: map[string]bool{}, events: map[string][]entry{}, groups: map[string]*fakeGroup{},
	}
}

func (f *fakeGroups) add(e entry) entry {
	e.Number = int64(len(f.events[e.Stream]))
	e.Time = then
	f.events[e.Stream] = append(f.events[e.Stream], e)
	f.log = append(f.log, e)
	return e
}

// own adds an event of the server.
func (f *fakeGroups) own(stream, kind, data, meta string) entry {
	f.made++
	id := event.ID{15: byte(f.made), 14: byte(f.made >> 8), 13: byte(f.made >> 16), 0: 1}
	return f.add(entry{ID: id.String(), Type: kind, Stream: stream, Data: data, Metadata: meta})
}

func (f *fakeGroups) handler() http.Handler {
	mux := http.NewServeMux()
	mux.HandleFunc("POST /streams/{stream}", f.write)
	mux.HandleFunc("GET /streams/{stream}/head/backward/1", f.head)
	mux.HandleFunc("POST /subscriptions/restart", func(w http.ResponseWriter, _ *http.Request) {
		for _, g := range f.groups {
			g.load()
		}
	})
	group := func(pattern string, do func(*fakeGroup, http.ResponseWriter, *http.Request)) {
		method, path, _ := strings.Cut(pattern, " ")
		mux.HandleFunc(method+" /subscriptions/{stream}/{group}"+path, func(w http.ResponseWriter, r *http.Request) {
			g := f.groups[r.PathValue("stream")+"::"+r.PathValue("group")]
			if g == nil {
				w.WriteHeader(http.StatusNotFound)
				return
			}
			f.expire(g)
			do(g, w, r)
			f.writeCheckpoint(g)
		})
	}
	mux.HandleFunc("PUT /subscriptions/{stream}/{group}", func(w http.ResponseWriter, r *http.Request) {
		g := &fakeGroup{stream: r.PathValue("stream"), name: r.PathValue("group"), checkpoint: -1}
		f.must(json.NewDecoder(r.Body).Decode(&g.settings))
		g.load()
		f.groups[g.stream+"::"+g.name] = g
		w.WriteHeader(http.StatusCreated)
	})
	group("POST ", func(g *fakeGroup, _ http.ResponseWriter, _ *http.Request) { g.load() })
	group("POST /ack", f.ack)
	group("POST /ack/{id}", f.ack)
	group("POST /nack", f.nack)
	group("POST /nack/{id}", f.nack)
	group("POST /replayParked", f.replay)
	group("POST /pause", func(g *fakeGroup, _ http.ResponseWriter, _ *http.Request) { g.isPaused = f.promise != breakPause })
	group("POST /resume", func(g *fakeGroup, _ http.ResponseWriter, _ *http.Request) { g.isPaused = false })
	group("POST /reset", f.reset)
	group("POST /parked/forward", f.forward)
	group("GET /info", f.info)
	mux.HandleFunc("GET /subscriptions", func(w http.ResponseWriter, _ *http.Request) {
		var list []groupInfo
		for _, g := range f.groups {
			if f.promise != breakList {
				list = append(list, groupInfo{Stream: g.stream})
			}
		}
		f.must(json.NewEncoder(w).Encode(list))
	})
	group("GET /{count}", f.read)
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		f.mu.Lock()
		defer f.mu.Unlock()
		mux.ServeHTTP(w, r)
	})
}

func (f *fakeGroups) must(err error) {
	check.NoError(f.t, err)
}

func (f *fakeGroups) write(w http.ResponseWriter, r *http.Request) {
	stream := r.PathValue("stream")
	type written struct {
		ID   string          `json:"eventId"`
		Type string          `json:"eventType"`
		Data json.RawMessage `json:"data"`
	}
	var list []written
	if id := r.Header.Get(client.HeaderEventID); id != "" {
		data, err := io.ReadAll(r.Body)
		f.must(err)
		list = []written{{id, r.Header.Get(client.HeaderEventType), data}}
	} else {
		f.must(json.NewDecoder(r.Body).Decode(&list))
	}
	first := int64(len(f.events[stream]))
	for _, one := range list {
		if f.known[one.ID] {
			f.t.Errorf("%s was sent again, though nothing gets lost", one.ID)
		}
		f.known[one.ID] = true
		data := string(one.Data)
		if one.Type == linkType {
			f.must(json.Unmarshal(one.Data, &data))
		}
		f.add(entry{ID: one.ID, Type: one.Type, Stream: stream, Data: data})
	}
	w.Header().Set("Location", "http://"+r.URL.Host+"/streams/"+stream+"/"+strconv.FormatInt(first, 10))
	w.WriteHeader(http.StatusCreated)
}

func (f *fakeGroups) head(w http.ResponseWriter, r *http.Request) {
	all := f.events[r.PathValue("stream")]
	if len(all) == 0 {
		w.WriteHeader(http.StatusNotFound)
		return
	}
	f.must(json.NewEncoder(w).Encode(page{Entries: all[len(all)-1:]}))
}

// load begins again after the checkpoint.
func (g *fakeGroup) load() {
	g.next, g.retry, g.out, g.again = g.checkpoint+1, nil, map[string]*fakeMessage{}, nil
}

// expire puts back messages that were not answered in time.
func (f *fakeGroups) expire(g *fakeGroup) {
	for _, id := range slices.Sorted(maps.Keys(g.out)) {
		if m := g.out[id]; time.Now().After(m.deadline) {
			f.putBack(g, m, g.settings.delay(m.retries+1))
		}
	}
}

func (f *fakeGroups) putBack(g *fakeGroup, m *fakeMessage, delay time.Duration) {
	delete(g.out, m.id)
	switch {
	case m.retries >= g.settings.MaxRetries && f.promise != breakRetries:
		f.park(g, m)
	case f.promise == breakForget:
	default:
		m.retries++
		if m.due = time.Now().Add(delay); f.promise == breakDelay {
			m.due = time.Now()
		}
		g.retry = append(g.retry, m)
	}
}

func (f *fakeGroups) park(g *fakeGroup, m *fakeMessage) {
	if f.promise == breakPark {
		return
	}
	meta := "{}"
	if m.number > 0 {
		meta = fmt.Sprintf(`{"added":"then","reason":"why not","subscriptionEventNumber":%d}`, m.number)
	}
	of := group{stream: g.stream, name: g.name}
	e := f.own(of.parkedStream(), linkType, m.title, meta)
	g.parked = append(g.parked, &fakeMessage{id: e.ID, number: m.number, title: m.title, replayed: true})
}

// writeCheckpoint writes how far everything is answered.
func (f *fakeGroups) writeCheckpoint(g *fakeGroup) {
	at := g.next - 1
	waiting := g.retry
	if f.promise != breakAhead {
		waiting = slices.Concat(waiting, slices.Collect(maps.Values(g.out)))
	}
	for _, m := range waiting {
		if !m.replayed {
			at = min(at, m.number-1)
		}
	}
	if at-g.checkpoint > g.settings.uncheckpointed() {
		g.checkpoint = at
		if f.promise == breakEnd {
			at += 1000
		}
		of := group{stream: g.stream, name: g.name}
		f.own(of.checkpointStream(), "SubscriptionCheckpoint", fmt.Sprintf(`"%d"`, at), "")
	}
}

func (f *fakeGroups) read(g *fakeGroup, w http.ResponseWriter, r *http.Request) {
	count, err := strconv.Atoi(r.PathValue("count"))
	f.must(err)
	base := "http://" + r.URL.Host + "/subscriptions/" + g.stream + "/" + g.name
	var ids []string
	entries := []map[string]any{}
	for range count {
		m := f.nextMessage(g)
		if m == nil {
			break
		}
		m.deadline = time.Now().Add(g.settings.timeout())
		g.out[m.id] = m
		ids = append(ids, m.id)
		title := m.title
		if f.promise == breakTitle {
			title = "0@" + g.stream + "x"
		}
		entries = append(entries, map[string]any{"title": title, "retryCount": m.retries, "links": []map[string]string{
			{"uri": base + "/ack/" + m.id, "relation": "ack"}, {"uri": base + "/nack/" + m.id, "relation": "nack"},
		}})
	}
	slices.Reverse(entries)
	feed := map[string]any{"entries": entries}
	if len(ids) > 0 {
		feed["links"] = []map[string]string{{"uri": base + "/ack?ids=" + strings.Join(ids, ","), "relation": "ackAll"}}
	}
	_ = json.NewEncoder(w).Encode(feed) // The client may be gone.
}

func (f *fakeGroups) nextMessage(g *fakeGroup) *fakeMessage {
	if g.isPaused {
		return nil
	}
	if m := g.again; m != nil {
		g.again = nil
		return m
	}
	slices.SortStableFunc(g.retry, func(a, b *fakeMessage) int { return cmp.Compare(a.number, b.number) })
	for i, m := range g.retry {
		if !time.Now().Before(m.due) {
			g.retry = slices.Delete(g.retry, i, i+1)
			return m
		}
		if !m.replayed && (&group{stream: g.stream, settings: g.settings}).isOrdered() && f.promise != breakOrder {
			return nil
		}
	}
	all := f.events[g.stream]
	if g.next >= int64(len(all)) {
		return nil
	}
	e := all[g.next]
	m := &fakeMessage{id: e.ID, number: g.next, title: fmt.Sprintf("%d@%s", g.next, g.stream)}
	if g.settings.ResolveLinks && e.Type == linkType && strings.HasSuffix(e.Data, queueStream) {
		m.title = e.Data
	}
	g.next++
	special := g.next%20 == 7
	switch {
	case special && f.promise == breakSkip:
		return f.nextMessage(g)
	case special && f.promise == breakTwice:
		other := *m
		g.again = &other
	case special && f.promise == breakPhantom:
		m.id = strings.Repeat("ab", 16)
		m.id = m.id[:8] + "-" + m.id[8:12] + "-" + m.id[12:16] + "-" + m.id[16:20] + "-" + m.id[20:]
		m.replayed = true
		g.next-- // The event itself comes next.
		if _, there := g.out[m.id]; there {
			g.next++
			m.id, m.replayed = e.ID, false
		}
	}
	return m
}

// answered lists the outstanding messages that a request is about.
func (g *fakeGroup) answered(r *http.Request) []*fakeMessage {
	var list []*fakeMessage
	for _, id := range append(strings.Split(r.FormValue("ids"), ","), r.PathValue("id")) {
		if m := g.out[id]; m != nil {
			list = append(list, m)
		}
	}
	return list
}

func (f *fakeGroups) ack(g *fakeGroup, w http.ResponseWriter, r *http.Request) {
	for _, m := range g.answered(r) {
		delete(g.out, m.id)
	}
	w.WriteHeader(http.StatusAccepted)
}

func (f *fakeGroups) nack(g *fakeGroup, w http.ResponseWriter, r *http.Request) {
	for _, m := range g.answered(r) {
		delete(g.out, m.id)
		switch r.FormValue("action") {
		case "skip", "stop":
		case "park":
			f.park(g, m)
		default:
			delay := g.settings.delay(m.retries + 1)
			if text := r.FormValue("after"); text != "" {
				var err error
				delay, err = time.ParseDuration(text)
				f.must(err)
			}
			f.putBack(g, m, delay)
		}
	}
}

func (f *fakeGroups) replay(g *fakeGroup, _ http.ResponseWriter, _ *http.Request) {
	g.retry = append(g.retry, g.parked...)
	g.parked = nil
}

func (f *fakeGroups) reset(g *fakeGroup, _ http.ResponseWriter, r *http.Request) {
	to, err := strconv.ParseInt(r.FormValue("to"), 10, 64)
	f.must(err)
	if f.promise == breakReset {
		return
	}
	g.checkpoint = to - 1
	g.load()
	of := group{stream: g.stream, name: g.name}
	f.own(of.checkpointStream(), "SubscriptionCheckpoint", fmt.Sprintf(`"%d"`, g.checkpoint), "")
}

func (f *fakeGroups) forward(g *fakeGroup, _ http.ResponseWriter, r *http.Request) {
	for _, m := range g.parked {
		e := f.own(r.FormValue("to"), linkType, m.title, "{}")
		if f.promise == breakForward {
			f.add(e)
		}
	}
	g.parked = nil
}

func (f *fakeGroups) info(g *fakeGroup, w http.ResponseWriter, _ *http.Request) {
	i := groupInfo{Stream: g.stream, Status: "Live", RetryBuffer: int64(len(g.retry)), Outstanding: int64(len(g.out))}
	if g.checkpoint >= 0 {
		text := strconv.FormatInt(g.checkpoint, 10)
		i.Checkpoint = &text
	}
	if f.promise == breakStuck {
		i.Status = "Behind"
	}
	f.must(json.NewEncoder(w).Encode(i))
}
