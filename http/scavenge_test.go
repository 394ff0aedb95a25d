package httpapi_test

import (
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/annalsdb/annals/admin/scavenge"
	"github.com/annalsdb/annals/api"
	"github.com/annalsdb/annals/event"
	"github.com/annalsdb/annals/internal/check"
)

const appXML = "application/xml"

func TestScavengeParameters(t *testing.T) {
	const (
		chunk     = "startFromChunk must be a positive integer"
		threads   = "threads must be a 1 or above"
		threshold = "threshold must be an integer"
		throttle  = "throttlePercent must be between 1 and 100 inclusive"
		throttled = "throttlePercent must be 100 for a multi-threaded scavenge"
		syncOnly  = "syncOnly must be a boolean"
		dryRun    = "dryRun must be a boolean"
		top       = "top must be between 1 and 1000 inclusive"
	)
	start := func(threads, threshold, throttle int, syncOnly bool) string {
		return fmt.Sprintf("start %+v", scavenge.Request{Threads: threads, Threshold: threshold, ThrottlePercent: throttle, SyncOnly: syncOnly})
	}
	estimate := func(threshold, top int) string {
		return fmt.Sprintf("estimate %+v", scavenge.EstimateOptions{Threshold: threshold, Top: top})
	}
	n := newOperator(t)
	for _, c := range []struct{ query, call, message string }{
		{"", start(1, 0, 100, false), ""},
		{"startFromChunk=0&threads=1&threshold=0&throttlePercent=100&syncOnly=false", start(1, 0, 100, false), ""},
		{"startFromChunk=7", start(1, 0, 100, false), ""},
		{"STARTFROMCHUNK=7&Threads=2&THRESHOLD=3&throttlepercent=100&SyncOnly=TRUE", start(2, 3, 100, true), ""},
		{"threads=4", start(4, 0, 100, false), ""},
		{"threads=5", start(5, 0, 100, false), ""},
		{"threads=2147483647", start(2147483647, 0, 100, false), ""},
		{"threads=%202%20", start(2, 0, 100, false), ""},
		{"threshold=-2147483648", start(1, -2147483648, 100, false), ""},
		{"threshold=2147483647", start(1, 2147483647, 100, false), ""},
		{"threshold=+5", start(1, 5, 100, false), ""},
		{"threshold=%2B5", start(1, 5, 100, false), ""},
		{"throttlePercent=1", start(1, 0, 1, false), ""},
		{"throttlePercent=50&threads=1", start(1, 0, 50, false), ""},
		{"syncOnly=True", start(1, 0, 100, true), ""},
		{"syncOnly=fALSE&unknown=x&a&=&&", start(1, 0, 100, false), ""},
		{"threads=2&threads=x", start(2, 0, 100, false), ""},
		{"threads=x&threads=2", "", threads},
		{"dryRun=false&top=5", start(1, 0, 100, false), ""},
		{"dryRun=true", estimate(0, 20), ""},
		{"dryRun=TRUE&threshold=-1&top=1", estimate(-1, 1), ""},
		{"dryRun=true&top=1000&syncOnly=true&threads=3", estimate(0, 1000), ""},

		{"startFromChunk=-1", "", chunk}, {"startFromChunk=x", "", chunk}, {"startFromChunk=", "", chunk}, {"startFromChunk", "", chunk},
		{"startFromChunk=2147483648", "", chunk}, {"startFromChunk=1.5", "", chunk},
		{"threads=0", "", threads}, {"threads=-2", "", threads}, {"threads=two", "", threads}, {"threads=1_0", "", threads}, {"threads=2147483648", "", threads},
		{"threads=0x2", "", threads}, {"threads=%zz", "", threads}, {"threads=1;threshold=2", "", threads},
		{"threshold=much", "", threshold}, {"threshold=2147483648", "", threshold}, {"threshold=-2147483649", "", threshold}, {"threshold=0.5", "", threshold},
		{"throttlePercent=0", "", throttle}, {"throttlePercent=101", "", throttle}, {"throttlePercent=-5", "", throttle}, {"throttlePercent=half", "", throttle},
		{"threads=2&throttlePercent=50", "", throttled}, {"threads=2&throttlePercent=99", "", throttled}, {"threads=9&throttlePercent=101", "", throttle},
		{"syncOnly=maybe", "", syncOnly}, {"syncOnly=1", "", syncOnly}, {"syncOnly=", "", syncOnly},
		{"dryRun=maybe", "", dryRun}, {"dryRun", "", dryRun},
		{"dryRun=true&top=0", "", top}, {"dryRun=true&top=1001", "", top}, {"dryRun=true&top=all", "", top}, {"top=all", "", top},
		// The order in which they are looked at.
		{"top=0&dryRun=x&syncOnly=x&throttlePercent=0&threshold=x&threads=0&startFromChunk=x", "", chunk},
		{"top=0&dryRun=x&syncOnly=x&throttlePercent=0&threshold=x&threads=0", "", threads},
		{"top=0&dryRun=x&syncOnly=x&throttlePercent=0&threshold=x", "", threshold},
		{"top=0&dryRun=x&syncOnly=x&throttlePercent=0&threads=2", "", throttle},
		{"top=0&dryRun=x&syncOnly=x&throttlePercent=5&threads=2", "", throttled},
		{"top=0&dryRun=x&syncOnly=x", "", syncOnly},
		{"top=0&dryRun=x", "", dryRun},
	} {
		for _, accept := range []string{"", appJSON, textXML} {
			a := n.do("POST", "/admin/scavenge?"+c.query, "ignored", headersWith(accept))
			check.Equal(t, n.scavenges.called(), c.call, c.query)
			if c.message == "" {
				a.is(t, 200)
				continue
			}
			check.Equal(t, a.is(t, 400).body, c.message, c.query)
			a.has(t, "Content-Type", "text/plain; charset=utf-8")
		}
	}
}

func TestScavengeStart(t *testing.T) {
	n := newOperator(t)
	for accept, want := range map[string]string{
		"":           "ScavengeId: %s",
		"*/*":        "ScavengeId: %s",
		"text/plain": "ScavengeId: %s",
		appJSON:      "{\n  \"scavengeId\": \"%s\"\n}",
		textXML:      `<?xml version="1.0" encoding="utf-8"?><ScavengeResultDto><ScavengeId>%s</ScavengeId></ScavengeResultDto>`,
		appXML:       `<?xml version="1.0" encoding="utf-8"?><ScavengeResultDto><ScavengeId>%s</ScavengeId></ScavengeResultDto>`,
	} {
		a := n.do("POST", "/admin/scavenge", "", headersWith(accept)).is(t, 200)
		check.Equal(t, a.body, fmt.Sprintf(want, event.ID{0x5c, 15: n.scavenges.ids}), accept)
		if accept == "" || accept == "*/*" {
			accept = "text/plain"
		}
		a.has(t, "Content-Type", accept+"; charset=utf-8")
	}
	n.do("POST", "/admin/scavenge", "", headersWith("image/png")).is(t, 406)
	n.scavenges.calls = nil
	n.do("POST", "/admin/scavenge?format=nonsense", "", admin()).is(t, 406)
	check.Equal(t, n.scavenges.called(), "", "not started")

	// Followers scavenge as leaders do, and so does who knows no leader.
	for _, role := range []string{"follower", "readonlyreplica", "unknown"} {
		n.cluster.role, n.cluster.leader = role, "http://other"
		n.do("POST", "/admin/scavenge", "", admin()).is(t, 200)
		n.get("/admin/scavenge/current", "").is(t, 200)
		n.do("DELETE", "/admin/scavenge/current", "", admin()).is(t, 404)
	}
	newNode(t).do("POST", "/admin/scavenge", "", admin()).is(t, 404)
	newNode(t).get("/admin/scavenge/current", "").is(t, 404)
}

// The answer to a start waits until the start can be read, not for ever, and not for a leader.
func TestScavengeStartIsAwaited(t *testing.T) {
	for _, c := range []struct {
		role, leader string
		waits        bool
	}{
		{"leader", "", true}, {"follower", "http://other", true}, {"unknown", "", false},
	} {
		n := newOperator(t)
		n.cluster.role, n.cluster.leader = c.role, c.leader
		waited := 0
		n.scavenges.announcing = func(ctx context.Context, id event.ID) {
			waited++
			if at, ok := ctx.Deadline(); !ok || time.Until(at) > 2*time.Second || id != (event.ID{0x5c, 15: n.scavenges.ids}) {
				t.Errorf("%s: waits for %v until %v", c.role, id, at)
			}
		}
		n.do("POST", "/admin/scavenge", "", admin()).is(t, 200)
		check.Equal(t, waited, map[bool]int{true: 1}[c.waits], c.role, "waited ... times")
	}
}

func TestScavengeErrors(t *testing.T) {
	n := newOperator(t)
	for _, c := range []struct {
		err     error
		status  int
		message string
	}{
		{scavenge.ErrRunning, 400, "Scavenge is already running"},
		{event.ErrChunksLocked, 400, "Failed to acquire the chunk switch lock"},
		{scavenge.ErrInMemory, 400, "Scavenge is not supported on in-memory databases"},
		{scavenge.ErrNoSuchRun, 404, "Scavenge Id does not exist"},
		{event.ErrNotReady, 503, "Server Is Not Ready"},
		{event.ErrClosed, 503, "Server Is Not Ready"},
		{event.ErrBusy, 503, "Server Is Too Busy"},
		{context.Canceled, 503, "Server Is Not Ready"},
		{context.DeadlineExceeded, 408, "Server was unable to handle request in time"},
		{errors.New("other"), 500, "Internal Server Error"},
	} {
		n.scavenges.fail = fmt.Errorf("wrapped: %w", c.err)
		for _, accept := range []string{"", appJSON, textXML} {
			for _, r := range [][2]string{{"POST", "/admin/scavenge"}, {"POST", "/admin/scavenge?dryRun=true"}, {"DELETE", "/admin/scavenge/current"}} {
				a := n.do(r[0], r[1], "", headersWith(accept)).is(t, c.status)
				check.Equal(t, a.body, c.message, c.err.Error())
				a.has(t, "Content-Type", "text/plain; charset=utf-8")
			}
		}
	}
}

func TestScavengeStop(t *testing.T) {
	n := newOperator(t)
	id := runID(t).String()
	const zero = "00000000-0000-0000-0000-000000000000"
	// Nothing runs.
	for path, call := range map[string]string{
		"current": "stop " + zero, id: "stop " + id, zero: "", "x": "", "Current": "", "currently": "", id + "0": "", "%20": "",
	} {
		a := n.do("DELETE", "/admin/scavenge/"+path, "ignored", headersWith(appJSON)).is(t, 404)
		check.Equal(t, a.body, "Scavenge Id does not exist", path)
		a.has(t, "Content-Type", "text/plain; charset=utf-8")
		check.Equal(t, n.scavenges.called(), call, path)
	}
	n.scavenges.current = someRun(t)
	for _, path := range []string{"current", "%63urrent", id, strings.ToUpper(id), "{" + id + "}", strings.ReplaceAll(id, "-", "")} {
		for accept, want := range map[string]string{
			"":      id,
			appJSON: `"` + id + `"`,
			textXML: `<?xml version="1.0" encoding="utf-8"?><ScavengeResultDto><ScavengeId>` + id + "</ScavengeId></ScavengeResultDto>",
		} {
			check.Equal(t, n.do("DELETE", "/admin/scavenge/"+path, "ignored", headersWith(accept)).is(t, 200).body, want, path)
		}
	}
	n.scavenges.calls = nil
	for _, path := range []string{zero, "0f9fad5b-d9cb-469f-a165-70867728950e", "x"} {
		n.do("DELETE", "/admin/scavenge/"+path, "", admin()).is(t, 404)
	}
	n.do("DELETE", "/admin/scavenge/last", "", admin()).is(t, 405)
	n.do("DELETE", "/admin/scavenge/current", "", with("Authorization", janeCredentials)).is(t, 401)
	for _, path := range []string{"/admin/scavenge/", "/admin/scavenge/current/", "/admin/scavenge/a/b", "/admin/scavenge/a%2Fb"} {
		for _, method := range []string{"GET", "DELETE", "POST"} {
			n.do(method, path, "", admin()).is(t, 404)
		}
	}
	check.Equal(t, n.scavenges.called(), "stop 0f9fad5b-d9cb-469f-a165-70867728950e", "stopped")
	for _, path := range []string{id, "x", zero} {
		n.get("/admin/scavenge/"+path, "").is(t, 405).has(t, "Allow", "DELETE, OPTIONS").bare(t)
	}
}

// TestScavengeStopWaits answers when the run has stopped, or when that takes too
// long for a request.
func TestScavengeStopWaits(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := newOperator(t)
		n.scavenges.current = someRun(t)
		for _, c := range []struct {
			takes, answered time.Duration
			status          int
		}{
			{0, 0, 200},
			{9 * time.Second, 9 * time.Second, 200},
			{time.Hour, api.DefaultReadTimeout, 408},
		} {
			n.scavenges.waiting = takes(c.takes)
			begin := time.Now()
			n.do("DELETE", "/admin/scavenge/current", "", admin()).is(t, c.status)
			check.Equal(t, time.Since(begin), c.answered, "answered after")
		}
	})
}

// takes waits until a time is over or the context ends.
func takes(d time.Duration) func(context.Context) error {
	return func(ctx context.Context) error {
		ctx, cancel := context.WithTimeoutCause(ctx, d, errOver)
		defer cancel()
		<-ctx.Done()
		if context.Cause(ctx) == errOver {
			return nil
		}
		return ctx.Err()
	}
}

var errOver = errors.New("the time is over")

func TestScavengeStatus(t *testing.T) {
	n := newOperator(t)
	formats := map[string]string{"json": appJSON, "xml": textXML, "txt": "text/plain"}
	const zero = "00000000-0000-0000-0000-000000000000"
	none := map[string]string{
		"json": "{\n  \"scavengeId\": \"\",\n  \"scavengeLink\": \"\"\n}",
		"xml":  `<?xml version="1.0" encoding="utf-8"?><ScavengeGetCurrentResultDto><ScavengeId /><ScavengeLink /></ScavengeGetCurrentResultDto>`,
		"txt":  "ScavengeId: , ScavengeLink: ",
	}
	never := map[string]string{
		"json": "{\n  \"scavengeId\": \"" + zero + "\",\n  \"scavengeLink\": \"\",\n  \"scavengeResult\": \"Unknown\"\n}",
		"xml": `<?xml version="1.0" encoding="utf-8"?><ScavengeGetLastResultDto><ScavengeId>` + zero +
			"</ScavengeId><ScavengeLink /><ScavengeResult>Unknown</ScavengeResult></ScavengeGetLastResultDto>",
		"txt": "ScavengeId: " + zero + ", ScavengeLink: , ScavengeResult: Unknown",
	}
	for format, accept := range formats {
		check.Equal(t, n.get("/admin/scavenge/current", accept).is(t, 200).has(t, "Content-Type", accept+"; charset=utf-8").body, none[format], "none")
		check.Equal(t, n.get("/admin/scavenge/last", accept).is(t, 200).has(t, "Content-Type", accept+"; charset=utf-8").body, never[format], "never")
	}

	over := someRun(t)
	over.Result, over.Phase, over.Done, over.Total, over.Unit, over.Ended = scavenge.ResultSuccess, scavenge.PhaseIdle, 0, 0, "", runBegan.Add(time.Minute)
	failed := over
	failed.Result, failed.Error, failed.Point = scavenge.ResultErrored, "write chunk 3: <no> \"space\"", nil
	for name, s := range map[string]scavenge.Status{"running": someRun(t), "young": youngRun(t), "over": over, "failed": failed} {
		n.scavenges.last, n.scavenges.current = s, scavenge.Status{}
		if s.Ended.IsZero() {
			n.scavenges.current = s
		}
		for format, accept := range formats {
			n.golden("scavenge-last-"+name+"."+format, "/admin/scavenge/last", accept)
			if s.Ended.IsZero() {
				n.golden("scavenge-current-"+name+"."+format, "/admin/scavenge/current", accept)
			}
		}
		text := n.get("/admin/scavenge/last", "").is(t, 200).body
		first, _, _ := strings.Cut(text, "\n")
		check.Equal(t, first, "ScavengeId: "+s.ID.String()+", ScavengeLink: /admin/scavenge/"+s.ID.String()+", ScavengeResult: "+string(s.Result), "first line")
	}

	n.scavenges.current = someRun(t)
	first, _, _ := strings.Cut(n.get("/admin/scavenge/current", "").is(t, 200).body, "\n")
	check.Equal(t, first, "ScavengeId: "+runID(t).String()+", ScavengeLink: /admin/scavenge/"+runID(t).String(), "first line")
	status := decode[map[string]any](t, n.get("/admin/scavenge/current", appJSON, "X-Forwarded-Prefix", "/db"))
	check.Equal(t, status["scavengeLink"].(string), "/admin/scavenge/"+runID(t).String(), "link")
	check.Equal(t, n.do("HEAD", "/admin/scavenge/current", "", admin()).is(t, 200).body, "", "body of HEAD")
	n.get("/admin/scavenge/current", "image/png").is(t, 406)
}

// TestScavengeHistory pages through the stream of a run by the address that the
// web interface has for it.
func TestScavengeHistory(t *testing.T) {
	n := newOperator(t)
	id := runID(t).String()
	stream, own := "$scavenges-"+id, "/streams/$scavenges/"+id
	n.filled(stream, 5)
	n.batch("$scavenges", `[{"eventId":"3f9fad5b-d9cb-469f-a165-70867728950e","eventType":"$>","data":"0@`+stream+`"},`+
		`{"eventId":"4f9fad5b-d9cb-469f-a165-70867728950e","eventType":"$>","data":"4@`+stream+`"}]`).is(t, 201)
	const byOps = `{"$acl":{"$r":"$ops","$w":[],"$d":[],"$mr":[],"$mw":[]}}`

	for path, like := range map[string]string{
		own + "/head/20":                              "/streams/" + stream + "/head/backward/20",
		own + "/head/2?embed=tryharder":               "/streams/" + stream + "/head/backward/2?embed=tryharder",
		own + "/3/2?embed=body":                       "/streams/" + stream + "/3/backward/2?embed=body",
		"/streams/%24scavenges/" + id + "/3/2":        "/streams/" + stream + "/3/2",
		"/streams/%24scavenges/%35" + id[1:] + "/0/1": "/streams/" + stream + "/0/backward/1",
		own + "/x/2":                                  "/streams/" + stream + "/x/backward/2",
		own + "/head/0":                               "/streams/" + stream + "/head/backward/0",
		own + "/head/99999":                           "/streams/" + stream + "/head/backward/99999",
		"/streams/$scavenges/none/head/20":            "/streams/$scavenges-none/head/backward/20",
		// Ordinary pages of $scavenges itself.
		"/streams/$scavenges/head/backward/20":       "/streams/%24scavenges/head/20",
		"/streams/$scavenges/head/20":                "/streams/%24scavenges/head/backward/20",
		"/streams/$scavenges/1/backward/1":           "/streams/%24scavenges/1/1",
		"/streams/%24scavenges/0/forward/1":          "/streams/$scavenges/0/forward/1",
		"/streams/$scavenges/" + id + "/forward/20":  "/streams/%24scavenges/" + id + "/forward/20",
		"/streams/$scavenges/" + id + "/backward/20": "/streams/%24scavenges/" + id + "/backward/20",
	} {
		for _, accept := range []string{atomJSON, atomXML} {
			want, got := n.get(like, accept), n.get(path, accept)
			check.Equal(t, got.body, want.body, path)
			check.Equal(t, fmt.Sprint(got.status, got.header), fmt.Sprint(want.status, want.header), path)
			if tag := got.header.Get("ETag"); tag != "" {
				n.get(path, accept, "If-None-Match", tag).is(t, 304).has(t, "ETag", tag)
			}
		}
	}
	page := n.feed(own + "/3/2")
	check.Equal(t, page.numbers(), "3 2", "numbers")
	check.Equal(t, page.links(), "self= first=/head/backward/2 last=/0/forward/2 next=/1/backward/2 previous=/4/forward/2 metadata=/metadata", "links")
	check.Equal(t, page.Links[0].URI, base+"/streams/%24scavenges-"+id, "of")
	n.get("/streams/$scavenges/head/forward/20", "").is(t, 400)
	n.get("/streams/$scavenges/"+id+"/backward/20", "").is(t, 400)
	n.get("/streams/$other/"+id+"/head/20", "").is(t, 404)
	for _, path := range []string{own + "/head/20/", own + "/head/20/1", own + "/head/", "/streams/$scavenges//head/20"} {
		n.get(path, "").is(t, 404)
	}
	a := n.do("POST", own+"/head/20", "[]", admin("Content-Type", eventsJSON)).is(t, 405)
	checkCORS(t, a, "GET, OPTIONS")

	// Links are resolved unless the client does not want it.
	targets := n.feed("/streams/$scavenges?embed=tryharder")
	check.Equal(t, targets.numbers(), "4 0", "links")
	check.Equal(t, *targets.Entries[0].StreamID, stream, "stream")
	check.Equal(t, *n.feed("/streams/$scavenges?embed=tryharder", "ES-ResolveLinkTos", "false").Entries[0].EventType, "$>", "links themselves")

	// Who may read the stream of the run may read it by both addresses.
	paths := []string{own + "/head/20", "/streams/" + stream}
	for _, status := range []int{401, 200} {
		for _, path := range paths {
			n.do("GET", path, "", with("Authorization", opsCredentials)).is(t, status)
			n.do("GET", path, "", with("Authorization", janeCredentials)).is(t, 401)
			n.do("GET", path, "", nil).is(t, 401)
		}
		n.meta(stream, byOps)
	}
	n.do("GET", "/streams/$scavenges", "", with("Authorization", opsCredentials)).is(t, 401)
	n.get("/streams/$scavenges/head/20", "").is(t, 200)
}

// goldenPost compares an answer to a POST with its file.
func (n *node) goldenPost(t *testing.T, name, path, accept string) {
	t.Helper()
	a := n.do("POST", path, "", headersWith(accept)).is(t, 200).has(t, "Content-Type", accept+"; charset=utf-8").
		has(t, "Cache-Control", "max-age=0, no-cache, must-revalidate").has(t, "Vary", "Accept")
	compareFile(t, filepath.Join("testdata", name), strings.ReplaceAll(a.body, "><", ">\n<")+"\n")
}
