package node

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"reflect"
	"runtime"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/uuid"

	"github.com/annalsdb/annals/admin/chunklock"
	"github.com/annalsdb/annals/event"
	"github.com/annalsdb/annals/fsm"
	"github.com/annalsdb/annals/internal/check"
	eventlog "github.com/annalsdb/annals/log"
	"github.com/annalsdb/annals/replication"
	"github.com/annalsdb/annals/replication/raftdisk"
)

// patience bounds what a test waits for: a test that reaches it has found something.
const patience = 3 * time.Minute

// bare is a node of which only replication, state machine and log run.
type bare struct {
	t   testing.TB
	all *[]*bare
	dir string
	log *eventlog.Log
	*replication.Cluster
}

// startBare starts one on a loopback address that only its own cluster has: the system gives ports
// out again, and a process that gets one is found there by the nodes that knew it.
func startBare(t testing.TB, all *[]*bare, host, dir string) *bare {
	t.Helper()
	b := &bare{t: t, all: all, dir: dir}
	c := replication.NewCluster(replication.ClusterOptions{
		Replica: replication.Options{
			Options: raftdisk.Options{Dir: dir, TrailingEntries: 5}, ElectionTimeout: 500 * time.Millisecond, SnapshotEntries: 20,
			OnFatal: func(err error) { t.Errorf("fatal: %v", err) },
		},
		HasLog: func() (bool, error) {
			found, err := filepath.Glob(filepath.Join(dir, "chunk-*"))
			return len(found) > 0, err
		},
		OpenLog: func(cluster event.ID) (replication.Dependencies, error) {
			log, err := eventlog.Open(eventlog.Options{Dir: dir, ClusterID: cluster, OnFatal: func(err error) { t.Errorf("fatal: %v", err) }})
			if err != nil {
				return replication.Dependencies{}, err
			}
			b.log = log
			machine := fsm.NewMachine(log, nil, func(err error) { t.Errorf("fatal: %v", err) })
			return replication.Dependencies{
				FSM: machine, Decider: fsm.NewDecider(log.Facts, time.Now), Log: log,
				Data: data{log, machine, func() (*chunklock.Hold, error) { return new(chunklock.Lock).TryLock() }}, ClusterID: log.Cluster(), DirectoryID: log.Directory(),
			}, nil
		},
		Size: 3, Bind: host + ":0", GossipInterval: 200 * time.Millisecond,
		Seeds: func(context.Context) (list []string, err error) {
			seedsMu.Lock()
			defer seedsMu.Unlock()
			for _, o := range *all {
				if o.Cluster != nil {
					list = append(list, o.PeerAddr())
				}
			}
			return list, nil
		},
	})
	if err := c.Start(); err != nil {
		t.Fatal(errors.Join(err, c.Close()))
	}
	seedsMu.Lock()
	defer seedsMu.Unlock()
	b.Cluster = c
	*all = append(*all, b)
	return b
}

var seedsMu sync.Mutex

func (b *bare) stop() {
	seedsMu.Lock()
	*b.all = slices.DeleteFunc(*b.all, func(o *bare) bool { return o == b })
	seedsMu.Unlock()
	check.NoError(b.t, errors.Join(b.Cluster.Close(), b.log.Close()))
}

func until(t testing.TB, what string, is func() bool) {
	t.Helper()
	late := time.Now().Add(patience)
	tick := time.NewTicker(5 * time.Millisecond)
	defer tick.Stop()
	for !is() {
		if <-tick.C; time.Now().After(late) {
			t.Fatalf("never: %s", what)
		}
	}
}

func submit(t testing.TB, all *[]*bare, w *event.Write) {
	t.Helper()
	until(t, "write to "+w.Stream, func() bool {
		for _, b := range *all {
			if l, _ := b.Leadership(); l.Leading {
				ctx, cancel := context.WithTimeout(context.Background(), patience)
				_, err := b.Writes.Submit(ctx, w)
				cancel()
				if err == nil {
					return true
				}
			}
		}
		return false
	})
}

// chunk writes some events, and completes the chunk with a scavenge point.
func chunk(t testing.TB, all *[]*bare, n int) {
	for i := range 20 {
		submit(t, all, &event.Write{Stream: fmt.Sprint("s-", i%3), ExpectedVersion: event.AnyVersion, Events: []event.Proposed{{
			ID: event.ID(uuid.New()), Type: "t", Data: fmt.Appendf(nil, "chunk %d event %d", n, i),
		}}})
	}
	submit(t, all, &event.Write{Stream: event.ScavengePointsStream, ExpectedVersion: event.AnyVersion, Events: []event.Proposed{{
		ID: event.ID(uuid.New()), Type: event.TypeScavengePoint, Flags: event.FlagJSON, Data: []byte(`{"threshold":0}`),
	}}})
}

// alike waits until all hold the same log and show it: the tail moves a moment before reads do.
func alike(t testing.TB, all *[]*bare) {
	t.Helper()
	until(t, "all nodes hold the same log", func() bool {
		return !slices.ContainsFunc(*all, func(b *bare) bool {
			return b.log == nil || b.log.Tail() != (*all)[0].log.Tail() || b.log.Reads.Settled() != b.log.Tail().End
		})
	})
}

func (b *bare) read() (list []event.Resolved) {
	from := int64(0)
	for {
		page := check.Value(b.log.Reads.ReadAll(event.AllRead{From: from, Count: 500})).Must(b.t)
		if len(page.Events) == 0 {
			return list
		}
		list = append(list, page.Events...)
		from = page.Next
	}
}

func (b *bare) rewrite(first, last int) {
	b.t.Helper()
	if _, err := b.log.Chunks.Rewrite(b.t.Context(), eventlog.Rewrite{First: first, Last: last, Keep: everyThird}); err != nil {
		b.t.Fatal(err)
	}
}

func everyThird(s *eventlog.Stored) bool { return s.Number%3 == 2 || s.Stream[0] == '$' }

func (b *bare) files() (list []string) {
	chunks := check.Value(b.log.Chunks.List()).Must(b.t)
	for _, c := range chunks {
		list = append(list, fmt.Sprintf("%d-%d:%v", c.First, c.Last, c.Rewritten))
	}
	return list
}

// Nodes whose files were rewritten and merged, and whose Raft logs were erased, serve one that
// was away, even while it rewrites files of its own, and one that is new.
func TestRewrittenChunksAreFetched(t *testing.T) {
	for name, c := range map[string]rewrittenCase{
		"the one that was away rewrote nothing": {place: 1, peers: [][2]int{{0, 0}, {1, 3}, {4, 4}}, job: [2]int{2, 2}},
		"all merged, it differently":            {place: 2, own: [][2]int{{0, 0}, {1, 2}}, peers: [][2]int{{0, 1}, {2, 4}}, job: [2]int{1, 2}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			c.test(t)
		})
	}
}

// voters counts those that a node knows.
func voters(b *bare) (n int) {
	for _, m := range b.View().Members {
		if m.Voter {
			n++
		}
	}
	return n
}

type rewrittenCase struct {
	place      int // of its own
	own, peers [][2]int
	job        [2]int // what the one that was away is at when it is started again
}

func (c *rewrittenCase) test(t *testing.T) {
	var all []*bare
	host := fmt.Sprintf("127.%d.%d.%d", 128+os.Getpid()%64, c.place, 1+os.Getpid()/64%250)
	if runtime.GOOS != "linux" {
		host = "127.0.0.1" // Others have but the one.
	}
	dirs := []string{t.TempDir(), t.TempDir(), t.TempDir()}
	for _, dir := range dirs {
		startBare(t, &all, host, dir)
	}
	defer func() {
		for _, b := range slices.Clone(all) {
			b.stop()
		}
	}()
	until(t, "three voters", func() bool {
		return !slices.ContainsFunc(all, func(b *bare) bool { return voters(b) < 3 })
	})
	for n := range 3 {
		chunk(t, &all, n)
	}
	alike(t, &all)
	away := all[slices.IndexFunc(all, func(b *bare) bool { l, _ := b.Leadership(); return !l.Leading })]
	dir := away.dir
	for _, f := range c.own {
		away.rewrite(f[0], f[1])
	}
	away.stop()
	for n := range 3 {
		chunk(t, &all, 3+n)
	}
	alike(t, &all)
	for _, b := range all {
		for _, f := range c.peers {
			b.rewrite(f[0], f[1])
		}
		check.Must(t, b.EraseLog(t.Context(), b.log.Tail().End))
	}
	want := all[0].read()
	away = startBare(t, &all, host, dir)
	// Its own job is at a file that is replaced meanwhile, or that the one of the others begins in.
	begun, ended := make(chan struct{}), make(chan error, 1)
	go func() {
		_, err := away.log.Chunks.Rewrite(t.Context(), eventlog.Rewrite{First: c.job[0], Last: c.job[1], Keep: everyThird, Pace: func(ctx context.Context, _ int64) error {
			close(begun)
			for away.log.Tail().End <= 4*256<<20 {
				timer := time.NewTimer(5 * time.Millisecond)
				select {
				case <-timer.C:
				case <-ctx.Done():
					return ctx.Err()
				}
			}
			return nil
		}})
		ended <- err
	}()
	<-begun
	alike(t, &all)
	err := <-ended
	t.Logf("files %v, job: %v", away.files(), err)
	if !errors.Is(err, event.ErrChunkReplaced) && !slices.Contains(away.files(), fmt.Sprintf("%d-%d:true", c.job[0], c.job[1])) {
		t.Errorf("job: %v", err)
	}
	if replaced := slices.Contains(away.files(), fmt.Sprintf("%d-%d:true", c.peers[1][0], c.peers[1][1])); replaced && c.own != nil {
		t.Error("a file that was to be cut was taken whole")
	}
	for n := range 3 {
		if slices.Contains(away.files(), fmt.Sprintf("%d-%d:false", n, n)) {
			away.rewrite(n, n)
		}
	}
	if got := away.read(); !reflect.DeepEqual(got, want) {
		t.Errorf("reads %d events, want %d", len(got), len(want))
	}
	// One with an empty directory in its place.
	old := away.Node().String()
	away.stop()
	until(t, "the old one is removed", func() bool {
		return slices.ContainsFunc(all, func(b *bare) bool {
			// An attempt whose outcome was lost may have removed it.
			err := b.RemoveMember(t.Context(), old)
			return err == nil || strings.Contains(err.Error(), "is not a member of the cluster")
		})
	})
	fresh := startBare(t, &all, host, t.TempDir())
	until(t, "a log", func() bool { return fresh.Replica() != nil })
	alike(t, &all)
	if got := fresh.read(); !reflect.DeepEqual(got, want) {
		t.Errorf("reads %d events, want %d", len(got), len(want))
	}
	t.Logf("files %v", fresh.files())
	submit(t, &all, &event.Write{Stream: "after", ExpectedVersion: event.NoStream, Events: []event.Proposed{{ID: event.ID(uuid.New()), Type: "t"}}})
	alike(t, &all)
}
