package bench

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"sync"
	"time"

	"github.com/kurrent-io/KurrentDB-Client-Go/protos/kurrentdb/protocols/v1/streams"
)

const (
	partVisible = iota
	partAppend
)

// watching is the workload visible: the first worker appends an event and measures how long after
// the answer the event can be read at every node. The others append at the same time.
func watching(o *options) *workload {
	w := &workload{name: "visible", beside: o.workers > 1}
	if w.beside {
		w.parts = []string{"visible", "append"}
	}
	var nodes []*watchedNode
	w.setup = func(_ context.Context, s *session) error {
		for _, base := range o.bases {
			to, prefix, err := parseBase(base)
			if err != nil {
				return err
			}
			n := &watchedNode{
				client: newSender(to, prefix, s.how), follow: follow{o: o},
				req: o.request("GET", "Accept: "+typeAtom, "ES-LongPoll: "+strconv.Itoa(longPoll)),
			}
			n.client.slot, n.req.keep = ownConnection, true
			nodes = append(nodes, n)
		}
		return nil
	}
	w.operation = func(worker, workers int) operation {
		a := newAppend(o, worker, workers, partAppend)
		if worker > 0 {
			return a
		}
		return &watchOp{o: o, nodes: nodes, ids: newIDs(), writer: a.writer}
	}
	return w
}

// watchOp appends to a stream of its own, which no other run uses.
type watchOp struct {
	o     *options
	nodes []*watchedNode
	ids   *idSource
	writer
	stream string // as requests have it; empty: a new one is due
	next   int64  // number of its next event
}

// watchedNode waits for the event at one node.
type watchedNode struct {
	client *sender
	follow follow // over gRPC: the subscription to the stream
	req    request
	resp   response
	seen   time.Time
	err    error
}

// errInvisible says that an event that was acknowledged cannot be read for longer than --timeout.
var errInvisible = errors.New("acknowledged, but not visible")

// longPoll is how many seconds a node may hold an answer back.
const longPoll = 2

func (v *watchOp) begin() { v.stream = "" }

// close gives up the connections. The session does, at its end.
func (v *watchOp) close() {
	for _, n := range v.nodes {
		n.client.drop()
		n.follow.stay.end()
	}
}

func (v *watchOp) do(ctx context.Context, c *sender) (outcome, error) {
	if v.stream == "" {
		v.stream, v.next = v.o.prefix+"-visible-"+v.ids.next().String(), 0
		if !v.o.grpc {
			v.stream = inPath(v.stream)
		}
	}
	for _, n := range v.nodes {
		if v.o.grpc && (n.follow.stream != v.stream || n.follow.stay.ended()) {
			n.follow.stream = v.stream
			if err := n.follow.open(ctx, n.client); err != nil {
				return outcome{}, err
			}
		}
	}
	// Every node is asked before the append: it answers when the event is there.
	ctx, cancel := context.WithTimeout(ctx, v.o.timeout)
	defer cancel()
	stop := context.AfterFunc(ctx, func() {
		for _, n := range v.nodes {
			n.client.interrupt()
		}
	})
	defer stop()
	var waiting sync.WaitGroup
	for _, n := range v.nodes {
		waiting.Go(func() { n.err = n.await(ctx, v.stream, v.next) })
	}
	_, err := v.write(ctx, c, []byte(v.stream), anyVersion)
	answered := time.Now()
	if err != nil {
		cancel() // Whether it was written is not known.
	}
	waiting.Wait()
	took := time.Duration(0)
	for _, n := range v.nodes {
		if err == nil && n.err != nil {
			err = fmt.Errorf("%w at %s: %w", errInvisible, n.client.home.host, n.err)
		}
		took = max(took, n.seen.Sub(answered))
	}
	if err != nil {
		v.stream = ""
		return outcome{}, err
	}
	v.next++
	return outcome{part: partVisible, events: 1, bytes: int64(v.o.size), took: max(took, 1), rest: v.o.pause}, nil
}

// await returns when the stream has the event.
func (n *watchedNode) await(ctx context.Context, stream string, number int64) error {
	if n.follow.o.grpc {
		defer context.AfterFunc(ctx, n.follow.stay.end)()
		err := n.follow.receive(ctx, func(answer *streams.ReadResp) bool {
			e := answer.GetEvent().GetEvent()
			return e == nil || int64(e.StreamRevision) < number
		})
		n.seen = time.Now()
		return err
	}
	p := append(append(n.req.path[:0], "/streams/"...), stream...)
	n.req.path = append(strconv.AppendInt(append(p, '/'), number, 10), "/forward/1?embed=body"...)
	for {
		if err := n.client.do(ctx, &n.req, &n.resp); err != nil {
			return err
		}
		n.seen = time.Now()
		switch {
		case n.resp.status == 200 && countEntries(n.resp.body.Bytes()) > 0:
			return nil
		case n.resp.status != 200 && n.resp.status != 404:
			return refused(&n.resp)
		case ctx.Err() != nil:
			return ctx.Err()
		}
	}
}
