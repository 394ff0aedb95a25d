package groups

import (
	"context"
	"errors"
	"math"
	"net/http"
	"strconv"

	"github.com/annalsdb/annals/http/args"
	"github.com/annalsdb/annals/http/atom"
	"github.com/annalsdb/annals/http/outline"
	"github.com/annalsdb/annals/http/problem"
	"github.com/annalsdb/annals/http/request"
	"github.com/annalsdb/annals/subscription"
)

var (
	errPageOffset  = problem.Bad("offset must be a non-negative integer.")
	errPageStreams = problem.Bad("count must be a positive integer.")
)

// groupPage is a part of the list of groups. It is counted in streams.
type groupPage struct {
	offset, count int64 // count 0: the whole list is asked for
}

// groupPageOf reads what part of the list is asked for.
func groupPageOf(query string) (p groupPage, err error) {
	offset, hasOffset := args.Lookup(query, "offset")
	count, hasCount := args.Lookup(query, "count")
	if !hasOffset && !hasCount {
		return p, nil
	}
	var ok bool
	if p.offset, ok = args.Number(offset, math.MaxInt32); !ok && hasOffset {
		return p, errPageOffset
	}
	if p.count, ok = args.Number(count, math.MaxInt32); !ok || p.count == 0 {
		return p, errPageStreams
	}
	return p, nil
}

// List answers with all groups, or a page of them.
func (g *Handlers) List(_ context.Context, x *request.Request) error {
	page, err := groupPageOf(x.R.URL.RawQuery)
	if err != nil {
		return err
	}
	return g.Way.Lead(x, func(ctx context.Context) error {
		list, err := g.Subscriptions.List(ctx, "")
		if err != nil {
			return err
		}
		if page.count == 0 {
			summaries(x, http.StatusOK, list)
		} else {
			pageOfSummaries(x, page, list)
		}
		return nil
	})
}

// OfStream answers with the groups of one stream. When there is none,
// that is not found, and an empty list says so.
func (g *Handlers) OfStream(_ context.Context, x *request.Request) error {
	return g.Way.Lead(x, func(ctx context.Context) error {
		list, err := g.Subscriptions.List(ctx, x.Route.Stream)
		switch {
		case err != nil && !errors.Is(err, subscription.ErrNotFound):
			return err
		case len(list) == 0:
			summaries(x, http.StatusNotFound, nil)
		default:
			summaries(x, http.StatusOK, list)
		}
		return nil
	})
}

// Info answers with all that is known of a group.
func (g *Handlers) Info(_ context.Context, x *request.Request) error {
	return g.Way.Lead(x, func(ctx context.Context) error {
		info, err := g.Subscriptions.Info(ctx, groupKey(x))
		switch {
		case errors.Is(err, subscription.ErrNotFound):
			return problem.NoRoute
		case err != nil:
			return err
		}
		o := groupOutline(x)
		o.Root("subscriptionInfo", func() { detailGroup(x, &o, &info) })
		sendOutline(x, http.StatusOK, &o)
		return nil
	})
}

// positionField is the number of an event as a text; one below 0 is none.
func positionField(name string, k subscription.Key, n int64) outline.Field {
	if n < 0 {
		return outline.Null(name)
	}
	return outline.Text(name, k.Position(n))
}

func summaries(x *request.Request, status int, list []subscription.Info) {
	o := groupOutline(x)
	o.RootList("arrayOfSubscriptionSummary", "subscriptionSummary", len(list), func(i int) { groupSummary(x, &o, &list[i]) })
	sendOutline(x, status, &o)
}

// pageOfSummaries answers with the groups of some of the streams.
func pageOfSummaries(x *request.Request, p groupPage, list []subscription.Info) {
	var starts []int // of the groups of each stream
	for i := range list {
		if i == 0 || list[i].Stream != list[i-1].Stream {
			starts = append(starts, i)
		}
	}
	total := int64(len(starts))
	starts = append(starts, len(list))
	list = list[starts[min(p.offset, total)]:starts[min(p.offset+p.count, total)]]

	links := []relatedLink{{pageURI(x, p.offset, p.count), "self"}, {pageURI(x, 0, p.count), "first"}}
	if p.offset > 0 {
		links = append(links, relatedLink{pageURI(x, max(0, p.offset-p.count), p.count), "previous"})
	}
	if p.offset+p.count < total {
		links = append(links, relatedLink{pageURI(x, p.offset+p.count, p.count), "next"})
	}
	o := groupOutline(x)
	o.Root("pagedSubscriptionInfo", func() {
		writeLinks(&o, links)
		o.Leaves(outline.Int("offset", p.offset), outline.Int("count", p.count), outline.Int("total", total))
		o.List("subscriptions", "subscriptionSummary", len(list), func(i int) { groupSummary(x, &o, &list[i]) })
	})
	sendOutline(x, http.StatusOK, &o)
}

// pageURI is the address of a page of the list of groups.
func pageURI(x *request.Request, offset, count int64) string {
	return string(x.Origin.URI()) + subscriptionsPath + "?offset=" + strconv.FormatInt(offset, 10) + "&count=" + strconv.FormatInt(count, 10)
}

// relatedLink is an address and what it is.
type relatedLink struct{ href, rel string }

func writeLinks(o *outline.Writer, links []relatedLink) {
	o.List("links", "relLink", len(links), func(i int) {
		o.Leaves(outline.Text("href", links[i].href), outline.Text("rel", links[i].rel))
	})
}

// groupAddresses are what documents about a group link to.
func groupAddresses(x *request.Request, k subscription.Key) (group, parked string) {
	origin := string(x.Origin.URI())
	escaped := func(name string) string { return string(atom.AppendEscaped(nil, name)) }
	// Clients know the colons as they are.
	parked = origin + atom.StreamsPath + "%24persistentsubscription-" + escaped(k.Stream) + "::" + escaped(k.Group) + "-parked"
	return origin + string(atom.AppendGroupURI(nil, k)), parked
}

// groupSummary writes what lists tell of a group.
func groupSummary(x *request.Request, o *outline.Writer, g *subscription.Info) {
	group, parked := groupAddresses(x, g.Key)
	writeLinks(o, []relatedLink{{group + "/" + segInfo, "detail"}})
	o.Leaves(
		outline.Text("eventStreamId", g.Stream), outline.Text("groupName", g.Group), outline.Text("parkedMessageUri", parked),
		outline.Text("getMessagesUri", group+"/1"), outline.Text("status", g.Status), outline.Float("averageItemsPerSecond", g.PerSecond),
		outline.Int("totalItemsProcessed", g.Total), outline.Int("lastProcessedEventNumber", max(0, g.Checkpoint)),
		positionField("lastCheckpointedEventPosition", g.Reads(), g.Checkpoint), outline.Int("lastKnownEventNumber", max(0, g.LastKnown)),
		positionField("lastKnownEventPosition", g.Reads(), g.LastKnown), outline.Int("connectionCount", int64(len(g.Connections))),
		outline.Int("totalInFlightMessages", int64(g.Outstanding)),
	)
}

// detailGroup writes all that is known of a group.
func detailGroup(x *request.Request, o *outline.Writer, g *subscription.Info) {
	group, parked := groupAddresses(x, g.Key)
	writeLinks(o, []relatedLink{{group + "/" + segInfo, "detail"}, {group + "/" + segReplay, segReplay}})
	o.Object("config", func() { writeSettings(o, g.Reads(), &g.Settings) })
	o.Leaves(
		outline.Text("eventStreamId", g.Stream), outline.Text("groupName", g.Group), outline.Text("status", g.Status),
		outline.Float("averageItemsPerSecond", g.PerSecond), outline.Text("parkedMessageUri", parked), outline.Text("getMessagesUri", group+"/1"),
		outline.Int("totalItemsProcessed", g.Total), outline.Int("countSinceLastMeasurement", g.SinceLast),
		outline.Int("lastProcessedEventNumber", max(0, g.Checkpoint)), positionField("lastCheckpointedEventPosition", g.Reads(), g.Checkpoint),
		outline.Int("lastKnownEventNumber", max(0, g.LastKnown)), positionField("lastKnownEventPosition", g.Reads(), g.LastKnown),
		outline.Int("readBufferCount", int64(g.ReadBuffer)), outline.Int("liveBufferCount", int64(g.LiveBuffer)),
		outline.Int("retryBufferCount", int64(g.RetryBuffer)), outline.Int("totalInFlightMessages", int64(g.Outstanding)),
		outline.Int("outstandingMessagesCount", int64(g.Outstanding)),
	)
	o.List("connections", "connectionInfo", len(g.Connections), func(i int) { writeConnection(o, &g.Connections[i]) })
	o.Leaves(outline.Int("parkedMessageCount", g.Parked))
	// Ours: clients know the rest.
	if r := g.Replaying; r != nil {
		o.Object("replaying", func() {
			o.Leaves(outline.Int("remaining", r.Remaining), outline.Int("messagesPerSecond", int64(r.Rate)))
		})
	}
	if g.Stalled != "" {
		o.Leaves(outline.Text("stalled", g.Stalled))
	}
	if g.Delayed > 0 {
		o.Leaves(outline.Int("delayedMessages", int64(g.Delayed)))
	}
	if p := g.Paused; p != nil {
		o.Object("paused", func() { o.Leaves(outline.Text("by", p.By), outline.Time("at", p.At)) })
	}
}

func writeSettings(o *outline.Writer, k subscription.Key, s *subscription.Settings) {
	o.Leaves(
		outline.Bool("resolveLinktos", s.ResolveLinks), outline.Int("startFrom", s.StartFrom),
		outline.Text("startPosition", k.Position(s.StartFrom)), outline.Int("messageTimeoutMilliseconds", s.MessageTimeout.Milliseconds()),
		outline.Bool("extraStatistics", s.ExtraStatistics), outline.Int("maxRetryCount", int64(s.MaxRetryCount)),
		outline.Int("liveBufferSize", int64(s.LiveBufferSize)), outline.Int("bufferSize", int64(s.BufferSize)),
		outline.Int("readBatchSize", int64(s.ReadBatchSize)),
		outline.Int("checkPointAfterMilliseconds", s.CheckpointAfter.Milliseconds()),
		outline.Int("minCheckPointCount", int64(s.MinCheckpointCount)),
		outline.Int("maxCheckPointCount", int64(s.MaxCheckpointCount)),
		outline.Int("maxSubscriberCount", int64(s.MaxSubscriberCount)),
		outline.Text("namedConsumerStrategy", string(s.Strategy)),
		outline.Bool("preferRoundRobin", s.Strategy == subscription.RoundRobin),
	)
	// Ours: clients know the rest.
	if s.RetryDelay > 0 {
		o.Leaves(outline.Int("retryDelayMilliseconds", s.RetryDelay.Milliseconds()))
	}
	if b := s.RetryBackoff; b != (subscription.Backoff{}) {
		o.Object("retryBackoff", func() {
			o.Leaves(outline.Float("factor", b.Factor))
			if b.AtMost > 0 {
				o.Leaves(outline.Int("atMostMilliseconds", b.AtMost.Milliseconds()))
			}
		})
	}
	if s.CheckpointAtLeastEvery > 0 {
		o.Leaves(outline.Int("checkpointAtLeastEveryMilliseconds", s.CheckpointAtLeastEvery.Milliseconds()))
	}
	if s.Source != "" {
		o.Leaves(outline.Text("source", s.Source))
	}
	if f := s.Filter; f != nil {
		o.Object("filter", func() {
			of := "type"
			if f.OfStream {
				of = "stream"
			}
			o.Leaves(outline.Text("of", of))
			if f.Regex != "" {
				o.Leaves(outline.Text("regex", f.Regex))
				return
			}
			o.Texts("prefixes", "prefix", f.Prefixes)
		})
	}
}

func writeConnection(o *outline.Writer, c *subscription.ConnectionInfo) {
	o.Leaves(
		outline.Text("from", c.From), outline.Text("username", c.User), outline.Float("averageItemsPerSecond", c.PerSecond),
		outline.Int("totalItemsProcessed", c.Total), outline.Int("countSinceLastMeasurement", c.SinceLast),
	)
	o.List("extraStatistics", "measurement", len(c.Latencies), func(i int) {
		o.Leaves(outline.Text("key", c.Latencies[i].Name), outline.Float("value", c.Latencies[i].Value))
	})
	o.Leaves(
		outline.Int("availableSlots", int64(c.AvailableSlots)), outline.Int("inFlightMessages", int64(c.InFlight)),
		outline.Text("connectionName", c.Name),
	)
}
