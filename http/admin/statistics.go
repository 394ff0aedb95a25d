package admin

import (
	"context"
	"fmt"
	"math"
	"strconv"
	"strings"
	"sync/atomic"
	"time"

	"github.com/annalsdb/annals/api"
	"github.com/annalsdb/annals/http/address"
	"github.com/annalsdb/annals/http/args"
	"github.com/annalsdb/annals/http/media"
	"github.com/annalsdb/annals/http/outline"
	"github.com/annalsdb/annals/http/problem"
	"github.com/annalsdb/annals/http/request"
	"github.com/annalsdb/annals/internal/jsontext"
	"github.com/annalsdb/annals/stats/history"
	"github.com/annalsdb/annals/stats/tree"
)

// StatisticsHandlers answer requests for statistics of this node.
type StatisticsHandlers struct {
	Statistics api.Statistics
	latest     atomic.Pointer[metrics] // for /stats; nil before it is asked for
}

// Metrics leaves it to the exporter which of its formats the caller gets.
func (t *StatisticsHandlers) Metrics(_ context.Context, x *request.Request) error {
	t.Statistics.Metrics().ServeHTTP(x.W, x.R)
	return nil
}

// Cache-Control of statistics, which are renewed once a second. A shared cache may
// keep only what it may show to everybody.
var (
	cacheStats       = []string{"max-age=1, private"}
	cachePublicStats = []string{"max-age=1, public"}
)

// sendStats answers with a document of statistics.
func sendStats(x *request.Request, document []byte) error {
	x.Copies().Last(cachePublicStats)
	if x.Op.May.WantsUser(x.Node.Open) {
		x.Copies().Last(cacheStats)
	}
	x.Out = document
	x.SendBody()
	return nil
}

// replicationStats lists the nodes that follow this one.
func (t *StatisticsHandlers) replicationStats(x *request.Request) error {
	return sendConnections(x, "ReplicationStats", t.Statistics.Replication(), func(c *api.ReplicationConnection) []outline.Field {
		return []outline.Field{
			outline.Text("subscriptionId", c.SubscriptionID.String()),
			outline.Text("connectionId", c.ConnectionID.String()),
			outline.Text("subscriptionEndpoint", c.Endpoint),
			outline.Int("totalBytesSent", c.Sent),
			outline.Int("totalBytesReceived", c.Received),
			outline.Int("pendingSendBytes", c.PendingSent),
			outline.Int("pendingReceivedBytes", c.PendingReceived),
			outline.Int("sendQueueSize", c.Queued),
		}
	})
}

// tcpStats lists the clients that are connected by TCP: there is no such protocol.
func tcpStats(x *request.Request) error {
	return sendConnections(x, "TcpConnectionStats", nil, nil)
}

// sendConnections answers with a list. Its elements have the names of the types in EventStoreDB
// 23.10.
func sendConnections(x *request.Request, name string, list []api.ReplicationConnection, fields func(*api.ReplicationConnection) []outline.Field) error {
	o := x.NewOutline()
	o.RootList("ArrayOf"+name, name, len(list), func(i int) { o.Leaves(fields(&list[i])...) })
	return sendStats(x, o.B)
}

const (
	// Paths below it that do not address statistics.
	segReplication = "replication"
	segTCP         = "tcp"

	// maxStatsSegments is more than the depth of the statistics.
	maxStatsSegments = 8
)

var errStatsPath = problem.Bad("Dynamic stats selection works only with grouping enabled")

// Stats answers with the statistics, or those below an object of them.
func (t *StatisticsHandlers) Stats(_ context.Context, x *request.Request) error {
	var segment [1 + maxStatsSegments + 1]string // "stats" before, and what is too much
	n := address.Split(x.R.URL, segment[:])
	if n == len(segment) {
		return problem.NoRoute
	}
	path := segment[1:n]
	if n > 1 && segment[n-1] == "" { // A slash too much.
		path = segment[1 : n-1]
	}
	if len(path) == 1 {
		switch path[0] {
		case segReplication:
			return t.replicationStats(x)
		case segTCP:
			return tcpStats(x)
		}
	}
	shape := statsShape{
		xml:  x.Media != media.JSON,
		flat: !args.BoolOr(x.R.URL.RawQuery, "group", true),
		full: args.BoolOr(x.R.URL.RawQuery, "metadata", false),
	}
	switch {
	case len(path) == 0:
		return sendStats(x, t.metrics().render(x.Out[:0], shape))
	case shape.flat:
		return errStatsPath
	}
	node, ok := t.metrics().list.Tree().Find(path)
	if !ok {
		return problem.NoRoute
	}
	return sendStats(x, shape.append(x.Out[:0], node))
}

// statsShape is how statistics are shown.
type statsShape struct {
	xml, flat bool
	full      bool // with what is known about each
}

func (s statsShape) append(b []byte, n *tree.Node) []byte {
	if s.xml {
		return n.AppendXML(b, s.full)
	}
	return n.AppendJSON(b, s.full)
}

// metricsAge is for how long statistics are shown again.
const metricsAge = time.Second

// metrics are the statistics of one moment.
type metrics struct {
	taken time.Time
	list  tree.Statistics
}

// metrics returns the latest statistics. Concurrent callers may each collect them;
// those of one caller are kept.
func (t *StatisticsHandlers) metrics() *metrics {
	if f := t.latest.Load(); f != nil && time.Since(f.taken) < metricsAge {
		return f
	}
	list := t.Statistics.Statistics()
	f := &metrics{time.Now(), list}
	t.latest.Store(f)
	return f
}

// render appends all statistics.
func (f *metrics) render(b []byte, shape statsShape) []byte {
	switch {
	case !shape.flat:
		return shape.append(b, f.list.Tree())
	case !shape.xml:
		return f.list.AppendFlatJSON(b, shape.full)
	}
	flat := make(tree.Statistics, len(f.list))
	for i, figure := range f.list {
		figure.Path = []string{strings.Join(figure.Path, "-")}
		flat[i] = figure
	}
	return shape.append(b, flat.Tree())
}

// Histogram answers with a table of percentiles. It is text, whichever types are accepted.
func (t *StatisticsHandlers) Histogram(_ context.Context, x *request.Request) error {
	table, ok := t.Statistics.Histogram(x.Out[:0], x.Route.Argument)
	if !ok {
		return problem.NoRoute
	}
	x.Out = table
	x.Media = media.Text
	x.SendBody()
	return nil
}

// maxMinutes is how much of the past statistics are kept of.
const maxMinutes = int64(history.Span / (60 * 1e9))

// History answers with what the main statistics were. A value that is not known for a moment
// is null.
func (t *StatisticsHandlers) History(_ context.Context, x *request.Request) error {
	minutes := maxMinutes
	if v, ok := args.Lookup(x.R.URL.RawQuery, "minutes"); ok {
		if minutes, ok = args.Number(v, math.MaxInt32); !ok || minutes == 0 {
			return problem.Bad("'" + v + "' is not valid minutes. Should be positive integer")
		}
	}
	s := t.Statistics.History(min(minutes, maxMinutes))
	b := fmt.Appendf(x.Out[:0], `{"step":%d,"from":"%s","series":{`, int64(history.Step.Seconds()), s.From.Format("2006-01-02T15:04:05Z"))
	for i, name := range s.Names {
		if i > 0 {
			b = append(b, ',')
		}
		b = append(jsontext.AppendString(b, name), ":["...)
		for k, v := range s.Values[i] {
			if k > 0 {
				b = append(b, ',')
			}
			if math.IsNaN(v) || math.IsInf(v, 0) {
				b = append(b, "null"...)
			} else {
				b = strconv.AppendFloat(b, v, 'f', -1, 64)
			}
		}
		b = append(b, ']')
	}
	return x.SendOut(append(b, "}}"...))
}
