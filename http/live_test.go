package httpapi_test

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/annalsdb/annals/api"
	"github.com/annalsdb/annals/event"
	httpapi "github.com/annalsdb/annals/http"
	"github.com/annalsdb/annals/internal/check"
)

const eventStream = "text/event-stream"

// tailed is a live tail that runs. It is the writer of its own answer.
type tailed struct {
	n      *node
	header http.Header
	leave  context.CancelFunc
	done   chan struct{}

	mu     sync.Mutex // guards the fields below
	status int
	text   bytes.Buffer
	stuck  chan struct{} // when it is set, a Write waits for it
}

func (d *tailed) Header() http.Header { return d.header }
func (d *tailed) Flush()              {}

func (d *tailed) WriteHeader(status int) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.status = status
}

func (d *tailed) Write(b []byte) (int, error) {
	d.mu.Lock()
	stuck := d.stuck
	d.mu.Unlock()
	if stuck != nil {
		<-stuck
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.text.Write(b)
}

// tail begins a live tail and returns when it waits.
func (n *node) tail(path string, headers ...string) *tailed {
	return n.tailAs("admin", path, headers...)
}

func (n *node) tailAs(login, path string, headers ...string) *tailed {
	ctx, leave := context.WithCancel(n.t.Context())
	d := &tailed{n: n, header: http.Header{}, leave: leave, done: make(chan struct{})}
	r := httptest.NewRequestWithContext(ctx, "GET", base+path, nil)
	r.Header = with(append(headers, "Accept", eventStream)...)
	r.SetBasicAuth(login, "changeit")
	go func() {
		defer close(d.done)
		n.handler.ServeHTTP(d, r)
	}()
	synctest.Wait()
	return d
}

// says returns what came since the last time, in short: an event is its id and its type, others are
// what they are called.
func (d *tailed) says() string {
	d.n.t.Helper()
	synctest.Wait()
	d.mu.Lock()
	defer d.mu.Unlock()
	text := d.text.String()
	d.text.Reset()
	var out []string
	for message := range strings.SplitSeq(strings.TrimSuffix(text, "\n\n"), "\n\n") {
		var id, name, data string
		for line := range strings.Lines(message) {
			field, value, _ := strings.Cut(strings.TrimSuffix(line, "\n"), ":")
			switch value = strings.TrimPrefix(value, " "); field {
			case "id":
				id = strings.TrimLeft(value, "0")
				if id == "" {
					id = "0"
				}
				if len(value) == 32 {
					id = strings.TrimLeft(value[16:31], "0") + value[31:]
				}
			case "event":
				name = value
			case "data":
				data = value
			case "":
				name = "comment"
			}
		}
		switch {
		case message == "retry: 2000", message == "":
		case name == "" && id == "":
			d.n.t.Errorf("message %q", message)
		case name == "":
			var e struct{ Title, Position string }
			if err := json.Unmarshal([]byte(data), &e); err != nil || len(e.Position) != 32 {
				d.n.t.Errorf("data %q: %v", data, err)
			}
			out = append(out, id+"="+e.Title)
		case data == "{}" || data == "":
			out = append(out, name)
		default:
			out = append(out, name+" "+data)
		}
	}
	return strings.Join(out, ", ")
}

// ends waits until the answer has ended.
func (d *tailed) ends() {
	<-d.done
}

func (d *tailed) close() {
	d.leave()
	<-d.done
}

func TestLiveStream(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := newNode(t)
		n.filled("s", 3)
		d := n.tail("/streams/s")
		check.Equal(t, d.header.Get("Content-Type"), eventStream, "type")
		check.Equal(t, d.header.Get("Cache-Control")+d.header.Get("ETag"), "no-store", "cache")
		check.Equal(t, d.says(), "live", "from the end")
		n.put("s", `{}`, `{}`)
		n.put("t", `{}`)
		check.Equal(t, d.says(), "3=3@s, 4=4@s", "new")
		time.Sleep(16 * time.Second)
		check.Equal(t, d.says(), "comment", "silence")
		n.delete("s")
		time.Sleep(2 * time.Second)
		check.Equal(t, d.says(), "deleted", "soft deletion")
		n.put("s", `{}`)
		check.Equal(t, d.says(), "5=5@s", "goes on")
		n.delete("s", "ES-HardDelete", "true")
		check.Equal(t, d.says(), "gone", "hard deletion")
		d.ends()
		n.tail("/streams/s").is(410)
		later := n.tail("/streams/new?from=start")
		check.Equal(t, later.says(), "live", "not there")
		n.put("new", `{}`)
		check.Equal(t, later.says(), "0=0@new", "appears")
		n.put("$$cut", `{"$tb":4611686018427387904}`)
		n.put("cut", `{}`, `{}`)
		cut := n.tail("/streams/cut?from=start")
		check.Equal(t, cut.says(), "live", "truncated beyond its end")
		n.put("$$cut", `{}`)
		n.put("cut", `{}`)
		check.Equal(t, cut.says(), "2=2@cut", "no longer truncated")
		cut.close()
		n.server.Drain()
		check.Equal(t, later.says(), `end {"reason":"shutdown"}`, "shutdown")
		later.ends()
	})
}

func (d *tailed) is(status int) *tailed {
	d.n.t.Helper()
	synctest.Wait()
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.status != status {
		d.n.t.Errorf("status %d %s, want %d", d.status, d.text.String(), status)
	}
	return d
}

// What a tail of 5 events of s and 2 of t, the last of which is a link, sends before it waits or
// ends.
func TestLiveQueries(t *testing.T) {
	const all = "0=0@s, 64=1@s, C8=2@s, 12C=3@s, 190=4@s, 1F4=0@t"
	for _, c := range []struct{ name, path, lastID, want string }{
		{"start", "/streams/s?from=start", "", "0=0@s, 1=1@s, 2=2@s, 3=3@s, 4=4@s, live"},
		{"number", "/streams/s?from=3", "", "3=3@s, 4=4@s, live"},
		{"beyond", "/streams/s?from=9", "", "live"},
		{"time", "/streams/s?from=2024-02-03T10:11:15Z", "", "3=3@s, 4=4@s, live"},
		{"later time", "/streams/s?from=2030-01-01T00:00:00Z", "", "live"},
		{"to", "/streams/s?from=1&to=2", "", `1=1@s, 2=2@s, end {"reason":"to"}`},
		{"to the end", "/streams/s?from=3&to=end", "", `3=3@s, 4=4@s, end {"reason":"to"}`},
		{"to a time", "/streams/s?from=1&to=2024-02-03T10:11:14.5Z", "", `1=1@s, 2=2@s, end {"reason":"to"}`},
		{"limit", "/streams/s?from=1&limit=2", "", `1=1@s, 2=2@s, end {"reason":"limit"}`},
		{"resumed", "/streams/s?from=start", "2", "3=3@s, 4=4@s, live"},
		{"resumed, done", "/streams/s?to=4", "4", "204"},
		{"backward", "/streams/s?backward=true", "", `4=4@s, 3=3@s, 2=2@s, 1=1@s, 0=0@s, end {"reason":"start"}`},
		{"backward, bounds", "/streams/s?backward=true&from=3&to=2", "", `3=3@s, 2=2@s, end {"reason":"to"}`},
		{"backward, time", "/streams/s?backward=true&from=2024-02-03T10:11:14Z&limit=1", "", `1=1@s, end {"reason":"limit"}`},
		{"backward, resumed", "/streams/s?backward=true", "2", `1=1@s, 0=0@s, end {"reason":"start"}`},
		{"backward, done", "/streams/s?backward=true", "0", "204"},
		{"link", "/streams/t?from=1", "", "1=1@s, live"},
		{"link as it is", "/streams/t?from=1&resolve=false", "", "1=1@t, live"},
		{"types", "/streams/s?from=start&types=other,ev", "", "0=0@s, 1=1@s, 2=2@s, 3=3@s, 4=4@s, live"},
		{"expression", "/streams/s?from=start&types=/^x/", "", "live"},
		{"contains", "/streams/s?from=start&contains=%22n%22:3", "", "3=3@s, live"},
		{"id", "/streams/s?from=start&id=00000000-0000-4000-8000-000000000002", "", "1=1@s, live"},

		{"all", "/streams/$all?from=start", "", all + ", 258=1@t, live"},
		{"all, resolved", "/streams/$all?from=start&resolve=true", "", all + ", 258=1@s, live"},
		{"all, streams", "/streams/$all?from=start&streams=t", "", "1F4=0@t, 258=1@t, live"},
		{"all, system", "/streams/$all?from=start&streams=t&system=false", "", "1F4=0@t, live"},
		{"all, position", "/streams/$all?from=" + position(500), "", "1F4=0@t, 258=1@t, live"},
		{"all, time", "/streams/$all?from=2024-02-03T10:11:17Z", "", "1F4=0@t, 258=1@t, live"},
		{"all, to", "/streams/$all?from=start&to=" + position(100), "", `0=0@s, 64=1@s, end {"reason":"to"}`},
		{"all, resumed", "/streams/$all?from=start", position(500), "258=1@t, live"},
		{"all, backward", "/streams/$all?backward=true&limit=2", "", `258=1@t, 1F4=0@t, end {"reason":"limit"}`},
		{"all, backward from", "/streams/$all?backward=true&from=" + position(100), "", `64=1@s, 0=0@s, end {"reason":"start"}`},
		{"all, backward, resumed", "/streams/$all?backward=true", position(100), `0=0@s, end {"reason":"start"}`},
		{"all, backward, done", "/streams/$all?backward=true", position(0), "204"},
		{"all, to the end", "/streams/$all?from=" + position(600) + "&to=end", "", `258=1@t, end {"reason":"to"}`},
		{"all, nothing", "/streams/$all?to=end", "", "204"},

		{"bad from", "/streams/s?from=x", "", "400 'x' is not valid from"},
		{"position in a stream", "/streams/s?from=" + position(500), "", "400 '" + position(500) + "' is not valid from"},
		{"number in the log", "/streams/$all?to=5", "", "400 '5' is not valid to"},
		{"bad limit", "/streams/s?limit=0", "", "400 '0' is not valid limit"},
		{"bad types", "/streams/s?types=/(/", "", "400 '/(/' is not valid types"},
		{"long expression", "/streams/s?types=/" + strings.Repeat("a", 201) + "/", "", "400 '/" + strings.Repeat("a", 201) + "/' is not valid types"},
		{"streams of a stream", "/streams/s?streams=a", "", "400 'a' is not valid streams"},
		{"bad id", "/streams/s?id=5", "", "400 '5' is not valid id"},
		{"bad embed", "/streams/s?embed=pretty", "", "400 'pretty' is not valid embed"},
		{"backward to the end", "/streams/s?backward=true&to=end", "", "400 'end' is not valid to where backward is true"},
		{"bad last id", "/streams/s", "start", "400 Last-Event-ID header in wrong format."},
	} {
		t.Run(c.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				n := newNode(t)
				n.filled("s", 5)
				n.put("t", `{}`)
				n.batch("t", fmt.Sprintf(`[{"eventId":%q,"eventType":"$>","data":"1@s"}]`, n.id()))
				var headers []string
				if c.lastID != "" {
					headers = []string{"Last-Event-ID", c.lastID}
				}
				d := n.tail(c.path, headers...)
				got := ""
				if d.status == 200 {
					got = d.says()
				} else {
					got = strings.TrimSpace(fmt.Sprint(d.status, " ", d.text.String()))
				}
				check.Equal(t, got, c.want, "it sends")
				d.close()
			})
		})
	}
}

// What a scavenge removed between its page and its payload is left out.
func TestLiveScavenged(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := newNode(t)
		n.put("s", large(0, 10), large(1, 200<<10), large(2, 200<<10), large(3, 10))
		n.store.lose(event.ErrEventNotFound, "s", 1)
		d := n.tail("/streams/s?from=start")
		check.Equal(t, d.says(), "0=0@s, 2=2@s, 3=3@s, live", "a tail")
		d.close()
	})
}

// A client that reads slowly gets its events later. It loses none, and others do not wait for it.
func TestLiveSlow(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := newNode(t)
		slow, quick := n.tail("/streams/s"), n.tail("/streams/s")
		slow.says()
		quick.says()
		slow.stuck = make(chan struct{})
		var want []string
		for i := range 700 {
			n.put("s", `{}`)
			want = append(want, fmt.Sprintf("%d=%d@s", i, i))
			synctest.Wait()
		}
		check.Equal(t, quick.says(), strings.Join(want, ", "), "quick")
		slow.mu.Lock()
		stuck := slow.stuck
		slow.stuck = nil
		slow.mu.Unlock()
		close(stuck)
		got := strings.ReplaceAll(strings.ReplaceAll(slow.says(), "behind, ", ""), ", live", "")
		check.Equal(t, got, strings.Join(want, ", "), "slow")
		slow.close()
		quick.close()
	})
}

func TestLiveRights(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := newNode(t)
		n.filled("s", 1)
		d := n.tailAs("jane", "/streams/s?from=start")
		check.Equal(t, d.says(), "0=0@s, live", "allowed")
		n.meta("s", `{"$acl":{"$r":"$admins"}}`)
		time.Sleep(2 * time.Second)
		check.Equal(t, d.says(), "denied", "withdrawn")
		d.ends()
		n.tailAs("jane", "/streams/s").is(401)
	})
}

func TestLiveLimits(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := newNode(t, func(o *httpapi.Options) { o.Shares = api.NewShares(api.SharesOptions{Tails: 1}) })
		n.filled("s", 1)
		first := n.tail("/streams/s")
		full := n.tail("/streams/s").is(503)
		check.Equal(t, full.header.Get("Retry-After"), "5", "later")
		first.close()
		n.tail("/streams/s").is(200).close()
	})
}

// A filter that lets nothing pass says how far it has looked, and one resumes there.
func TestLiveProgress(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := newNode(t)
		n.filled("s", 2)
		d := n.tail("/streams/$all?from=start&types=none")
		check.Equal(t, d.says(), "live", "at once")
		time.Sleep(3 * time.Second)
		check.Equal(t, d.says(), `progress {"position":"`+position(100)+`","scanned":2}`, "progress")
		n.put("s", "{}")
		time.Sleep(3 * time.Second)
		check.Equal(t, d.says(), `progress {"position":"`+position(200)+`","scanned":3}`, "more")
		d.close()
		d = n.tail("/streams/$all", "Last-Event-ID", position(100))
		check.Equal(t, d.says(), "C8=2@s, live", "resumed")
		d.close()
	})
}

// A tail is sent to a client that asks for it by name, and cuts what is long.
func TestLiveEntry(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := newNode(t)
		n.put("s", `{"text":"äöü"}`)
		n.get("/streams/s", "*/*").is(t, 200).has(t, "Content-Type", "application/atom+xml; charset=utf-8")
		d := n.tail("/streams/s?from=start&maxData=11&limit=1")
		check.Equal(t, d.text.String(), "retry: 2000\n\nid: 0\ndata: "+`{"title":"0@s","id":"`+base+`/streams/s/0","updated":"2024-02-03T10:11:12.345678Z","summary":"event-type",`+
			`"eventId":"00000000-0000-4000-8000-000000000001","eventType":"event-type","eventNumber":0,"data":"{\"text\":\"ä","streamId":"s","isJson":true,`+
			`"isMetaData":false,"isLinkMetaData":false,"isRedacted":false,"positionEventNumber":0,"positionStreamId":"s","dataBytes":17,"position":"`+position(0)+"\"}\n\nevent: end\ndata: {\"reason\":\"limit\"}\n\n", "entry")
		d.ends()
		n.batch("t", fmt.Sprintf(`[{"eventId":%q,"eventType":"$>","data":"0@s"}]`, n.id()))
		d = n.tail("/streams/t?from=start&limit=1")
		_, link, _ := strings.Cut(d.text.String(), `"updated":"`)
		_, target, _ := strings.Cut(link, `"eventUpdated":"`)
		check.Equal(t, fmt.Sprintf("%.20s %.20s", link, target), "2024-02-03T10:11:13. 2024-02-03T10:11:12.", "times of a link and of its event")
		d.ends()
		d = n.tail("/streams/s?from=start&embed=none&limit=1")
		check.Equal(t, strings.Contains(d.text.String(), "eventId"), false, "bare entry")
		d.ends()
	})
}

func TestAt(t *testing.T) {
	n := newNode(t)
	n.filled("s", 5)
	n.put("t", "{}")
	for _, c := range []struct {
		path   string
		status int
		number int64
	}{
		{"/streams/s/at/2024-02-03T10:11:12.345678900Z", 200, 0},
		{"/streams/s/at/2024-02-03T10:11:12.345678901Z", 200, 1},
		{"/streams/s/at/2000-01-01T00:00:00Z", 200, 0},
		{"/streams/s/at/2024-02-03T11:11:15+01:00", 200, 3},
		{"/streams/s/at/2024-02-03T10:12:00Z", 404, 0},
		{"/streams/none/at/2024-02-03T10:12:00Z", 404, 0},
		{"/streams/$all/at/2024-02-03T10:11:17Z", 200, 0},
		{"/streams/$all/at/2024-02-03T10:12:00Z", 404, 0},
		{"/streams/s/at/yesterday", 400, 0},
		{"/streams/s/at/0001-01-01T00:00:00Z", 200, 0},
		{"/streams/s/at/1677-09-21T00:12:43Z", 200, 0},
		{"/streams/s/at/2262-04-11T23:47:17Z", 404, 0},
		{"/streams/s/at/9999-12-31T23:59:59.9999999Z", 404, 0},
		{"/streams/$all/at/0001-01-01T00:00:00%2B01:00", 200, 0},
		{"/streams/$all/at/9999-12-31T23:59:59-23:00", 404, 0},
	} {
		a := n.get(c.path, "").is(t, c.status)
		if c.status == 200 {
			got := decode[struct {
				EventNumber int64
				Position    string
			}](t, a)
			check.Equal(t, got.EventNumber, c.number, c.path)
			check.Equal(t, len(got.Position), 32, "position")
		}
	}
	n.meta("s", `{"$tb":4}`)
	check.Equal(t, decode[struct{ EventNumber int64 }](t, n.get("/streams/s/at/2000-01-01T00:00:00Z", "")).EventNumber, 4, "hidden")
}
