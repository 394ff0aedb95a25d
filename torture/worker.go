package torture

import (
	"context"
	"errors"
	"math/rand/v2"
	"time"

	"github.com/annalsdb/annals/client"
	"github.com/annalsdb/annals/internal/clock"
)

// worker is one of those who work on the cluster: a client or an operator. It has one request in
// flight and remembers which node it prefers. Its choices follow from the seed and its number.
type worker struct {
	*load
	rng     *rand.Rand
	current string // base of the node to ask first, empty at the beginning
}

// Numbers of workers, above those of clients that have a journal and of what else has choices.
const (
	visitors = (16 + iota) << 32
	followers
	consumers
	groupOperator
	scavenges
	projections
	backups
	redactions
	indexes
	wardens
	visitsOfGuests
)

func (l *load) worker(number int) worker {
	return worker{load: l, rng: rand.New(rand.NewPCG(l.seed, uint64(number)))}
}

// employ gives a worker turns until the clients shall end. A turn returns the pause after it, or
// enough.
func (l *load) employ(turn func(context.Context) time.Duration) {
	l.work = append(l.work, func(ctx context.Context) {
		for pause := time.Duration(0); pause != enough && l.rest(ctx, l.spells.after(l.hist.now(), pause)); {
			pause = turn(ctx)
		}
	})
}

// enough ends a worker.
const enough = time.Duration(-1)

// pause is a time of so many milliseconds and up to as many more, by chance.
func (w *worker) pause(least, more int) time.Duration {
	return slower(time.Duration(least+w.rng.IntN(more))*time.Millisecond, w.slow)
}

// slower makes a time longer; 0 leaves it as it is.
func slower(d time.Duration, times float64) time.Duration {
	if times == 0 {
		return d
	}
	return time.Duration(float64(d) * times)
}

// choose returns the node to ask: the one that served before, else any.
func (w *worker) choose() Target {
	if t, ok := w.targets.at(w.current); ok {
		return t
	}
	return w.wander()
}

// wander moves to another node by chance and returns it.
func (w *worker) wander() Target {
	all := w.targets.all()
	if len(all) == 0 {
		return Target{Index: -1}
	}
	i := w.rng.IntN(len(all))
	if all[i].Base == w.current && len(all) > 1 {
		i = (i + 1 + w.rng.IntN(len(all)-1)) % len(all)
	}
	w.current = all[i].Base
	return all[i]
}

// do sends a request, follows redirects, and repeats nothing.
func (w *worker) do(ctx context.Context, to Target, r client.Request) (*answer, error) {
	return w.doWithin(ctx, to, r, w.timeout)
}

// doWithin is do with a time of its own.
func (w *worker) doWithin(ctx context.Context, to Target, r client.Request, limit time.Duration) (*answer, error) {
	r.Node, r.Login, r.Timeout = to.Base, to.Login, limit
	resp, err := w.http.Do(ctx, r)
	if err != nil {
		return nil, err
	}
	a := &answer{Response: resp}
	a.from, _ = w.targets.at(resp.Node)
	if len(resp.Via) > 0 {
		w.current = a.from.Base // Where redirects led is where the leader is.
	}
	return a, nil
}

// command sends a request until it is answered by something that says whether it was done. An
// answer that it was not is an error.
func (w *worker) command(ctx context.Context, r client.Request) (*answer, error) {
	for {
		a, err := w.do(ctx, w.choose(), r)
		result := judge(a, err)
		if err == nil {
			err = a.Err()
		}
		if result == done || result == conflict {
			return a, err
		}
		w.wander()
		if clock.Sleep(ctx, 100*time.Millisecond) != nil {
			return nil, errors.Join(ctx.Err(), err)
		}
	}
}
