package access

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"net/netip"
	"reflect"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/annalsdb/annals/event"
	"github.com/annalsdb/annals/stats"
)

// hall is a waiting line in which every check takes a tenth of a second.
type hall struct {
	*testing.T
	turns *turns
	kind  *stats.Work
	stats *stats.Registry
	all   sync.WaitGroup

	mu     sync.Mutex
	served []string // names of checks in the order of their turns
	ended  []string // name and error of callers in the order of their ends
}

const checkTime = 100 * time.Millisecond

// inHall runs a test in a hall with so many slots, and checks that nothing is left in it.
func inHall(t *testing.T, slots int, f func(h *hall)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		r := new(stats.Registry)
		queue := r.Queue("Worker #1", "Workers", slots)
		h := &hall{T: t, turns: newTurns(slots, queue, newMetrics(r)), kind: queue.Work("CheckPassword"), stats: r}
		f(h)
		h.all.Wait()
		w := h.turns
		w.mu.Lock()
		defer w.mu.Unlock()
		if len(w.lines)+len(w.sources)+len(w.shared)+w.checks[known]+w.checks[unknown] != 0 {
			t.Errorf("left: %d lines, %d sources, %d shared, %d checks", len(w.lines), len(w.sources), len(w.shared), w.checks)
		}
		if !w.hall.TryAcquire(int64(slots)) || !w.classes[unknown].TryAcquire(int64(slots)) || !w.classes[known].TryAcquire(int64(knownTurns*slots)) {
			t.Error("a gate is held")
		}
		if n := queue.Statistics().Length; n != 0 || w.metrics.waiting.Value() != 0 {
			t.Errorf("%d in the queue's metrics, %d waiting in the metrics", n, w.metrics.waiting.Value())
		}
	})
}

// at names a line: "address/login".
func (h *hall) at(line string) place {
	address, login, _ := strings.Cut(line, "/")
	return h.turns.place(originOf(address+":1000"), login)
}

// enter sends a caller in and returns when it waits, works or is refused.
func (h *hall) enter(ctx context.Context, name, line string, d *digest, o outcome) {
	h.all.Go(func() {
		v, err := h.turns.do(ctx, h.at(line), d, h.kind, func() result {
			h.mu.Lock()
			h.served = append(h.served, name)
			h.mu.Unlock()
			time.Sleep(checkTime)
			return result{verdict: verdict{principal: Principal{Login: name}}, outcome: o}
		})
		if err == nil && d == nil && v.principal.Login != name {
			h.Errorf("%s has the verdict of %s", name, v.principal.Login)
		}
		end := name
		switch {
		case errors.Is(err, event.ErrBusy):
			end += " busy"
		case err != nil:
			end += " " + err.Error()
		}
		h.mu.Lock()
		defer h.mu.Unlock()
		h.ended = append(h.ended, end)
	})
	synctest.Wait()
}

func (h *hall) wantServed(want ...string) {
	h.Helper()
	h.all.Wait()
	if !reflect.DeepEqual(h.served, want) {
		h.Errorf("served %q\nwant   %q", h.served, want)
	}
}

func (h *hall) wantEnded(want ...string) {
	h.Helper()
	h.mu.Lock()
	defer h.mu.Unlock()
	if len(h.ended) != len(want) || len(want) > 0 && !reflect.DeepEqual(h.ended, want) {
		h.Errorf("ended %q\nwant  %q", h.ended, want)
	}
}

func TestOrderOfTurns(t *testing.T) {
	type caller struct{ name, line string }
	cases := []struct {
		name    string
		known   []string
		callers []caller
		want    []string
	}{
		{name: "first come, first served", callers: []caller{{"1", "192.0.2.1/x"}, {"2", "192.0.2.1/x"}, {"3", "192.0.2.1/x"}}, want: []string{"1", "2", "3"}},
		{name: "lines of one address", callers: []caller{
			{"x1", "192.0.2.1/x"}, {"x2", "192.0.2.1/x"}, {"x3", "192.0.2.1/x"}, {"y1", "192.0.2.1/y"}, {"z1", "192.0.2.1/z"}, {"z2", "192.0.2.1/z"},
		}, want: []string{"x1", "y1", "z1", "x2", "z2", "x3"}},
		{name: "addresses", callers: []caller{
			{"ax1", "192.0.2.1/x"}, {"ay1", "192.0.2.1/y"}, {"az1", "192.0.2.1/z"}, {"bx1", "192.0.2.2/x"}, {"bx2", "192.0.2.2/x"}, {"cx1", "192.0.2.3/x"},
		}, want: []string{"ax1", "bx1", "cx1", "ay1", "bx2", "az1"}},
		{name: "three known to one other", known: []string{"192.0.2.1/k", "192.0.2.2/k", "192.0.2.3/k", "192.0.2.4/k", "192.0.2.5/k"}, callers: []caller{
			{"u1", "192.0.2.1/u"}, {"u2", "192.0.2.1/v"}, {"u3", "192.0.2.1/w"},
			{"k1", "192.0.2.1/k"}, {"k2", "192.0.2.2/k"}, {"k3", "192.0.2.3/k"}, {"k4", "192.0.2.4/k"}, {"k5", "192.0.2.5/k"},
		}, want: []string{"k1", "k2", "k3", "u1", "k4", "k5", "u2", "u3"}},
		{name: "known for one address only", known: []string{"192.0.2.1/k"}, callers: []caller{
			{"other", "192.0.2.2/k"}, {"known", "192.0.2.1/k"},
		}, want: []string{"known", "other"}},
		{name: "one half of an IPv6 address is one address", callers: []caller{
			{"1", "[2001:db8::1]/x"}, {"2", "[2001:db8::2]/x"}, {"3", "[2001:db8:0:1::1]/x"},
		}, want: []string{"1", "3", "2"}},
	}
	for _, c := range cases {
		t.Run(c.name, func(t *testing.T) {
			inHall(t, 1, func(h *hall) {
				for _, line := range c.known {
					h.turns.known.Add(h.at(line), nil)
				}
				h.enter(context.Background(), "holder", "192.0.2.99/holder", nil, notChecked)
				for _, c := range c.callers {
					h.enter(context.Background(), c.name, c.line, nil, notChecked)
				}
				h.wantServed(append([]string{"holder"}, c.want...)...)
			})
		})
	}
}

func TestOriginOf(t *testing.T) {
	cases := []struct{ remote, want string }{
		{"192.0.2.1:1234", "192.0.2.1"},
		{"[::ffff:192.0.2.1]:1234", "192.0.2.1"},
		{"[2001:db8:1:2:3:4:5:6]:1234", "2001:db8:1:2::"},
		{"[fe80::1%eth0]:1234", "fe80::"},
		{"@", ""},
		{"", ""},
	}
	for _, c := range cases {
		want := origin{}
		if c.want != "" {
			want.addr = netip.MustParseAddr(c.want)
		}
		if got := originOf(c.remote); got != want {
			t.Errorf("%q: got %v", c.remote, got)
		}
	}
}

func TestManagementTakesTurns(t *testing.T) {
	inHall(t, 1, func(h *hall) {
		h.enter(context.Background(), "holder", "192.0.2.99/holder", nil, notChecked)
		for i := range 4 {
			h.enter(context.Background(), fmt.Sprint("caller ", i), fmt.Sprint("192.0.2.1/", i), nil, notChecked)
		}
		h.all.Go(func() {
			// Only its place matters here.
			_, _ = h.turns.do(context.Background(), h.turns.place(management, "x"), nil, h.kind, func() result {
				h.served = append(h.served, "management")
				return result{}
			})
		})
		h.wantServed("holder", "management", "caller 0", "caller 1", "caller 2", "caller 3")
	})
}

func TestSlotsAreUsed(t *testing.T) {
	inHall(t, 3, func(h *hall) {
		begun := time.Now()
		for i := range 9 {
			h.enter(context.Background(), "", fmt.Sprint("192.0.2.1/", i), nil, notChecked)
		}
		h.all.Wait()
		if took := time.Since(begun); took != 3*checkTime {
			t.Errorf("took %v", took)
		}
	})
}

func TestFullLine(t *testing.T) {
	inHall(t, 1, func(h *hall) {
		ctx, cancel := context.WithCancel(context.Background())
		h.enter(context.Background(), "holder", "192.0.2.1/x", nil, notChecked)
		for range maxLine - 1 {
			h.enter(context.Background(), "", "192.0.2.1/x", nil, notChecked)
		}
		h.enter(ctx, "leaver", "192.0.2.1/x", nil, notChecked)
		h.wantEnded()
		h.enter(context.Background(), "17th", "192.0.2.1/x", nil, notChecked)
		h.enter(context.Background(), "other line", "192.0.2.1/y", nil, notChecked)
		h.wantEnded("17th busy")
		cancel()
		synctest.Wait()
		h.wantEnded("17th busy", "leaver wait for a password to be checked: context canceled")
		h.enter(context.Background(), "new", "192.0.2.1/x", nil, notChecked)
		h.wantEnded("17th busy", "leaver wait for a password to be checked: context canceled")
		if got := h.turns.metrics.lineFull.Value(); got != 1 {
			t.Errorf("%d refused", got)
		}
	})
}

// fill lets so many checks wait, each in a line of its own.
func (h *hall) fill(n int, line func(i int) string) {
	for i := range n {
		h.enter(context.Background(), line(i), line(i), nil, notChecked)
	}
}

func TestFullHall(t *testing.T) {
	oneAddress := func(i int) string { return fmt.Sprint("192.0.2.1/", i) }
	fiveAddresses := func(i int) string { return fmt.Sprintf("10.0.0.%d/%d", i%5, i) }
	manyAddresses := func(i int) string { return fmt.Sprintf("10.0.%d.%d/x", i/256, i%256) }
	cases := []struct {
		name     string
		line     func(i int) string
		waiting  int // so many of a thousand stay, with the one that holds the slot
		known    string
		newcomer string
		want     string
	}{
		{name: "one address leaves as much as it takes", line: oneAddress, waiting: 501, newcomer: "192.0.2.2/x"},
		{name: "and has no more", line: oneAddress, waiting: 501, newcomer: "192.0.2.1/new", want: "newcomer busy"},
		{name: "but where a login succeeded", line: oneAddress, waiting: 501, known: "192.0.2.1/new", newcomer: "192.0.2.1/new"},
		{name: "five leave as much as each takes", line: fiveAddresses, waiting: 834, newcomer: "192.0.2.2/x"},
		{name: "all alike", line: manyAddresses, waiting: 1000, newcomer: "192.0.2.2/x", want: "newcomer busy"},
		{name: "all alike but known", line: manyAddresses, waiting: 1000, known: "192.0.2.2/x", newcomer: "192.0.2.2/x"},
	}
	for _, c := range cases {
		t.Run(c.name, func(t *testing.T) {
			inHall(t, 1, func(h *hall) {
				if c.known != "" {
					h.turns.known.Add(h.at(c.known), nil)
				}
				h.enter(context.Background(), "holder", "192.0.2.99/holder", nil, notChecked)
				h.fill(maxWaiting, c.line)
				if n := h.turns.checks[unknown]; n != c.waiting {
					t.Errorf("%d wait, want %d", n, c.waiting)
				}
				h.ended = nil
				h.enter(context.Background(), "newcomer", c.newcomer, nil, notChecked)
				var want []string
				if c.want != "" {
					want = append(want, c.want)
				}
				h.wantEnded(want...)
			})
		})
	}
}

func TestMaxWait(t *testing.T) {
	inHall(t, 1, func(h *hall) {
		begun := time.Now()
		h.fill(150, func(i int) string { return fmt.Sprint("192.0.2.1/", i) })
		h.all.Wait()
		// One begins at the very moment when the others give up.
		if n := len(h.served); n != 100 && n != 101 {
			t.Errorf("%d were served", n)
		}
		if took := time.Since(begun); took > maxWait+checkTime {
			t.Errorf("took %v", took)
		}
		if got := h.turns.metrics.tooLong.Value(); int(got) != 150-len(h.served) {
			t.Errorf("%d waited too long", got)
		}
	})
}

func TestFailuresAreSlowed(t *testing.T) {
	inHall(t, 1, func(h *hall) {
		// pause returns how long a check waits that comes right after the last one.
		pause := func(line string, o outcome) time.Duration {
			h.enter(context.Background(), "", line, nil, o)
			begun := time.Now()
			h.all.Wait()
			return time.Since(begun) - checkTime
		}
		var got []time.Duration
		for _, o := range []outcome{wasWrong, wasWrong, wasWrong, wasWrong, wasWrong, wasWrong, wasRight, wasWrong, notChecked, wasWrong, wasRight} {
			got = append(got, pause("192.0.2.1/x", o))
		}
		ms := time.Millisecond
		want := []time.Duration{0, 100 * ms, 200 * ms, 400 * ms, 800 * ms, time.Second, time.Second, 0, 100 * ms, 0, 200 * ms}
		if !reflect.DeepEqual(got, want) {
			t.Errorf("got  %v\nwant %v", got, want)
		}
		for range 3 {
			pause("192.0.2.1/x", wasWrong)
		}
		for _, other := range []string{"192.0.2.1/y", "192.0.2.2/x"} {
			if p := pause(other, wasRight); p != 0 {
				t.Errorf("%s waited %v", other, p)
			}
		}
		time.Sleep(failureMemory)
		if p := pause("192.0.2.1/x", wasWrong); p != 0 {
			t.Errorf("after a minute: %v", p)
		}
		if p := pause("192.0.2.1/x", wasRight); p != 100*ms {
			t.Errorf("the row continues after a minute: %v", p)
		}
	})
}

// A slowed line leaves its slot to others, and is left without a trace.
func TestRestingLine(t *testing.T) {
	inHall(t, 1, func(h *hall) {
		h.enter(context.Background(), "wrong", "192.0.2.1/x", nil, wasWrong)
		h.all.Wait()
		ctx, cancel := context.WithCancel(context.Background())
		h.enter(ctx, "slowed", "192.0.2.1/x", nil, notChecked)
		h.enter(context.Background(), "other", "192.0.2.1/y", nil, notChecked)
		cancel()
		h.wantServed("wrong", "other")
		time.Sleep(maxPause)
	})
}

func TestSameCredentialsAreCheckedOnce(t *testing.T) {
	inHall(t, 1, func(h *hall) {
		right, other := &digest{1}, &digest{2}
		ctx, cancel := context.WithCancel(context.Background())
		h.enter(context.Background(), "holder", "192.0.2.9/x", nil, notChecked)
		h.enter(ctx, "first", "192.0.2.1/x", right, wasRight)
		for range 99 {
			h.enter(context.Background(), "follower", "192.0.2.1/x", right, wasRight)
		}
		h.enter(context.Background(), "other", "192.0.2.1/x", other, wasRight)
		cancel() // One of the others enters in its place, after those who are there.
		synctest.Wait()
		time.Sleep(3 * checkTime / 2)
		h.enter(context.Background(), "latecomer", "192.0.2.1/x", right, wasRight)
		h.wantServed("holder", "other", "follower")
		if len(h.ended) != 103 {
			t.Errorf("%d have ended: %q", len(h.ended), h.ended)
		}
		for _, e := range h.ended {
			if strings.Contains(e, "busy") {
				t.Errorf("ended %q", e)
			}
		}
	})
}

// When a caller leaves and others wait for the same check, one of them enters the line for it.
func TestTurnOfOneWhoLeaves(t *testing.T) {
	for _, followers := range []int{0, 2} {
		t.Run(fmt.Sprint(followers, " followers"), func(t *testing.T) {
			inHall(t, 1, func(h *hall) {
				d := &digest{1}
				ctx, cancel := context.WithCancel(context.Background())
				h.enter(context.Background(), "holder", "192.0.2.9/x", nil, notChecked)
				h.enter(ctx, "leaver", "192.0.2.1/x", d, wasRight)
				for range followers {
					h.enter(context.Background(), "follower", "192.0.2.1/x", d, wasRight)
				}
				h.enter(context.Background(), "next", "192.0.2.2/x", nil, wasRight)
				h.wantEnded()
				cancel()
				synctest.Wait()
				h.wantEnded("leaver wait for a password to be checked: context canceled")
				want := []string{"holder", "next"}
				if followers > 0 {
					want = append(want, "follower")
				}
				h.wantServed(want...)
			})
		})
	}
}

func TestPanicFreesTheSlot(t *testing.T) {
	inHall(t, 1, func(h *hall) {
		d := &digest{1}
		var follower error
		func() {
			defer func() {
				if recover() == nil {
					t.Error("the panic was lost")
				}
			}()
			_, err := h.turns.do(context.Background(), h.at("192.0.2.1/x"), d, h.kind, func() result {
				h.all.Go(func() {
					v, err := h.turns.do(context.Background(), h.at("192.0.2.1/x"), d, h.kind, func() result { return result{} })
					follower = errors.Join(err, v.err)
				})
				synctest.Wait()
				panic("broken")
			})
			t.Errorf("got %v", err)
		}()
		h.all.Wait()
		if !errors.Is(follower, errInterrupted) {
			t.Errorf("the follower got %v", follower)
		}
		h.enter(context.Background(), "next", "192.0.2.1/x", nil, wasRight)
		h.wantServed("next")
	})
}

func TestMemoryIsBounded(t *testing.T) {
	inHall(t, 1, func(h *hall) {
		for i := range failedPlaces + knownPlaces + 200 {
			o := wasWrong
			if i%2 == 0 {
				o = wasRight
			}
			line := fmt.Sprintf("10.%d.%d.1/x", i/256, i%256)
			h.enter(context.Background(), "", line, nil, o)
			h.all.Wait()
		}
		if n, m := h.turns.failed.Len(), h.turns.known.Len(); n != failedPlaces || m != knownPlaces {
			t.Errorf("%d failed and %d known lines are remembered", n, m)
		}
	})
}

// Callers come and go at random; every one of them ends, and nothing is left.
func TestRandomCallers(t *testing.T) {
	seed := rand.Uint64()
	random := rand.New(rand.NewPCG(seed, 0))
	t.Logf("seed %d", seed)
	inHall(t, 2, func(h *hall) {
		const callers = 3000
		for i := range callers {
			ctx, cancel := context.WithTimeout(context.Background(), time.Duration(random.IntN(30_000))*time.Millisecond)
			defer cancel()
			line := fmt.Sprintf("192.0.2.%d/%d", random.IntN(8), random.IntN(40))
			var d *digest
			if random.IntN(2) == 0 {
				d = &digest{byte(random.IntN(3))}
			}
			h.enter(ctx, "", line, d, outcome(random.IntN(3)))
			if i%10 == 0 {
				time.Sleep(time.Duration(random.IntN(200)) * time.Millisecond)
			}
		}
		h.all.Wait()
		if len(h.ended) != callers || len(h.served) == 0 {
			t.Errorf("%d have ended, %d were served", len(h.ended), len(h.served))
		}
	})
}
