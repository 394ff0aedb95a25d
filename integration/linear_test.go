package integration_test

import (
	"context"
	"fmt"
	"math/rand/v2"
	"net/http"
	"strconv"
	"sync"
	"testing"
	"time"

	"github.com/anishathalye/porcupine"

	"github.com/annalsdb/annals/internal/testkit"
)

// head is the state of one stream as one reading shows it: its last event.
type head struct {
	number int64 // -1: no event
	id     string
}

// call is one operation of a client on one stream.
type call struct {
	stream   string
	append   bool
	expected int64
	id       string
}

// result is what came back: of a reading the head, of an append whether it was
// done, and then the event's number, else the version that was in the way.
type result struct {
	done bool
	head head
}

// streamModel is an append-only list of which its end is seen.
var streamModel = porcupine.Model{
	Partition: func(history []porcupine.Operation) [][]porcupine.Operation {
		by := map[string][]porcupine.Operation{}
		for _, o := range history {
			stream := o.Input.(call).stream
			by[stream] = append(by[stream], o)
		}
		var parts [][]porcupine.Operation
		for _, part := range by {
			parts = append(parts, part)
		}
		return parts
	},
	Init: func() any { return head{number: -1} },
	Step: func(state, input, output any) (bool, any) {
		now, in, out := state.(head), input.(call), output.(result)
		switch {
		case !in.append:
			return out.head == now, now
		case !out.done:
			return in.expected != -2 && in.expected != now.number && out.head.number == now.number, now
		case in.expected != -2 && in.expected != now.number:
			return false, now
		}
		return out.head.number == now.number+1, head{now.number + 1, in.id}
	},
	DescribeOperation: func(input, output any) string {
		return fmt.Sprintf("%+v -> %+v", input, output)
	},
}

// TestLinearizable: appends and readings that demand the leader look as if each
// had happened at one moment between its request and its answer.
func TestLinearizable(t *testing.T) {
	const clients, streams = 16, 4
	duration := 5 * time.Second
	if testing.Short() {
		duration = time.Second
	}
	base := seed(t)
	node := testkit.StartNode(t, t.TempDir(), "--max-mem-table-size", "1000")
	ctx, cancel := context.WithTimeout(t.Context(), duration)
	defer cancel()
	begun := time.Now()
	histories := make([][]porcupine.Operation, clients)
	failures := make([]error, clients)
	var all sync.WaitGroup
	for c := range clients {
		all.Go(func() {
			rng := rand.New(rand.NewPCG(base, uint64(c)))
			known := map[string]int64{}
			for ctx.Err() == nil {
				in := call{stream: fmt.Sprintf("register-%d", rng.IntN(streams))}
				var event testkit.Event
				if rng.IntN(2) == 0 {
					event = newEvent(rng)
					in.append, in.id, in.expected = true, event.ID, -2
					if last, ok := known[in.stream]; ok && rng.IntN(4) > 0 {
						in.expected = last
					}
				}
				called := time.Since(begun)
				// Not the bounded context: an operation is never given up half-way.
				out, err := in.do(t.Context(), node, event)
				if err != nil {
					failures[c] = err
					return
				}
				known[in.stream] = out.head.number
				histories[c] = append(histories[c], porcupine.Operation{
					ClientId: c, Input: in, Call: int64(called), Output: out, Return: int64(time.Since(begun)),
				})
			}
		})
	}
	all.Wait()
	var history []porcupine.Operation
	for c := range clients {
		if failures[c] != nil {
			t.Fatalf("client %d: %v\n%s", c, failures[c], node.Output())
		}
		history = append(history, histories[c]...)
	}
	done, conflicts, readings := 0, 0, 0
	for _, o := range history {
		switch {
		case !o.Input.(call).append:
			readings++
		case o.Output.(result).done:
			done++
		default:
			conflicts++
		}
	}
	t.Logf("%d appends, %d conflicts, %d readings", done, conflicts, readings)
	if done == 0 || conflicts == 0 || readings == 0 {
		t.Error("the history is too poor to say anything")
	}
	if got := porcupine.CheckOperationsTimeout(streamModel, history, settleLimit); got != porcupine.Ok {
		t.Errorf("the history is not linearizable: %s", got)
	}
	node.Stop()
}

// do sends one operation.
func (in call) do(ctx context.Context, node *testkit.Process, event testkit.Event) (out result, err error) {
	if !in.append {
		feed, ok, err := node.ReadFeed(ctx, "/streams/"+in.stream+"/head/backward/1", map[string]string{testkit.HeaderRequireLeader: "True"})
		if err != nil || !ok {
			return result{head: head{number: -1}}, err
		}
		if len(feed.Entries) != 1 {
			return result{}, fmt.Errorf("a page of one event has %d", len(feed.Entries))
		}
		return result{head: head{feed.Entries[0].Number, feed.Entries[0].ID}}, nil
	}
	answer, err := node.Append(ctx, in.stream, in.expected, true, event)
	if err != nil {
		return result{}, err
	}
	if answer.Status == http.StatusCreated {
		number, err := answer.FirstNumber(in.stream)
		return result{done: true, head: head{number: number}}, err
	}
	current, err := strconv.ParseInt(answer.Header.Get(testkit.HeaderCurrentVersion), 10, 64)
	if answer.Status != http.StatusBadRequest || err != nil {
		return result{}, fmt.Errorf("append to %s: %s", in.stream, answer)
	}
	return result{head: head{number: current}}, nil
}
