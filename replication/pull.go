package replication

import (
	"bufio"
	"cmp"
	"context"
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"sync/atomic"
	"time"

	"golang.org/x/time/rate"

	"github.com/annalsdb/annals/event"
	"github.com/annalsdb/annals/internal/bell"
	"github.com/annalsdb/annals/internal/clock"
	"github.com/annalsdb/annals/internal/logkey"
)

// puller fetches data that this node lacks. One goroutine does, for all that
// asked: a node that joins, raft when it got a snapshot whose data are not here,
// or a node that lost data.
type puller struct {
	self         *self
	peers        *peers
	incarnations *incarnations
	metrics      *clusterMetrics

	wake    chan struct{} // rung, it makes an attempt
	wanted  atomic.Int32  // waiting callers; it fetches while there are some
	round   atomic.Pointer[pullRound]
	active  atomic.Bool // it fetches
	err     reason      // why nothing more can come, ever
	limit   *rate.Limiter
	partial partial // a chunk file that is being fetched

	partly  atomic.Int64 // bytes there are of that file
	waiting reason       // why this node does not find the cluster that it is to join; nil: it does
}

// partial is a chunk file of which a part was fetched.
type partial struct {
	checksum, name string
	end            int64 // of the log with the whole file
}

// pullRound is closed when something was fetched, or an attempt ended.
type pullRound struct {
	done  chan struct{}
	end   int64 // of the sender's log, once done
	asked bool  // whether one answered, once done
	why   error // once done: why no node could be asked, or what the asked nodes said
}

const (
	pullPace = 100 * time.Millisecond // between two attempts while a caller waits

	// before a node that finds no cluster to join says so in its log
	waitSilently = 10 * time.Second
	// a cluster whose log grows by so much a second counts as written to
	busyBytes = 64 << 10
	fileBlock = 1 << 20

	worthALine = 1 << 20 // bytes fetched in one go

	// between looks at whether a file that was fetched in part is of use still
	partialPace = time.Second
)

func newPuller(h *incarnations, m *clusterMetrics) *puller {
	p := &puller{self: h.self, peers: h.peers, incarnations: h, metrics: m, wake: make(chan struct{}, 1), limit: rate.NewLimiter(rate.Inf, maxBlock)}
	p.round.Store(&pullRound{done: make(chan struct{})})
	return p
}

// level returns when this node has everything that the node it fetched from had.
func (p *puller) level(ctx context.Context) error {
	defer p.waiting.set(nil)
	next := time.Now().Add(waitSilently)
	return p.wait(ctx, func(r *pullRound) bool {
		own := p.self.end()
		if r.asked {
			p.waiting.set(nil)
			return own >= r.end
		}
		alone := p.alone(own, r.why)
		p.waiting.set(alone)
		if time.Now().After(next) {
			next = time.Now().Add(sayEvery)
			p.self.logger.Warn(alone.Error(), "db", p.self.opts.Replica.Dir)
		}
		return false
	})
}

var errNoSource = errors.New("no member of the leader's configuration answers")

// beyondError says that this node has more than the one that was asked.
type beyondError struct {
	address string
	end     int64
}

func (e *beyondError) Error() string {
	return fmt.Sprintf("the log of the node at %s ends at %d", e.address, e.end)
}

// until returns when this node's log reaches a position.
func (p *puller) until(ctx context.Context, end int64) error {
	return p.wait(ctx, func(*pullRound) bool { return p.self.deps.Load().Log.Tail().End >= end })
}

func (p *puller) wait(ctx context.Context, enough func(*pullRound) bool) error {
	p.wanted.Add(1)
	defer p.wanted.Add(-1)
	for {
		round := p.round.Load()
		bell.Ring(p.wake)
		select {
		case <-round.done:
			if err := p.err.get(); err != nil {
				return err
			}
			if enough(round) {
				return nil
			}
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}

// run fetches as long as a caller waits.
func (p *puller) run(ctx context.Context) {
	var said time.Time
	look := time.NewTicker(partialPace)
	defer look.Stop()
	for {
		select {
		case <-p.wake:
		case <-look.C:
			p.dropPassed()
			continue
		case <-ctx.Done():
			return
		}
		p.active.Store(true)
		begun := time.Now()
		before := p.self.end()
		progress, err := p.attempt(ctx)
		if fetched := p.self.end() - before; fetched > worthALine {
			p.self.logger.Info("data was fetched from other nodes", logkey.Bytes, fetched, logkey.End, p.self.end(), logkey.Took, time.Since(begun).Round(time.Millisecond))
		}
		p.active.Store(false)
		if err != nil && ctx.Err() == nil && time.Since(said) > p.self.opts.AdviceEvery {
			said = time.Now()
			p.self.logger.Warn("data could not be fetched from other nodes; this node tries again", logkey.Error, err)
		}
		if p.wanted.Load() > 0 && !progress {
			if clock.Sleep(ctx, pullPace) != nil {
				return
			}
		}
		if p.wanted.Load() > 0 {
			bell.Ring(p.wake)
		}
	}
}

// attempt asks one node after the other until one sends something or has nothing
// more. It reports whether the log grew.
func (p *puller) attempt(ctx context.Context) (progress bool, err error) {
	m := p.self.deps.Load()
	end, answered, why := int64(0), false, error(nil)
	defer func() {
		old := p.round.Swap(&pullRound{done: make(chan struct{})})
		old.end, old.asked, old.why = end, answered, why
		close(old.done)
	}()
	if m == nil {
		return false, nil
	}
	before := m.Log.Tail().End
	refusals, asked := 0, 0
	var refusal error
	sources, why := p.sources(ctx)
	if l := p.self.incarnation.Load(); why != nil && l != nil && l.fixed {
		err = why // Else the node has not joined yet, and says it itself.
	}
	for _, s := range sources {
		asked++
		last, err2 := p.fetch(ctx, m, s.address)
		err = errors.Join(err, err2)
		var refused *callError
		if errors.As(err2, &refused) && refused.Status == http.StatusRequestedRangeNotSatisfiable {
			why = &beyondError{address: s.address, end: s.status.Tail.End}
		}
		switch {
		case err2 == nil:
			end, answered = last.End, true
			return m.Log.Tail().End > before, nil
		case errors.As(err2, &refused) && refused.Status == http.StatusConflict:
			refusals++
			refusal = refused
		}
		if m.Log.Tail().End > before {
			return true, err
		}
	}
	// One node alone may be the one that is wrong. A replica that runs leaves the judgement to the
	// comparison of histories.
	if refusals > 0 && refusals == asked && p.self.replica.Load() == nil {
		p.err.set(fmt.Errorf("this node's data are not those of its cluster, and it cannot join: %w; "+
			"remove its data directory, and it fetches everything again", refusal))
	}
	return false, err
}

type source struct {
	address string
	status  Status
}

// sources are the members of the leader's configuration that can be asked, the best first: those
// that have more than this node, and of these rather one that does not lead.
func (p *puller) sources(ctx context.Context) ([]source, error) {
	p.peers.askAll(ctx)
	belongs, err := p.incarnations.origin()
	if err != nil {
		return nil, err
	}
	var list []source
	for _, m := range p.peers.others() {
		if s, ok := p.peers.heard(m.Node.String()); ok && s.status.Running && belongs(&s.status) {
			list = append(list, source{m.ReplicationAddress, s.status})
		}
	}
	if len(list) == 0 {
		return nil, errNoSource
	}
	own := p.self.deps.Load().Log.Tail().End
	rank := func(s source) int {
		switch {
		case s.status.Tail.End <= own && s.status.State != event.StateLeader:
			return 2
		case s.status.State == event.StateLeader:
			return 1
		}
		return 0
	}
	slices.SortStableFunc(list, func(a, b source) int {
		return cmp.Or(cmp.Compare(rank(a), rank(b)), cmp.Compare(b.status.Tail.End, a.status.Tail.End))
	})
	return list, nil
}

// fetch gets what this node lacks from one other, and returns that one's tail.
func (p *puller) fetch(ctx context.Context, m *Dependencies, address string) (event.Tail, error) {
	for {
		last, err := p.fetchFrames(ctx, m, address)
		if err != nil || last.File == nil {
			return last.Tail, err
		}
		if err := p.fetchFile(ctx, m, address, *last.File); err != nil {
			return last.Tail, err
		}
	}
}

func place(tail event.Tail) url.Values {
	return url.Values{"end": {strconv.FormatInt(tail.End, 10)}, "chain": {tail.Chain.String()}}
}

func (p *puller) fetchFrames(ctx context.Context, m *Dependencies, address string) (last framesEnd, err error) {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	stall := time.AfterFunc(stallAfter, cancel)
	defer stall.Stop()
	resp, err := p.peers.caller.request(ctx, address, http.MethodGet, "/frames?"+place(m.Log.Tail()).Encode(), nil)
	if err != nil {
		return last, err
	}
	defer func() { p.self.warnDebug(resp.Body.Close()) }()
	in := bufio.NewReaderSize(resp.Body, 256<<10)
	var head [blockHead]byte
	var block []byte
	for {
		if _, err := io.ReadFull(in, head[:]); err != nil {
			return last, fmt.Errorf("frames from %s end too early: %w", address, err)
		}
		position, n := int64(binary.LittleEndian.Uint64(head[:])), binary.LittleEndian.Uint32(head[8:])
		if n > maxBlock {
			return last, fmt.Errorf("frames from %s: a block of %d bytes", address, n)
		}
		block = slices.Grow(block[:0], int(n))[:n]
		if _, err := io.ReadFull(in, block); err != nil {
			return last, fmt.Errorf("frames from %s end too early: %w", address, err)
		}
		stall.Reset(stallAfter)
		if position == -1 {
			if err := json.Unmarshal(block, &last); err != nil {
				return last, fmt.Errorf("frames from %s: %w", address, err)
			}
			return last, nil
		}
		if err := p.throttle(ctx, len(block)); err != nil {
			return last, err
		}
		stall.Reset(stallAfter)
		if err := p.self.markPulled(); err != nil {
			return last, err
		}
		fresh, err := m.Data.AppendFrames(position, block)
		if err != nil {
			return last, fmt.Errorf("frames from %s: %w", address, err)
		}
		p.fetched(len(block))
		p.metrics.fetchedFrames.Add(uint64(fresh))
	}
}

// fetchFile gets a chunk file, beginning where an earlier attempt ended.
func (p *puller) fetchFile(ctx context.Context, m *Dependencies, address string, file ChunkFile) (err error) {
	if !file.plausible() {
		return fmt.Errorf("node at %s describes a chunk file of %d bytes with checksum %q", address, file.Size, file.Checksum)
	}
	f, err := p.tempFile(m, &file)
	if err != nil {
		return err
	}
	name := p.partial.name
	closed := false
	defer func() {
		if !closed {
			err = errors.Join(err, f.Close())
		}
	}()
	offset, err := f.Size()
	if err != nil {
		return err
	}
	p.partly.Store(offset)
	if offset > 0 {
		p.metrics.resumed.Inc()
	}
	if offset < file.Size {
		query := place(m.Log.Tail())
		query.Set("offset", strconv.FormatInt(offset, 10))
		query.Set("checksum", file.Checksum)
		if err := p.receive(ctx, address, "/chunk?"+query.Encode(), file, f, offset, stallAfter, p.partly.Store); err != nil {
			return err
		}
	}
	closed = true
	if err := errors.Join(f.Sync(), f.Close()); err != nil {
		return err
	}
	if err := p.self.markPulled(); err != nil {
		return err
	}
	p.partial = partial{}
	defer p.partly.Store(0)
	if err := m.Data.InstallChunk(name); err != nil {
		return errors.Join(fmt.Errorf("chunk file from %s: %w", address, err), m.Data.DropTemp(name))
	}
	p.metrics.fetchedFiles.Inc()
	return nil
}

// fetched counts bytes that came from another node.
func (p *puller) fetched(bytes int) {
	p.metrics.fetchedBytes.Add(uint64(bytes))
	p.metrics.lastFetch.Set(time.Now().Unix())
}

// tempFile opens the part of a chunk file that was fetched before, or begins an empty one.
func (p *puller) tempFile(m *Dependencies, file *ChunkFile) (TempFile, error) {
	if p.partial.checksum == file.Checksum {
		return m.Data.OpenTemp(p.partial.name)
	}
	p.dropPartial(m)
	f, name, err := m.Data.CreateTemp()
	if err == nil {
		p.partial = partial{file.Checksum, name, file.End}
	}
	return f, err
}

// dropPassed removes a chunk file that was fetched in part when this node has got on
// without it: by frames of another node, or because raft had the entries.
func (p *puller) dropPassed() {
	if m := p.self.deps.Load(); m != nil && m.Log.Tail().End >= p.partial.end {
		p.dropPartial(m)
	}
}

func (p *puller) dropPartial(m *Dependencies) {
	if p.partial.name != "" {
		p.partly.Store(0)
		p.self.warn("remove a chunk file that was fetched in part", m.Data.DropTemp(p.partial.name))
		p.partial = partial{}
	}
}

// throttle slows fetching down while the cluster is being written to: the nodes
// that send need their disk and processor for that. It never goes below twice what
// is written, or this node would not catch up.
func (p *puller) throttle(ctx context.Context, n int) error {
	want := rate.Inf
	growth, known := p.peers.growth()
	if most := p.self.opts.CatchUpRate; most > 0 && (!known || growth > busyBytes) {
		want = rate.Limit(max(float64(most), 2*growth))
	}
	if p.limit.Limit() != want {
		p.limit.SetLimit(want)
	}
	if want == rate.Inf {
		return nil
	}
	begun := time.Now()
	defer func() { p.metrics.throttled.Add(int64(time.Since(begun))) }()
	return p.limit.WaitN(ctx, min(n, maxBlock))
}

// stallAfter is when a transfer is called off in which nothing moves.
const stallAfter = 15 * time.Second

// alone says why a node with data and without consensus state, or with nothing, does not find
// the cluster that it is to join.
func (p *puller) alone(end int64, why error) error {
	var beyond *beyondError
	running := slices.ContainsFunc(p.peers.heardOthers(), func(p peer) bool { return p.status.Running })
	switch {
	case end > 0 && !running:
		return fmt.Errorf("restored data of cluster %s, end %d, and no member of that cluster answers: run annals cluster recover on the node with the newest copy", p.self.clusterID(), end)
	case errors.As(why, &beyond):
		return fmt.Errorf("restored data of cluster %s, end %d, which is more than the cluster has: the log of the node at %s ends at %d. "+
			"To keep the data beyond that, stop the others, rename their folders raft, and run annals cluster recover here; to give them up, remove this data directory",
			p.self.clusterID(), end, beyond.address, beyond.end)
	}
	return fmt.Errorf("waiting to join cluster %s: %w", p.self.clusterID(), cmp.Or(why, errNoSource))
}

// install is called before raft sees a snapshot that the leader sends: it
// waits until the data are here, for as long as the leader waits for an answer.
func (p *puller) install(ctx context.Context, _, _ uint64, content []byte) error {
	var m event.Snapshot
	if err := json.Unmarshal(content, &m); err != nil {
		return fmt.Errorf("read snapshot: %w", err)
	}
	return p.until(ctx, m.Tail.End)
}

// receive gets a chunk file from an offset on. The other node may take as long as first before it
// begins to send.
func (p *puller) receive(ctx context.Context, address, path string, file ChunkFile, into TempFile, offset int64, first time.Duration, got func(offset int64)) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	stall := time.AfterFunc(first, cancel)
	defer stall.Stop()
	resp, err := p.peers.caller.request(ctx, address, http.MethodGet, path, nil)
	if err != nil {
		return err
	}
	defer func() { p.self.warnDebug(resp.Body.Close()) }()
	buf := make([]byte, fileBlock)
	for offset < file.Size {
		n, err := io.ReadFull(resp.Body, buf[:min(int64(len(buf)), file.Size-offset)])
		if n > 0 {
			stall.Reset(stallAfter)
			if _, err := into.WriteAt(buf[:n], offset); err != nil {
				return err
			}
			offset += int64(n)
			got(offset)
			p.fetched(n)
		}
		if err != nil {
			return fmt.Errorf("chunk file from %s ends at %d of %d: %w", address, offset, file.Size, err)
		}
		if err := p.throttle(ctx, n); err != nil {
			return err
		}
		stall.Reset(stallAfter)
	}
	return nil
}
