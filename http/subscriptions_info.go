package httpapi

import (
	"context"
	"errors"
	"math"
	"net/http"
	"strconv"

	"github.com/annalsdb/annals/http/atom"
	"github.com/annalsdb/annals/subscription"
)

var (
	errPageOffset  = badRequest("offset must be a non-negative integer.")
	errPageStreams = badRequest("count must be a positive integer.")
)

// groupPage is a part of the list of groups. It is counted in streams.
type groupPage struct {
	offset, count int64 // count 0: the whole list is asked for
}

// groupPageOf reads what part of the list is asked for.
func groupPageOf(query string) (p groupPage, err error) {
	offset, hasOffset := queryLookup(query, "offset")
	count, hasCount := queryLookup(query, "count")
	if !hasOffset && !hasCount {
		return p, nil
	}
	var ok bool
	if p.offset, ok = parseNumber(offset, math.MaxInt32); !ok && hasOffset {
		return p, errPageOffset
	}
	if p.count, ok = parseNumber(count, math.MaxInt32); !ok || p.count == 0 {
		return p, errPageStreams
	}
	return p, nil
}

// listGroups answers with all groups, or a page of them.
func (g *groupHandlers) listGroups(_ context.Context, x *exchange) error {
	page, err := groupPageOf(x.r.URL.RawQuery)
	if err != nil {
		return err
	}
	return g.way.lead(x, func(ctx context.Context) error {
		list, err := g.groups.List(ctx, "")
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

// listGroupsOfStream answers with the groups of one stream. When there is none,
// that is not found, and an empty list says so.
func (g *groupHandlers) listGroupsOfStream(_ context.Context, x *exchange) error {
	return g.way.lead(x, func(ctx context.Context) error {
		list, err := g.groups.List(ctx, x.route.stream)
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

// groupInfo answers with all that is known of a group.
func (g *groupHandlers) groupInfo(_ context.Context, x *exchange) error {
	return g.way.lead(x, func(ctx context.Context) error {
		info, err := g.groups.Info(ctx, groupKey(x))
		switch {
		case errors.Is(err, subscription.ErrNotFound):
			return problemNoRoute
		case err != nil:
			return err
		}
		o := groupOutline(x)
		o.root("subscriptionInfo", func() { detailGroup(x, &o, &info) })
		sendOutline(x, http.StatusOK, &o)
		return nil
	})
}

// positionField is the number of an event as a text; one below 0 is none.
func positionField(name string, k subscription.Key, n int64) field {
	if n < 0 {
		return nullField(name)
	}
	return textField(name, k.Position(n))
}

func summaries(x *exchange, status int, list []subscription.Info) {
	o := groupOutline(x)
	o.rootList("arrayOfSubscriptionSummary", "subscriptionSummary", len(list), func(i int) { groupSummary(x, &o, &list[i]) })
	sendOutline(x, status, &o)
}

// pageOfSummaries answers with the groups of some of the streams.
func pageOfSummaries(x *exchange, p groupPage, list []subscription.Info) {
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
	o.root("pagedSubscriptionInfo", func() {
		o.links(links)
		o.leaves(intField("offset", p.offset), intField("count", p.count), intField("total", total))
		o.list("subscriptions", "subscriptionSummary", len(list), func(i int) { groupSummary(x, &o, &list[i]) })
	})
	sendOutline(x, http.StatusOK, &o)
}

// pageURI is the address of a page of the list of groups.
func pageURI(x *exchange, offset, count int64) string {
	return string(x.origin()) + subscriptionsPath + "?offset=" + strconv.FormatInt(offset, 10) + "&count=" + strconv.FormatInt(count, 10)
}

// relatedLink is an address and what it is.
type relatedLink struct{ href, rel string }

func (o *outline) links(links []relatedLink) {
	o.list("links", "relLink", len(links), func(i int) {
		o.leaves(textField("href", links[i].href), textField("rel", links[i].rel))
	})
}

// groupAddresses are what documents about a group link to.
func groupAddresses(x *exchange, k subscription.Key) (group, parked string) {
	origin := string(x.origin())
	escaped := func(name string) string { return string(atom.AppendEscaped(nil, name)) }
	// Clients know the colons as they are.
	parked = origin + streamsPrefix + "%24persistentsubscription-" + escaped(k.Stream) + "::" + escaped(k.Group) + "-parked"
	return origin + string(atom.AppendGroupURI(nil, k)), parked
}

// groupSummary writes what lists tell of a group.
func groupSummary(x *exchange, o *outline, g *subscription.Info) {
	group, parked := groupAddresses(x, g.Key)
	o.links([]relatedLink{{group + "/" + segInfo, "detail"}})
	o.leaves(
		textField("eventStreamId", g.Stream), textField("groupName", g.Group), textField("parkedMessageUri", parked),
		textField("getMessagesUri", group+"/1"), textField("status", g.Status), floatField("averageItemsPerSecond", g.PerSecond),
		intField("totalItemsProcessed", g.Total), intField("lastProcessedEventNumber", max(0, g.Checkpoint)),
		positionField("lastCheckpointedEventPosition", g.Key, g.Checkpoint), intField("lastKnownEventNumber", max(0, g.LastKnown)),
		positionField("lastKnownEventPosition", g.Key, g.LastKnown), intField("connectionCount", int64(len(g.Connections))),
		intField("totalInFlightMessages", int64(g.Outstanding)),
	)
}

// detailGroup writes all that is known of a group.
func detailGroup(x *exchange, o *outline, g *subscription.Info) {
	group, parked := groupAddresses(x, g.Key)
	o.links([]relatedLink{{group + "/" + segInfo, "detail"}, {group + "/" + segReplay, segReplay}})
	o.object("config", func() { o.settings(g.Key, &g.Settings) })
	o.leaves(
		textField("eventStreamId", g.Stream), textField("groupName", g.Group), textField("status", g.Status),
		floatField("averageItemsPerSecond", g.PerSecond), textField("parkedMessageUri", parked), textField("getMessagesUri", group+"/1"),
		intField("totalItemsProcessed", g.Total), intField("countSinceLastMeasurement", g.SinceLast),
		intField("lastProcessedEventNumber", max(0, g.Checkpoint)), positionField("lastCheckpointedEventPosition", g.Key, g.Checkpoint),
		intField("lastKnownEventNumber", max(0, g.LastKnown)), positionField("lastKnownEventPosition", g.Key, g.LastKnown),
		intField("readBufferCount", int64(g.ReadBuffer)), intField("liveBufferCount", int64(g.LiveBuffer)),
		intField("retryBufferCount", int64(g.RetryBuffer)), intField("totalInFlightMessages", int64(g.Outstanding)),
		intField("outstandingMessagesCount", int64(g.Outstanding)),
	)
	o.list("connections", "connectionInfo", len(g.Connections), func(i int) { o.connection(&g.Connections[i]) })
	o.leaves(intField("parkedMessageCount", g.Parked))
	if g.Stalled != "" { // Ours: clients know the rest.
		o.leaves(textField("stalled", g.Stalled))
	}
}

func (o *outline) settings(k subscription.Key, s *subscription.Settings) {
	o.leaves(
		boolField("resolveLinktos", s.ResolveLinks), intField("startFrom", s.StartFrom),
		textField("startPosition", k.Position(s.StartFrom)), intField("messageTimeoutMilliseconds", s.MessageTimeout.Milliseconds()),
		boolField("extraStatistics", s.ExtraStatistics), intField("maxRetryCount", int64(s.MaxRetryCount)),
		intField("liveBufferSize", int64(s.LiveBufferSize)), intField("bufferSize", int64(s.BufferSize)),
		intField("readBatchSize", int64(s.ReadBatchSize)),
		intField("checkPointAfterMilliseconds", s.CheckpointAfter.Milliseconds()),
		intField("minCheckPointCount", int64(s.MinCheckpointCount)),
		intField("maxCheckPointCount", int64(s.MaxCheckpointCount)),
		intField("maxSubscriberCount", int64(s.MaxSubscriberCount)),
		textField("namedConsumerStrategy", string(s.Strategy)),
		boolField("preferRoundRobin", s.Strategy == subscription.RoundRobin),
	)
}

func (o *outline) connection(c *subscription.ConnectionInfo) {
	o.leaves(
		textField("from", c.From), textField("username", c.User), floatField("averageItemsPerSecond", c.PerSecond),
		intField("totalItemsProcessed", c.Total), intField("countSinceLastMeasurement", c.SinceLast),
	)
	o.list("extraStatistics", "measurement", len(c.Latencies), func(i int) {
		o.leaves(textField("key", c.Latencies[i].Name), floatField("value", c.Latencies[i].Value))
	})
	o.leaves(
		intField("availableSlots", int64(c.AvailableSlots)), intField("inFlightMessages", int64(c.InFlight)),
		textField("connectionName", c.Name),
	)
}
