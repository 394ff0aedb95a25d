package bootstrap

import (
	"context"
	"errors"
	"io/fs"
	"math/rand/v2"
	"path/filepath"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/annalsdb/annals/event"
	"github.com/annalsdb/annals/internal/check"
	"github.com/annalsdb/annals/internal/vfs"
)

// lan connects engines in one process: gossip and calls.
type lan struct {
	mu      sync.Mutex // guards all below
	nodes   map[string]*lanNode
	changed chan struct{} // closed at the next change
}

type lanNode struct {
	peer   Peer
	engine *Engine
}

func newLan() *lan { return &lan{nodes: map[string]*lanNode{}, changed: make(chan struct{})} }

func (l *lan) change(do func()) {
	l.mu.Lock()
	defer l.mu.Unlock()
	do()
	close(l.changed)
	l.changed = make(chan struct{})
}

// lanView is what one node sees: everybody.
type lanView struct {
	*lan
	self string
}

func (v lanView) Peers() []Peer {
	v.mu.Lock()
	defer v.mu.Unlock()
	var peers []Peer
	for address, n := range v.nodes {
		if address != v.self {
			peers = append(peers, n.peer)
		}
	}
	return peers
}

func (v lanView) Changed() <-chan struct{} {
	v.mu.Lock()
	defer v.mu.Unlock()
	return v.changed
}

func (l *lan) Call(_ context.Context, address string, r Request) (Answer, error) {
	l.mu.Lock()
	n := l.nodes[address]
	l.mu.Unlock()
	if n == nil || n.engine == nil {
		return Answer{}, errors.New("no node there")
	}
	return n.engine.Handle(r), nil
}

// join adds a node to the lan, as it starts.
func (l *lan) join(t *testing.T, address string, o Options) *Engine {
	t.Helper()
	node := check.Value(Identify(o.Store)).Must(t)
	view := lanView{l, address}
	o.Node, o.Peers, o.Changed, o.Call = node, view.Peers, view.Changed, l.Call
	e := check.Value(New(o)).Must(t)
	peer := Peer{Node: node, Cluster: o.Cluster, Address: address, ReadOnly: o.ReadOnly, Alive: true, ClusterSize: o.ClusterSize}
	l.change(func() { l.nodes[address] = &lanNode{peer, e} })
	return e
}

// memStore is a store that can fail.
type memStore struct {
	mu     sync.Mutex
	record Record
	saves  int
	fail   error
}

func (s *memStore) Load() (Record, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.record.Node.IsZero() {
		return Record{}, fs.ErrNotExist
	}
	return s.record, nil
}

func (s *memStore) Save(r Record) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.fail != nil {
		return s.fail
	}
	s.record = r
	s.saves++
	return nil
}

// TestStartOrders starts three to five nodes, surplus and read-only ones with
// them, in random orders: one cluster forms, soon after enough are there.
func TestStartOrders(t *testing.T) {
	seed := rand.Uint64()
	t.Logf("seed %d", seed)
	rng := rand.New(rand.NewPCG(seed, 0))
	for range 100 {
		synctest.Test(t, func(t *testing.T) { startOrder(t, rng) })
	}
}

func startOrder(t *testing.T, rng *rand.Rand) {
	l, size := newLan(), 3+rng.IntN(3)
	kinds := make([]bool, size+rng.IntN(3)) // whether read-only
	kinds = append(kinds, make([]bool, rng.IntN(2))...)
	if len(kinds) > size {
		kinds[len(kinds)-1] = true
	}
	rng.Shuffle(len(kinds), func(i, j int) { kinds[i], kinds[j] = kinds[j], kinds[i] })
	var (
		wg       sync.WaitGroup
		outcomes = make([]Outcome, len(kinds))
		stores   = make([]memStore, len(kinds))
		ended    = make([]time.Time, len(kinds))
		begin    time.Time // of the last start
	)
	for i, readOnly := range kinds {
		address := string('a' + rune(i))
		e := l.join(t, address, Options{ClusterSize: size, ReadOnly: readOnly, Store: &stores[i]})
		begin = time.Now()
		wg.Go(func() {
			outcome, err := e.Run(t.Context())
			check.NoError(t, err)
			outcomes[i], ended[i] = outcome, time.Now()
			l.change(func() { l.nodes[address].peer.Cluster = outcome.Cluster })
		})
		if rng.IntN(2) == 0 {
			time.Sleep(time.Duration(rng.IntN(300)) * time.Millisecond)
		}
	}
	wg.Wait()
	formed := 0
	for i, outcome := range outcomes {
		if outcome.Cluster != outcomes[0].Cluster || outcome.Cluster.IsZero() {
			t.Errorf("outcomes %+v", outcomes)
		}
		if outcome.Form {
			formed++
			if kinds[i] {
				t.Error("a read-only node formed the cluster")
			}
		}
		if took := ended[i].Sub(begin); took > time.Second {
			t.Errorf("node %d took %v", i, took)
		}
	}
	check.Equal(t, formed, 1, "nodes formed a cluster", outcomes)
}

// TestProposerStartsAgain loses the proposer between forming and telling.
func TestProposerStartsAgain(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l, dir := newLan(), t.TempDir()
		files := make([]Store, 3)
		for i := range files {
			files[i] = FileStore(vfs.OS, filepath.Join(dir, string('a'+rune(i))))
			check.Must(t, files[i].Save(Record{Node: id(byte(i + 1))}))
		}
		var others [3]Outcome
		var wg sync.WaitGroup
		for i := range 3 {
			e := l.join(t, string('a'+rune(i)), Options{ClusterSize: 3, Store: files[i]})
			if i == 0 {
				// reaches others, and cannot be reached
				l.change(func() { l.nodes["a"].engine = nil })
				go func() {
					outcome, err := e.Run(t.Context())
					if err != nil || !outcome.Form {
						t.Errorf("%+v, %v", outcome, err)
					}
				}()
				continue
			}
			wg.Go(func() {
				outcome, err := e.Run(t.Context())
				check.NoError(t, err)
				others[i] = outcome
			})
		}
		time.Sleep(time.Minute)
		synctest.Wait()
		record, err := files[0].Load()
		if err != nil || !record.Formed || !others[1].Cluster.IsZero() {
			t.Fatalf("%+v, %v, %+v", record, err, others)
		}
		again := l.join(t, "a", Options{ClusterSize: 3, Store: files[0]})
		outcome := check.Value(again.Run(t.Context())).Must(t)
		check.Equal(t, outcome, Outcome{record.Promise.Cluster, true}, "the record says", record)
		wg.Wait() // the others ask, after Run has returned
		joined := Outcome{Cluster: outcome.Cluster}
		if others[1] != joined || others[2] != joined {
			t.Errorf("others %+v, want %+v", others[1:], joined)
		}
	})
}

func TestHandleAroundRun(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l, store := newLan(), &memStore{record: Record{Node: id(2)}}
		l.nodes["x"] = &lanNode{peer: Peer{Node: id(1), Address: "x", Alive: true, ClusterSize: 2}}
		e := l.join(t, "a", Options{ClusterSize: 2, Store: store})
		p := proposal(50, 1, 2)
		ask := Request{Kind: Promise, From: id(1), Proposal: p}
		if a := e.Handle(ask); a.Refusal != NotRunning || a.Promise != nil {
			t.Errorf("before: %+v", a)
		}
		ctx, cancel := context.WithCancel(t.Context())
		ended := make(chan error, 1)
		go func() {
			_, err := e.Run(ctx)
			ended <- err
		}()
		synctest.Wait()
		if a := e.Handle(ask); a.Refusal != "" || !p.is(a.Promise) || !p.is(store.record.Promise) {
			t.Errorf("during: %+v", a)
		}
		check.Is(t, check.Err(e.Run(ctx)), ErrRan, "a second run")
		cancel()
		check.Is(t, <-ended, context.Canceled, "run ended with")
		if a := e.Handle(ask); a.Refusal != "" || !p.is(a.Promise) {
			t.Errorf("afterwards, of what it holds: %+v", a)
		}
		other := Request{Kind: Promise, From: id(1), Proposal: proposal(51, 1, 2)}
		if a := e.Handle(other); a.Refusal != NotRunning {
			t.Errorf("afterwards, of something new: %+v", a)
		}
		if a := e.Handle(Request{Kind: Ask}); a.Refusal != Invalid || a.Node != id(2) {
			t.Errorf("afterwards, of nonsense: %+v", a)
		}
	})
}

// TestFailedSave shows that a failed save stops everything, and that no node hears of what it would
// have saved.
func TestFailedSave(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l, broken := newLan(), errors.New("disk")
		store := &memStore{record: Record{Node: id(2)}}
		l.nodes["x"] = &lanNode{peer: Peer{Node: id(1), Address: "x", Alive: true, ClusterSize: 2}}
		e := l.join(t, "a", Options{ClusterSize: 2, Store: store})
		store.fail = broken
		ended := make(chan error, 1)
		go func() {
			_, err := e.Run(t.Context())
			ended <- err
		}()
		synctest.Wait()
		a := e.Handle(Request{Kind: Promise, From: id(1), Proposal: proposal(50, 1, 2)})
		if a.Promise != nil || a.Refusal != NotRunning {
			t.Errorf("answer %+v", a)
		}
		check.Is(t, <-ended, broken, "run ended with")
	})
}

// TestCallsEnd shows that Run ends with its context although no node answers.
func TestCallsEnd(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := newLan()
		l.nodes["x"] = &lanNode{peer: Peer{Node: id(1), Address: "x", Alive: true, ClusterSize: 2}}
		store := &memStore{record: Record{Node: id(2)}}
		e, err := New(Options{Node: id(2), ClusterSize: 2, Store: store, Peers: lanView{l, ""}.Peers, Changed: lanView{l, ""}.Changed, Call: deaf})
		check.Must(t, err)
		ctx, cancel := context.WithTimeout(t.Context(), 90*time.Second)
		defer cancel()
		check.Is(t, check.Err(e.Run(ctx)), context.DeadlineExceeded)
	})
}

// deaf takes every call and never answers.
func deaf(ctx context.Context, _ string, _ Request) (Answer, error) {
	<-ctx.Done()
	return Answer{}, ctx.Err()
}

func TestNewRefuses(t *testing.T) {
	good := func() Options {
		return Options{
			Node: id(1), ClusterSize: 3, Store: &memStore{record: Record{Node: id(1)}},
			Peers: lanView{newLan(), ""}.Peers, Changed: lanView{newLan(), ""}.Changed, Call: deaf,
		}
	}
	check.Must(t, check.Err(New(good())))
	formed := &memStore{record: Record{Node: id(1), Promise: proposal(50, 1, 2, 3), Formed: true}}
	for name, change := range map[string]func(o *Options){
		"no node":                   func(o *Options) { o.Node = event.ID{} },
		"another node's record":     func(o *Options) { o.Node = id(2) },
		"no record":                 func(o *Options) { o.Store = &memStore{} },
		"a bad record":              func(o *Options) { o.Store = &memStore{record: Record{Node: id(1), Formed: true}} },
		"no store":                  func(o *Options) { o.Store = nil },
		"no view":                   func(o *Options) { o.Peers = nil },
		"no caller":                 func(o *Options) { o.Call = nil },
		"no size":                   func(o *Options) { o.ClusterSize = 0 },
		"too large":                 func(o *Options) { o.ClusterSize = MaxClusterSize + 1 },
		"read-only and alone":       func(o *Options) { o.ClusterSize, o.ReadOnly = 1, true },
		"negative":                  func(o *Options) { o.GoneAfter = -1 },
		"formed one, is of another": func(o *Options) { o.Store, o.Cluster = formed, id(60) },
	} {
		t.Run(name, func(t *testing.T) {
			o := good()
			change(&o)
			check.Fails(t, check.Err(New(o)), "accepted")
		})
	}
}
