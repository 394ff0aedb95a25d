package bench

import (
	"bytes"
	"context"
	"fmt"
	"math/rand/v2"
	"strconv"
)

// manyPosts writes an event to each of several streams with one request, over HTTP. The events have
// a tag of the worker.
type manyPosts struct {
	ids     *idSource
	streams int
	rest    []byte // of each event, after its id
	tag     string
	// whether no other event may have the tag but those that the worker knows
	condition bool
	after     []byte // the position of the last of them; empty: there is none
	req       request
	resp      response
}

func newManyPosts(o *options, rng *rand.Rand) *manyPosts {
	p := &manyPosts{ids: newIDs(), streams: max(1, o.toStreams), condition: o.condition, req: o.request("POST", "Content-Type: "+typeJSON)}
	p.tag = "bench:" + p.ids.next().String()
	p.rest = fmt.Appendf(nil, `","eventType":%q,"tags":[%q],"data":%s}`, eventType, p.tag, payload(o.size, rng))
	p.req.path, p.req.keep = []byte("/streams"), true
	return p
}

// write writes to the stream, and to those with the same name and a further number.
func (p *manyPosts) write(ctx context.Context, c *sender, stream []byte, _ int64) (int64, error) {
	b := append(p.req.body[:0], `{"events":[`...)
	for i := range p.streams {
		if i > 0 {
			b = append(b, ',')
		}
		b = append(append(b, `{"stream":"`...), stream...)
		if i > 0 {
			b = strconv.AppendInt(append(b, '-'), int64(i+1), 10)
		}
		b = append(p.ids.next().AppendTo(append(b, `","eventId":"`...)), p.rest...)
	}
	b = append(b, ']')
	if p.condition {
		b = fmt.Appendf(b, `,"conditions":[{"failIfEventsMatch":{"items":[{"tags":[%q]}]}`, p.tag)
		if len(p.after) > 0 {
			b = append(append(b, `,"after":`...), p.after...)
		}
		b = append(b, `}]`...)
	}
	p.req.body = append(b, '}')
	if err := c.expect(ctx, &p.req, &p.resp, 201); err != nil {
		return 0, err
	}
	_, position, ok := bytes.Cut(p.resp.body.Bytes(), []byte(`"position":`))
	end := bytes.IndexAny(position, ",}")
	if !ok || end < 0 {
		return 0, fmt.Errorf("%w: an answer without a position", errMalformed)
	}
	p.after = append(p.after[:0], bytes.TrimSpace(position[:end])...)
	return anyVersion, nil
}
