package httpapi

import (
	"context"
	"fmt"
	"math"
	"net/http"
	"strconv"
	"strings"
	"time"

	"github.com/annalsdb/annals/internal/jsontext"
	"github.com/annalsdb/annals/stats/history"
	"github.com/annalsdb/annals/stats/tree"
)

// serveMetrics leaves it to the exporter which of its formats the caller gets.
func (t *statisticsHandlers) serveMetrics(_ context.Context, x *exchange) error {
	t.statistics.Metrics().ServeHTTP(x.w, x.r)
	return nil
}

// Cache-Control of statistics, which are renewed once a second. A shared cache may
// keep only what it may show to everybody.
var (
	cacheStats       = []string{"max-age=1, private"}
	cachePublicStats = []string{"max-age=1, public"}
)

// sendStats answers with a document of statistics.
func sendStats(x *exchange, document []byte) error {
	x.out = document
	h := x.w.Header()
	switch {
	case x.node.disableCaching:
		h[keyCacheControl] = cacheNever
	case x.op.may.wantsUser(x.node.open):
		h[keyCacheControl] = cacheStats
	default:
		h[keyCacheControl] = cachePublicStats
	}
	h[keyContentType] = x.media.contentType
	h[keyVary] = varyAccept
	x.send(http.StatusOK, document)
	return nil
}

// replicationStats lists the nodes that follow this one.
func (t *statisticsHandlers) replicationStats(x *exchange) error {
	return sendConnections(x, "ReplicationStats", t.statistics.Replication(), func(c *ReplicationConnection) []field {
		return []field{
			textField("subscriptionId", c.SubscriptionID.String()),
			textField("connectionId", c.ConnectionID.String()),
			textField("subscriptionEndpoint", c.Endpoint),
			intField("totalBytesSent", c.Sent),
			intField("totalBytesReceived", c.Received),
			intField("pendingSendBytes", c.PendingSent),
			intField("pendingReceivedBytes", c.PendingReceived),
			intField("sendQueueSize", c.Queued),
		}
	})
}

// tcpStats lists the clients that are connected by TCP: there is no such protocol.
func tcpStats(x *exchange) error {
	return sendConnections(x, "TcpConnectionStats", nil, nil)
}

// sendConnections answers with a list. Its elements have the names of the types in EventStoreDB
// 23.10.
func sendConnections(x *exchange, name string, list []ReplicationConnection, fields func(*ReplicationConnection) []field) error {
	o := newOutline(x)
	o.rootList("ArrayOf"+name, name, len(list), func(i int) { o.leaves(fields(&list[i])...) })
	return sendStats(x, o.b)
}

const (
	// Paths below it that do not address statistics.
	segReplication = "replication"
	segTCP         = "tcp"

	// maxStatsSegments is more than the depth of the statistics.
	maxStatsSegments = 8
)

var errStatsPath = badRequest("Dynamic stats selection works only with grouping enabled")

// serveStats answers with the statistics, or those below an object of them.
func (t *statisticsHandlers) serveStats(_ context.Context, x *exchange) error {
	var segment [1 + maxStatsSegments + 1]string // "stats" before, and what is too much
	n := split(x.r.URL, segment[:])
	if n == len(segment) {
		return problemNoRoute
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
		xml:  x.media != typeJSON,
		flat: !queryFlag(x.r.URL.RawQuery, "group", true),
		full: queryFlag(x.r.URL.RawQuery, "metadata", false),
	}
	switch {
	case len(path) == 0:
		return sendStats(x, t.metrics().render(x.out[:0], shape))
	case shape.flat:
		return errStatsPath
	}
	node, ok := t.metrics().list.Tree().Find(path)
	if !ok {
		return problemNoRoute
	}
	return sendStats(x, shape.append(x.out[:0], node))
}

// queryFlag reads a boolean of a query; any other value counts as absent.
func queryFlag(raw, name string, absent bool) bool {
	if v, ok := parseFlag(strings.TrimSpace(queryValue(raw, name))); ok {
		return v
	}
	return absent
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
func (t *statisticsHandlers) metrics() *metrics {
	if f := t.latest.Load(); f != nil && time.Since(f.taken) < metricsAge {
		return f
	}
	list := t.statistics.Statistics()
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

// serveHistogram answers with a table of percentiles. It is text, whichever types are accepted.
func (t *statisticsHandlers) serveHistogram(_ context.Context, x *exchange) error {
	table, ok := t.statistics.Histogram(x.out[:0], x.route.argument)
	if !ok {
		return problemNoRoute
	}
	x.out = table
	x.media = typeText
	x.ok()
	return nil
}

// maxMinutes is how much of the past statistics are kept of.
const maxMinutes = int64(history.Span / (60 * 1e9))

// serveHistory answers with what the main statistics were. A value that is not known for a moment
// is null.
func (t *statisticsHandlers) serveHistory(_ context.Context, x *exchange) error {
	minutes := maxMinutes
	if v, ok := queryLookup(x.r.URL.RawQuery, "minutes"); ok {
		if minutes, ok = parseNumber(v, math.MaxInt32); !ok || minutes == 0 {
			return badRequest("'" + v + "' is not valid minutes. Should be positive integer")
		}
	}
	s := t.statistics.History(min(minutes, maxMinutes))
	b := fmt.Appendf(x.out[:0], `{"step":%d,"from":"%s","series":{`, int64(history.Step.Seconds()), s.From.Format("2006-01-02T15:04:05Z"))
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
	return sendOut(x, append(b, "}}"...))
}
