package torture

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"maps"
	"math/rand/v2"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"text/tabwriter"
	"time"

	"github.com/annalsdb/annals/client"
	"github.com/annalsdb/annals/internal/clock"
	"github.com/annalsdb/annals/internal/vfs"
)

const (
	flipAlarm = time.Minute // within which nodes that answer differently must say so
	// within which a cluster is whole again, with what an operator does for it
	flipRecover = 90 * time.Second
	// an operator waits that long, then starts the node again, and then gives it an empty disk
	flipPatient = 15 * time.Second
	flipWriters = 3
	flipPause   = 20 * time.Millisecond // of a writer
	flipLook    = 8                     // streams that are compared after each flip
)

// flipKinds are the kinds of files of a node. The first pattern that fits counts.
var flipKinds = []struct{ kind, pattern string }{
	{"chunk as written", "chunk-*.000000"},
	{"rewritten chunk", "chunk-*"},
	{"checkpoint", "*.chk"},
	{"bloom filter", "index/*.bloomfilter"},
	{"indexmap", "index/indexmap"},
	{"existence filter", "index/stream-existence/*"},
	{"names of streams", "index/names/*"},
	{"postings", "index/postings"},
	{"index table", "index/????????-*"},
	{"other file of the index", "index/*"},
	{"Raft log", "raft/segments/*"},
	{"Raft log", "raft/log.db"},
	{"stable store", "raft/*.db"},
	{"Raft snapshot", "raft/snapshots/*"},
	{"other file of raft", "raft/*"},
	{"other file", "*"},
}

// kindOfFile names the kind of a file by its path in the data folder.
func kindOfFile(rel string) string {
	for _, k := range flipKinds {
		// Files in deeper folders have the folder's kind.
		for path := rel; ; path = filepath.Dir(path) {
			if ok, _ := filepath.Match(k.pattern, path); ok {
				return k.kind
			}
			if !strings.Contains(path, "/") {
				break
			}
		}
	}
	return "other file"
}

// flipCount is what became of the flips in files of one kind.
type flipCount struct{ flips, noticed, ended, replaced int }

// flipper changes single bits in files of nodes, one after the other, while clients write. It flips
// the next one when the cluster is whole again.
type flipper struct {
	*Workload
	c      Cluster
	http   *client.Client
	rng    *rand.Rand
	out    io.Writer
	find   *findings
	counts map[string]*flipCount

	mu sync.Mutex
	// what nodes that ended by themselves said, since the last flip
	tails map[int]string
}

// runFlips is torture --bit-flips.
func runFlips(ctx context.Context, o *options, seed uint64, dir string, out io.Writer) (_ *flipper, err error) {
	f := &flipper{http: newHTTP(nil), rng: rand.New(rand.NewPCG(seed, 9<<32)), out: out, counts: map[string]*flipCount{}, tails: map[int]string{}}
	defer f.http.Close()
	of := *o
	of.projections = false
	of.nodeOptions = append([]string{"--max-mem-table-size=500", "--stream-info-cache-capacity=64"}, o.nodeOptions...)
	if f.c, err = newLabCluster(&of, seed, dir, f.ended); err != nil {
		return nil, fmt.Errorf("set up the laboratory: %w", err)
	}
	defer func() { err = errors.Join(err, f.c.Close()) }()
	for i := range f.c.Voters() {
		if err := f.c.Start(ctx, i); err != nil {
			return nil, err
		}
	}
	if !f.whole(ctx, startupLimit) {
		return nil, errors.New("the cluster does not serve after its start")
	}
	var nodes []string
	for _, t := range f.c.Targets() {
		nodes = append(nodes, t.Base)
	}
	if f.Workload, err = StartWorkload(WorkloadOptions{Nodes: nodes, Seed: seed, Writers: flipWriters, Pause: flipPause}); err != nil {
		return nil, err
	}
	defer f.Close()
	f.find = f.load.find
	for n := range o.bitFlips {
		if n%20 == 0 {
			_ = clock.Sleep(ctx, 2*time.Second)
			f.scavenge(ctx)
		}
		if err := f.flip(ctx, n); err != nil || ctx.Err() != nil {
			return f, errors.Join(err, ctx.Err())
		}
		if f.find.total() > 0 { // Later findings may have the same cause.
			break
		}
	}
	f.Stop()
	return f, f.conclude(ctx)
}

// ended takes note of a node that ended by itself, which is as good as any alarm.
func (f *flipper) ended(node, code int, tail string) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.tails[node] = fmt.Sprintf("%s ended with code %d:\n%s", nodeName(node), code, tail)
}

// scavenge has all nodes rewrite what is complete, so that there are files of every kind.
func (f *flipper) scavenge(ctx context.Context) {
	for _, t := range f.c.Targets() {
		// One that does not answer is scavenged the next time.
		_, _ = exchange(ctx, f.http, t, client.Request{Method: http.MethodPost, Path: scavengePath + "?force=true"}, 5*time.Second)
	}
}

// choose picks a file, each kind as often as any other, and a bit of it.
func (f *flipper) choose(node int) (rel string, bit int64, err error) {
	byKind := map[string][]string{}
	var kinds []string
	_, root := f.c.Disk(node)
	err = filepath.WalkDir(root, func(path string, d fs.DirEntry, err error) error {
		if errors.Is(err, fs.ErrNotExist) || err == nil && !d.Type().IsRegular() {
			return nil
		}
		if err != nil {
			return err
		}
		info, err := d.Info()
		if err != nil || info.Size() == 0 {
			return nil
		}
		rel, err := filepath.Rel(root, path)
		if err != nil || strings.HasSuffix(rel, ".tmp") || strings.Contains(rel, ".lost-") {
			return err
		}
		kind := kindOfFile(rel)
		if byKind[kind] == nil {
			kinds = append(kinds, kind)
		}
		byKind[kind] = append(byKind[kind], rel)
		return nil
	})
	if err != nil || len(kinds) == 0 {
		return "", 0, err
	}
	files := byKind[kinds[f.rng.IntN(len(kinds))]]
	rel = files[f.rng.IntN(len(files))]
	info, err := os.Stat(filepath.Join(root, rel))
	if err != nil {
		return "", 0, err
	}
	return rel, f.rng.Int64N(8 * max(info.Size(), 1)), nil
}

// flipBit changes a bit of a file and returns the byte that it is now in.
func flipBit(files vfs.FS, name string, bit int64) (is byte, err error) {
	file, err := files.OpenReadWrite(name)
	if err != nil {
		return 0, err
	}
	defer func() { err = errors.Join(err, file.Close()) }()
	var b [1]byte
	if _, err := file.ReadAt(b[:], bit/8); err != nil {
		return 0, err
	}
	b[0] ^= 1 << (bit % 8)
	_, err = file.WriteAt(b[:], bit/8)
	return b[0], errors.Join(err, file.Sync())
}

// flip changes one bit of one node and waits until the cluster is whole again.
func (f *flipper) flip(ctx context.Context, n int) error {
	node := f.rng.IntN(f.c.Voters())
	if leader := f.leader(ctx); leader >= 0 && f.rng.IntN(2) == 0 {
		node = leader
	}
	stopped := f.rng.IntN(2) == 0
	if stopped {
		if err := f.c.Terminate(ctx, node); err != nil && !errors.Is(err, ErrStop) {
			return err
		}
	}
	rel, bit, err := f.choose(node)
	if err == nil && rel != "" {
		files, root := f.c.Disk(node)
		_, err = flipBit(files, filepath.Join(root, rel), bit)
	}
	// It was replaced just now.
	if errors.Is(err, fs.ErrNotExist) || errors.Is(err, io.EOF) || rel == "" {
		return f.c.Start(ctx, node)
	}
	if err != nil {
		return err
	}
	f.mu.Lock()
	clear(f.tails)
	f.mu.Unlock()
	kind := kindOfFile(rel)
	count := f.counts[kind]
	if count == nil {
		count = &flipCount{}
		f.counts[kind] = count
	}
	count.flips++
	how := "running"
	if stopped {
		how = "before a start"
	}
	begun := time.Now()
	if err := f.c.Start(ctx, node); err != nil {
		return err
	}
	_ = clock.Sleep(ctx, time.Second)
	text := fmt.Sprintf("bit %d of %s of %s, %s", bit, rel, nodeName(node), how)
	what := f.settle(ctx, node, count, text)
	// Else bits would gather on several nodes until none has a whole copy.
	if what == unmet && !stopped {
		f.restart(ctx, node, false)
		_ = clock.Sleep(ctx, time.Second)
		if what = f.settle(ctx, node, count, text+", then started again"); what != unmet {
			what = "by a start: " + what
		}
	}
	_, err = fmt.Fprintf(f.out, "flip %d: %s, %s, bit %d of %s of %s: %s after %.1f s; %d violations\n",
		n+1, kind, how, bit, rel, nodeName(node), what, time.Since(begun).Seconds(), f.find.total())
	return err
}

// unmet is what becomes of a bit that nothing has met.
const unmet = "nothing met it"

// nurse is what an operator does for one node.
type nurse struct {
	sick      time.Time // since when it is not ready; zero: it is
	restarted bool
	replaced  bool
}

// settle compares the nodes, and does what an operator would until the cluster is whole.
func (f *flipper) settle(ctx context.Context, node int, count *flipCount, text string) string {
	what := unmet
	streams := slices.Clone(f.load.plainStreams())
	f.rng.Shuffle(len(streams), func(i, j int) { streams[i], streams[j] = streams[j], streams[i] })
	streams = streams[:min(len(streams), flipLook)]
	begun, differs := time.Now(), time.Time{}
	nurses := make([]nurse, f.c.Voters())
	alarmed := false
	for ctx.Err() == nil {
		trouble := f.trouble(ctx, node)
		if trouble != "" && !alarmed {
			alarmed, what = true, "noticed"
		}
		difference := f.compare(ctx, streams)
		switch {
		case difference != "" && !alarmed:
			if differs.IsZero() {
				differs = time.Now()
			}
			if time.Since(differs) > flipAlarm {
				f.find.add(kindDivergence, "%s: %s, and no node says so within %s", text, difference, flipAlarm)
				return "nodes differ"
			}
		case difference == "" && f.whole(ctx, time.Second):
			if alarmed {
				count.noticed++
			}
			return what
		case time.Since(begun) > flipRecover:
			f.find.add(kindHeal, "%s: not whole after %s: %s %s; it logged last:\n%s", text, flipRecover, trouble, difference, f.c.LogTail(node))
			return "not healed"
		}
		if done := f.attend(ctx, nurses, count); done != "" {
			what = done
		}
		_ = clock.Sleep(ctx, 300*time.Millisecond)
	}
	return what
}

// attend starts a node again that has ended or is not ready for long, and gives it an empty disk
// when that does not help and the others are well.
func (f *flipper) attend(ctx context.Context, nurses []nurse, count *flipCount) (what string) {
	var sick []int
	for _, t := range f.c.Targets() {
		if n := &nurses[t.Index]; f.unready(ctx, t) == "" {
			n.sick = time.Time{}
		} else if sick = append(sick, t.Index); n.sick.IsZero() {
			n.sick = time.Now()
		}
	}
	for _, i := range sick {
		n := &nurses[i]
		down, long := !f.c.Running(i), time.Since(n.sick)
		switch {
		case !n.restarted && (down || long > flipPatient):
			n.restarted, n.sick = true, time.Now()
			what = "started again"
			if down {
				count.ended++
			}
			f.restart(ctx, i, false)
		case n.restarted && !n.replaced && len(sick) == 1 && (down || long > flipPatient):
			n.replaced, n.sick = true, time.Now()
			what = "replaced"
			count.replaced++
			f.restart(ctx, i, true)
		}
	}
	return what
}

func (f *flipper) restart(ctx context.Context, node int, empty bool) {
	err := f.c.Kill(node)
	if err == nil && empty {
		err = f.c.Wipe(node, false)
	}
	if err = errors.Join(err, f.c.Start(ctx, node)); err != nil {
		f.find.add(kindStop, "%s is started again: %v", nodeName(node), err)
	}
}

// trouble is what the nodes report about themselves, empty when all is well: a line in a log alone
// is not an alarm.
func (f *flipper) trouble(ctx context.Context, node int) string {
	f.mu.Lock()
	tail := f.tails[node]
	f.mu.Unlock()
	if tail != "" {
		return tail
	}
	for _, t := range f.c.Targets() {
		if what := f.unready(ctx, t); what != "" {
			return what
		}
	}
	return ""
}

// unready is what a node says when it should not be sent requests, empty when it should.
func (f *flipper) unready(ctx context.Context, t Target) string {
	a, err := exchange(ctx, f.http, t, client.Request{Method: http.MethodGet, Path: "/health/ready"}, 2*time.Second)
	switch {
	case err != nil:
		return fmt.Sprintf("%s: %v", t.Name, err)
	case a.Status != http.StatusNoContent:
		return a.String()
	}
	return ""
}

// whole waits until all nodes are ready and have a vote again: with one bit more, a cluster in
// which a new node has none yet has lost its majority.
func (f *flipper) whole(ctx context.Context, limit time.Duration) bool {
	for begun := time.Now(); ; {
		ready := 0
		for _, t := range f.c.Targets() {
			if f.unready(ctx, t) == "" {
				ready++
			}
		}
		if ready == f.c.Voters() && f.votes(ctx) == ready {
			return true
		}
		if time.Since(begun) > limit || clock.Sleep(ctx, 100*time.Millisecond) != nil {
			return false
		}
	}
}

// votes is how many nodes that are alive have a vote, as the leader knows it.
func (f *flipper) votes(ctx context.Context) (n int) {
	leader := f.leader(ctx)
	for _, t := range f.c.Targets() {
		if t.Index != leader {
			continue
		}
		a, err := exchange(ctx, f.http, t, client.Request{Method: http.MethodGet, Path: "/admin/cluster/members", Header: map[string]string{"Accept": "application/json"}}, 2*time.Second)
		if err != nil || a.Status != http.StatusOK {
			return 0
		}
		var members []struct{ IsAlive, Voter bool }
		if json.Unmarshal(a.Body, &members) != nil {
			return 0
		}
		for _, m := range members {
			if m.IsAlive && m.Voter {
				n++
			}
		}
	}
	return n
}

func (f *flipper) leader(ctx context.Context) int {
	for _, t := range f.c.Targets() {
		if v := (&watch{http: f.http}).ask(ctx, t); v.leads() {
			return t.Index
		}
	}
	return -1
}

// compare compares the streams that every node shows with the acknowledged events. It returns the
// first difference. Nodes that do not answer show none.
func (f *flipper) compare(ctx context.Context, streams []*stream) string {
	for _, stream := range streams {
		want := f.load.book.acknowledged(stream)
		for _, t := range f.c.Targets() {
			got, ok := f.read(ctx, t, stream.name)
			if !ok {
				continue
			}
			for n, id := range want {
				if got[n] != id {
					return fmt.Sprintf("event %d of %s is %q on %s, %s was acknowledged", n, stream.name, got[n], t.Name, id)
				}
			}
		}
	}
	return ""
}

// read reads a stream from a node.
func (f *flipper) read(ctx context.Context, t Target, stream string) (map[int64]string, bool) {
	got := map[int64]string{}
	for at := int64(0); ; {
		a, err := exchange(ctx, f.http, t, read(fmt.Sprintf("/streams/%s/%d/forward/1000?embed=rich", stream, at), false, 0), 5*time.Second)
		switch {
		case err == nil && a.Status == http.StatusNotFound:
			return got, true
		case err != nil || a.Status != http.StatusOK:
			return nil, false
		}
		p, err := client.ParsePage(a.Body)
		if err != nil {
			return nil, false
		}
		for i := range p.Entries {
			got[p.Entries[i].Number] = p.Entries[i].ID
		}
		if p.HeadOfStream || len(p.Entries) == 0 {
			return got, true
		}
		at = p.Entries[0].Number + 1
	}
}

// conclude starts all nodes again, so that they look at all their files, and compares everything.
func (f *flipper) conclude(ctx context.Context) error {
	for i := range f.c.Voters() {
		if err := errors.Join(f.c.Kill(i), f.c.Start(ctx, i)); err != nil {
			return err
		}
		f.whole(ctx, flipRecover)
	}
	if !f.whole(ctx, flipRecover) {
		f.find.add(kindHeal, "not whole %s after all nodes were started again", flipRecover)
	}
	f.Check(ctx)
	return ctx.Err()
}

// print writes what became of the flips, by kind of file.
func (f *flipper) print(out io.Writer) error {
	w := tabwriter.NewWriter(out, 0, 0, 2, ' ', 0)
	_, err := fmt.Fprintln(w, "file\tflips\tnoticed\tended the node\tdisk replaced")
	for _, k := range slices.Sorted(maps.Keys(f.counts)) {
		c := f.counts[k]
		_, ferr := fmt.Fprintf(w, "%s\t%d\t%d\t%d\t%d\n", k, c.flips, c.noticed, c.ended, c.replaced)
		err = errors.Join(err, ferr)
	}
	_, ferr := fmt.Fprintf(w, "%d events were acknowledged, %d violations\n", f.Acknowledged(), f.find.total())
	err = errors.Join(err, ferr, w.Flush())
	for _, v := range f.violations() {
		_, ferr := fmt.Fprintln(out, v)
		err = errors.Join(err, ferr)
	}
	return err
}
