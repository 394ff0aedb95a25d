package httpapi_test

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	"github.com/annalsdb/annals/internal/check"
)

// polled is a long poll that waits.
type polled struct {
	done chan answer
	end  time.Time
}

// poll begins a long poll and returns when it waits.
func (n *node) poll(ctx context.Context, path string, headers ...string) *polled {
	p := &polled{done: make(chan answer, 1)}
	go func() {
		a := n.doContext(ctx, "GET", path, "", admin(append(headers, "Accept", appJSON)...))
		p.end = time.Now()
		p.done <- a
	}()
	synctest.Wait()
	return p
}

func TestPoll(t *testing.T) {
	for _, c := range []struct {
		name, path string
		headers    []string
		set        func(*node)
		event      func(*node) // after a second; nil: nothing happens
		after      time.Duration
		status     int
		numbers    string
	}{
		{"event arrives", "/streams/s/2/forward/5", nil, nil, func(n *node) { n.put("s", "{}") }, time.Second, 200, "2"},
		{"event arrives below the page", "/streams/s/9/forward/5", nil, nil, func(n *node) { n.put("s", "{}") }, time.Second, 200, ""},
		{"stream appears", "/streams/new/0/forward/5", nil, nil, func(n *node) { n.put("new", "{}") }, time.Second, 200, "0"},
		{"another stream", "/streams/s/2/forward/5", nil, nil, func(n *node) { n.put("t", "{}") }, 5 * time.Second, 200, ""},
		{"time is over", "/streams/s/2/forward/5", nil, nil, nil, 5 * time.Second, 200, ""},
		{"missing stream", "/streams/new/0/forward/5", nil, nil, nil, 5 * time.Second, 404, ""},
		{"matching tag", "/streams/s/2/forward/5", []string{"If-None-Match", `"1;248368668"`}, nil, nil, 5 * time.Second, 304, ""},
		{"matching tag, event arrives", "/streams/s/2/forward/5", []string{"If-None-Match", `"1;248368668"`}, nil, func(n *node) { n.put("s", "{}") }, time.Second, 200, "2"},
		{"something to return", "/streams/s/1/forward/5", nil, nil, nil, 0, 200, "1"},
		{"hidden is not above", "/streams/s/0/forward/1", nil, func(n *node) { n.meta("s", `{"$tb":2}`) }, nil, 0, 200, ""},
		{"backward", "/streams/s/9/backward/1", nil, nil, nil, 0, 200, ""},
		{"hard-deleted", "/streams/s/2/forward/5", nil, func(n *node) { n.delete("s", "ES-HardDelete", "true") }, nil, 0, 410, ""},
		{"soft-deleted", "/streams/s/0/forward/5", nil, func(n *node) { n.delete("s") }, nil, 5 * time.Second, 404, ""},
		{"revived", "/streams/s/0/forward/5", nil, func(n *node) { n.delete("s") }, func(n *node) { n.put("s", "{}") }, time.Second, 200, "2"},
		{"metadata", "/streams/s/metadata/0/forward/5", nil, nil, func(n *node) { n.meta("s", "{}") }, time.Second, 200, "0"},
		{"log", "/streams/$all/" + position(200) + "/forward/5", nil, nil, func(n *node) { n.put("x", "{}") }, time.Second, 200, "0"},
		{"log, time is over", "/streams/$all/" + position(200) + "/forward/5", nil, nil, nil, 5 * time.Second, 200, ""},
		{"log, matching tag", "/streams/$all/" + position(200) + "/forward/5", []string{"If-None-Match", `"200;248368668"`}, nil, nil, 5 * time.Second, 304, ""},
		{"log, something to return", "/streams/$all/" + position(100) + "/forward/5", nil, nil, nil, 0, 200, "1"},
		{"filter", "/streams/$all/filtered/" + position(200) + "/forward/5?context=streamid&type=prefix&data=x", nil, nil, func(n *node) { n.put("y", "{}"); n.put("x", "{}") }, time.Second, 200, "0"},
		{"filter lets nothing pass", "/streams/$all/filtered/" + position(200) + "/forward/5?context=streamid&type=prefix&data=x", nil, nil, func(n *node) { n.put("y", "{}") }, 5 * time.Second, 200, ""},
	} {
		t.Run(c.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				n := newNode(t)
				n.filled("s", 2)
				if c.set != nil {
					c.set(n)
				}
				begin := time.Now()
				p := n.poll(t.Context(), c.path, append(c.headers, "ES-LongPoll", "5")...)
				if c.event != nil {
					time.Sleep(time.Second)
					c.event(n)
				}
				a := (<-p.done).is(t, c.status)
				check.Equal(t, p.end.Sub(begin), c.after, "took")
				if c.status == 200 {
					f := decode[feed](t, a)
					check.Equal(t, f.numbers(), c.numbers, "events")
				}
				n.store.Waits.Await(0)
			})
		})
	}
}

func TestPollIsFreed(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		for _, path := range []string{"/streams/s/2/forward/5", "/streams/$all/" + position(200) + "/forward/5"} {
			n := newNode(t)
			n.filled("s", 2)
			ctx, leave := context.WithCancel(t.Context())
			begin := time.Now()
			gone := n.poll(ctx, path, "ES-LongPoll", "60")
			n.store.Waits.Await(1)
			leave()
			<-gone.done
			n.store.Waits.Await(0)

			stays := n.poll(t.Context(), path, "ES-LongPoll", "60")
			n.store.Waits.Await(1)
			n.server.Drain()
			n.server.Drain()
			(<-stays.done).is(t, 200)
			late := n.poll(t.Context(), path, "ES-LongPoll", "60")
			(<-late.done).is(t, 200)
			check.Equal(t, time.Since(begin), 0, "took")
		}
	})
}
