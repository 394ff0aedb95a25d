package httpapi_test

import (
	"encoding/json"
	"encoding/xml"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/annalsdb/annals/api"
	"github.com/annalsdb/annals/event"
	httpapi "github.com/annalsdb/annals/http"
	"github.com/annalsdb/annals/internal/check"
	"github.com/annalsdb/annals/stats/tree"
)

// TestStatsGolden compares the documents of the statistics with files.
func TestStatsGolden(t *testing.T) {
	n := newOperator(t)
	for name, query := range map[string]string{"": "", "-flat": "?group=false", "-metadata": "?metadata=true", "-flat-metadata": "?group=False&metadata=TRUE"} {
		n.golden("stats"+name+".json", "/stats"+query, appJSON)
		n.golden("stats"+name+".xml", "/stats"+query, textXML)
	}
	n.statistics.replication = []api.ReplicationConnection{
		{SubscriptionID: event.ID{1, 15: 1}, ConnectionID: event.ID{2, 15: 2}, Endpoint: "10.0.0.2:1112", Sent: 1, Received: 2, PendingSent: 3, PendingReceived: 4, Queued: 5},
		{Endpoint: "[::1]:1112"},
	}
	n.golden("stats-replication.json", "/stats/replication", appJSON)
	n.golden("stats-replication.xml", "/stats/replication", "application/xml")
}

func TestStatsPaths(t *testing.T) {
	n := newOperator(t)
	for _, c := range []struct {
		path   string
		status int
		keys   string // of the answer
	}{
		{"/stats", 200, "es proc replication sys"},
		{"/stats/", 200, "es proc replication sys"},
		{"/st%61ts/", 200, "es proc replication sys"},
		{"/stats/proc", 200, "cpu gc id startTime tcp"},
		{"/stats/proc/", 200, "cpu gc id startTime tcp"},
		{"/stats/PROC/Gc", 200, "gen0Size"},
		{"/stats/es/queue/MainQueue", 200, "queueName"},
		{"/stats/es/queue/mainqueue", 200, "queueName"},
		{"/stats/es/queue/StorageReaderQueue%20%231", 200, "currentIdleTime queueName"},
		{"/stats/sys/drive/%2Fvar%2flib%2Fa%20b%23c", 200, "usage"},
		{"/stats/proc?group=maybe", 200, "cpu gc id startTime tcp"},
		{"/stats/proc?group=TRUE&metadata=nonsense", 200, "cpu gc id startTime tcp"},
		{"/stats/Replication", 200, "hidden"},

		{"/stats/nothing", 404, ""},
		{"/stats/proc/nothing", 404, ""},
		{"/stats/proc/id", 404, ""},
		{"/stats/proc/tcp/connections", 404, ""},
		{"/stats/proc//", 404, ""},
		{"/stats//", 404, ""},
		{"/stats//proc", 404, ""},
		{"/stats/sys/drive//var/lib/a%20b%23c", 404, ""},
		{"/stats/es/queue/StorageReaderQueue+%231", 404, ""},
		{"/stats%2Fproc", 404, ""},
		{"/stats/a/b/c/d/e/f/g/h/i/j", 404, ""},
		{"/stats/replication/hidden", 404, ""},
		{"/Stats", 404, ""},
	} {
		t.Run(c.path, func(t *testing.T) {
			a := n.get(c.path, "").is(t, c.status)
			if c.status != 200 {
				a.bare(t)
				return
			}
			a.has(t, "Cache-Control", "max-age=1, private").has(t, "Vary", "Accept").has(t, "Content-Type", "application/json; charset=utf-8")
			check.Equal(t, strings.Join(keys(t, a.body), " "), c.keys, "keys")
			head := n.do("HEAD", c.path, "", admin()).is(t, 200)
			check.Equal(t, head.body, "", "body of HEAD")
		})
	}
	for _, path := range []string{"/stats/proc?group=false", "/stats/nothing?group=False&metadata=true"} {
		check.Equal(t, n.get(path, "").is(t, 400).says(t, "Dynamic").body, "Dynamic stats selection works only with grouping enabled", path)
		n.do("GET", path, "", nil).is(t, 401)
	}
	n.get("/stats/?group=false", "").is(t, 200)
	n.get("/stats/tcp?group=false", "").is(t, 200)
	value := decode[map[string]any](t, n.get("/stats/es/queue/StorageReaderQueue%20%231", ""))
	check.Equal(t, fmt.Sprint(value), "map[currentIdleTime:<nil> queueName:StorageReaderQueue #1]", "queue")
	about := decode[map[string]any](t, n.get("/stats/proc?metadata=true", ""))
	check.Equal(t, fmt.Sprint(about["cpu"]), "map[category:Process drawChart:true title:CPU & <threads> value:12.5]", "with metadata")
}

// keys are those of an object, sorted.
func keys(t *testing.T, body string) []string {
	t.Helper()
	var object map[string]json.RawMessage
	if err := json.Unmarshal([]byte(body), &object); err != nil {
		t.Fatalf("%v in %q", err, body)
	}
	list := make([]string, 0, len(object))
	for key := range object {
		list = append(list, key)
	}
	slices.Sort(list)
	return list
}

func TestConnectionStats(t *testing.T) {
	n := newOperator(t)
	for _, path := range []string{"/stats/replication", "/stats/replication/", "/stats/replic%61tion", "/stats/tcp", "/stats/tcp/"} {
		a := n.get(path, "").is(t, 200).has(t, "Cache-Control", "max-age=1, private").has(t, "Vary", "Accept")
		check.Equal(t, a.body, "[]", path)
		a = n.get(path+"?format=xml", "").is(t, 200).has(t, "Content-Type", "text/xml; charset=utf-8")
		if err := xml.Unmarshal([]byte(a.body), new(struct{})); err != nil {
			t.Errorf("%s: %v", path, err)
		}
	}
	check.Equal(t, n.statistics.taken.Load(), 0, "metrics")
}

// TestStatsNotToBeKept: where nothing may be cached, statistics may not either.
func TestStatsNotToBeKept(t *testing.T) {
	n := newOperator(t, func(o *httpapi.Options) { o.DisableHTTPCaching = true })
	for _, path := range []string{"/stats", "/stats/proc", "/stats/replication", "/stats/tcp"} {
		n.get(path, "").is(t, 200).has(t, "Cache-Control", "max-age=0, no-cache, must-revalidate")
	}
}

func TestStatsNegotiation(t *testing.T) {
	n := newOperator(t)
	for _, c := range []struct{ accept, format, want string }{
		{"", "", appJSON},
		{"*/*", "", appJSON},
		{"text/*", "", textXML},
		{"application/*", "", appJSON},
		{"application/xml", "", "application/xml"},
		{"text/plain, text/xml;q=0.1", "", textXML},
		{"application/xml;q=0.9, application/json", "", appJSON},
		{textXML, "json", appJSON},
		{"", "XML", textXML},
		{"", "text", ""},
		{"", "nonsense", ""},
		{"text/plain", "", ""},
		{atomJSON, "", ""},
	} {
		for _, path := range []string{"/stats", "/stats/proc", "/stats/replication", "/stats/tcp"} {
			a := n.get(path+"?format="+c.format, c.accept)
			if c.want == "" {
				a.is(t, 406).bare(t)
				continue
			}
			a.is(t, 200).has(t, "Content-Type", c.want+"; charset=utf-8")
		}
	}
}

// TestStatsKept collects the statistics once a second, for any number of requests
// and forms.
func TestStatsKept(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := newOperator(t)
		ask := func() {
			for _, path := range []string{"/stats", "/stats?format=xml", "/stats?group=false", "/stats?group=false&format=xml", "/stats?metadata=true", "/stats/proc"} {
				check.Equal(t, n.get(path, "").is(t, 200).body, n.get(path, "").body, "the same again")
			}
		}
		first := n.get("/stats", "").body
		n.statistics.metrics = append(someStatistics(), tree.Statistic{Path: []string{"late"}, Value: "<&>"})
		time.Sleep(time.Second - 1)
		ask()
		check.Equal(t, n.get("/stats", "").body, first, "kept")
		check.Equal(t, n.statistics.taken.Load(), 1, "taken")
		time.Sleep(time.Nanosecond)
		ask()
		check.Equal(t, strings.Contains(n.get("/stats", "").body, `"late": "<&>"`), true, "renewed")
		check.Equal(t, strings.Contains(n.get("/stats?format=xml", "").body, `<late>&lt;&amp;&gt;</late>`), true, "renewed as XML")
		check.Equal(t, n.statistics.taken.Load(), 2, "taken")
	})
}

// TestStatsAtOnce asks for everything from many sides while it grows old.
func TestStatsAtOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := newOperator(t)
		want := n.get("/stats", "").body
		var all sync.WaitGroup
		for i := range 8 {
			all.Go(func() {
				for range 20 {
					check.Equal(t, n.get("/stats", "").body, want, "metrics")
					n.get("/stats?format=xml&group=false", "")
					n.get("/stats/proc", "")
					time.Sleep(time.Duration(i) * 100 * time.Millisecond)
				}
			})
		}
		all.Wait()
	})
}

func TestMetrics(t *testing.T) {
	n := newOperator(t)
	for _, accept := range []string{"", "text/plain", "application/openmetrics-text; version=1.0.0", "image/png", "nonsense"} {
		a := n.get("/metrics?format=json", accept).is(t, 200).has(t, "Content-Type", "text/plain; version=0.0.4; charset=utf-8")
		checkCORS(t, a, "GET, OPTIONS")
		check.Equal(t, a.body, "eventstore_proc_up_time 1\naccept "+accept+"\n", "metrics")
	}
	n.get("/metrics/", "").is(t, 404)
}

func TestHistory(t *testing.T) {
	n := newOperator(t)
	for query, minutes := range map[string]string{"": "60", "?minutes=5": "5", "?minutes=100": "60"} {
		a := n.get("/stats/history"+query, "").is(t, 200).has(t, "Cache-Control", "max-age=0, no-cache, must-revalidate")
		check.Equal(t, a.body, `{"step":10,"from":"2023-11-14T22:13:20Z","series":{"minutes":[`+minutes+`,null],"heapBytes":[1.5,1000000000000000]}}`, query)
	}
	n.get("/stats/history?minutes=0", "").is(t, 400).says(t, "'0' is not valid minutes.")
}

func TestHistogram(t *testing.T) {
	n := newOperator(t)
	for _, accept := range []string{"", "*/*", "text/plain", appJSON, textXML} {
		a := n.get("/histogram/reader-readevent", accept).is(t, 200).has(t, "Content-Type", "text/plain; charset=utf-8")
		check.Equal(t, a.body, "Value Percentile\n", "table")
	}
	n.get("/histogram/reader-readevent", "image/png").is(t, 406)
	n.get("/histogram/", "").is(t, 404)
	n.get("/histogram/no-such-thing", "").is(t, 404).bare(t)
	n.do("GET", "/histogram/no-such-thing", "", nil).is(t, 401)
}

// TestDisableStats removes the statistics, for all callers, and leaves histograms.
func TestDisableStats(t *testing.T) {
	n := newOperator(t, func(o *httpapi.Options) { o.DisableStats = true })
	bare := newNode(t)
	for _, path := range []string{"/stats", "/stats/", "/stats/proc", "/stats/replication", "/stats/tcp", "/metrics"} {
		checkCORS(t, n.get(path, "").is(t, 404), "")
		n.do("OPTIONS", path, "", nil).is(t, 404)
		bare.get(path, "").is(t, 404)
	}
	n.get("/histogram/reader-readevent", "").is(t, 200)
	bare.get("/histogram/reader-readevent", "").is(t, 404)
}

// TestAnswered counts every answer of every route once, with its time.
func TestAnswered(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := newOperator(t)
		var want int64
		for _, path := range []string{"/ping", "/streams/s", "/streams/s/0", "/nothing", "/stats", "/metrics", "/health/live", "/streams//"} {
			for _, method := range []string{"GET", "HEAD", "OPTIONS", "PUT", "FOO"} {
				n.do(method, path, "", nil)
				want++
			}
		}
		check.Equal(t, n.statistics.answered.Load(), want, "answered")
		check.Equal(t, n.statistics.longest.Load(), 0, "at once")
		n.filled("s", 1)
		n.get("/streams/s/1/forward/1", appJSON, "ES-LongPoll", "3").is(t, 200)
		check.Equal(t, time.Duration(n.statistics.longest.Load()), 3*time.Second, "a long poll")
	})
}

// manyStatistics are as many statistics as a node has.
func manyStatistics() tree.Statistics {
	var f tree.Statistics
	for queue := range 25 {
		name := fmt.Sprintf("StorageReaderQueue #%d", queue)
		for i := range 16 {
			f = append(f, tree.Statistic{Path: []string{"es", "queue", name, fmt.Sprintf("totalItemsProcessed%d", i)}, Value: 12345.678 * float64(i)})
		}
	}
	return f
}

// BenchmarkStats answers with 400 statistics: all of them, and those below a path.
func BenchmarkStats(b *testing.B) {
	for _, c := range []struct {
		name, path string
	}{
		{"JSON", "/stats"},
		{"XML", "/stats?format=xml"},
		{"below", "/stats/es/queue/StorageReaderQueue%20%2312"},
	} {
		b.Run(c.name, func(b *testing.B) {
			store := newFixedStore()
			s := &memStatistics{metrics: manyStatistics()}
			o := httpapi.Options{Node: api.Node{Store: store, Cluster: store, Access: store, Statistics: s, Open: api.OpenEndpoints}}
			server := httpapi.New(o)
			r, err := http.NewRequest("GET", base+c.path, nil)
			if err != nil {
				b.Fatal(err)
			}
			w := &sink{header: http.Header{}}
			b.ReportAllocs()
			for b.Loop() {
				clear(w.header)
				w.bytes = 0
				server.Handler().ServeHTTP(w, r)
			}
			if w.status != 200 {
				b.Fatal(w.status)
			}
			b.SetBytes(int64(w.bytes))
		})
	}
}
