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
	"sync"
	"sync/atomic"
	"time"

	"golang.org/x/time/rate"

	"github.com/annalsdb/annals/event"
)

// The stream of frames that a node sends to one that lacks them. All numbers are
// little-endian. Do not change without changing dataFormat:
//
//	block      position (8) · length (4) · whole frames as they lie in a chunk
//	last       -1 (8) · length (4) · JSON of framesEnd
const (
	blockHead  = 12
	blockBytes = 1 << 20
	maxBlock   = 17 << 20 // one frame of the greatest size
)

// framesEnd is what the sender says last.
type framesEnd struct {
	Tail event.Tail `json:"tail"`           // of the sender's log
	File *ChunkFile `json:"file,omitempty"` // what comes next is to be fetched as a file
}

// serveFrames sends what lies behind a log that ends at a position with a chain.
func (c *Cluster) serveFrames(w http.ResponseWriter, r *http.Request) {
	next, m, ok := c.continuation(w, r)
	if !ok {
		return
	}
	defer func() { c.self.warnDebug(next.Close()) }()
	w.Header().Set("Content-Type", "application/octet-stream")
	out := bufio.NewWriterSize(w, 64<<10)
	send := func(position int64, data []byte) error {
		var head [blockHead]byte
		binary.LittleEndian.PutUint64(head[:], uint64(position))
		binary.LittleEndian.PutUint32(head[8:], uint32(len(data)))
		if _, err := out.Write(head[:]); err != nil {
			return err
		}
		_, err := out.Write(data)
		return err
	}
	end := framesEnd{}
	if file, isFile := next.File(); isFile {
		end.File = &file
	} else {
		for {
			first, raw, err := next.Next(blockBytes)
			if errors.Is(err, io.EOF) {
				break
			}
			if err != nil {
				c.self.logger.Error("log could not be read for another node", keyError, err)
				return // The stream lacks its last block.
			}
			if err := send(first, raw); err != nil {
				return // The other node has gone, and asks again.
			}
			c.metrics.shipped.Add(uint64(len(raw)))
		}
	}
	end.Tail = m.Log.Tail()
	data, err := json.Marshal(end)
	if err != nil {
		c.self.logger.Error("describe the log's end", keyError, err)
		return
	}
	if err := send(-1, data); err == nil {
		c.self.warnDebug(out.Flush())
	}
}

// continuation finds what the request asks for, or answers why not.
func (c *Cluster) continuation(w http.ResponseWriter, r *http.Request) (Continuation, *Materials, bool) {
	m := c.self.materials.Load()
	query := r.URL.Query()
	end, err := strconv.ParseInt(query.Get("end"), 10, 64)
	chain, chainErr := event.ParseChain(query.Get("chain"))
	if err = errors.Join(err, chainErr); err != nil || m == nil {
		http.Error(w, fmt.Sprintf("no data, or a wrong request: %v", err), http.StatusBadRequest)
		return nil, nil, false
	}
	next, err := m.Data.Continue(end, chain)
	switch {
	case errors.Is(err, event.ErrOtherHistory):
		http.Error(w, err.Error(), http.StatusConflict)
	case errors.Is(err, event.ErrBeyondEnd):
		http.Error(w, err.Error(), http.StatusRequestedRangeNotSatisfiable)
	case err != nil:
		http.Error(w, err.Error(), http.StatusInternalServerError)
	default:
		return next, m, true
	}
	return nil, nil, false
}

// serveChunk sends a chunk file from an offset on.
func (c *Cluster) serveChunk(w http.ResponseWriter, r *http.Request) {
	next, _, ok := c.continuation(w, r)
	if !ok {
		return
	}
	defer func() { c.self.warnDebug(next.Close()) }()
	file, isFile := next.File()
	offset, err := strconv.ParseInt(r.URL.Query().Get("offset"), 10, 64)
	if !isFile || err != nil || offset < 0 || offset > file.Size || file.Checksum != r.URL.Query().Get("checksum") {
		http.Error(w, "there is no such chunk file any more", http.StatusGone)
		return
	}
	w.Header().Set("Content-Length", strconv.FormatInt(file.Size-offset, 10))
	n, err := io.Copy(w, io.NewSectionReader(next, offset, file.Size-offset))
	c.metrics.shipped.Add(uint64(n))
	if err != nil {
		c.self.logger.Debug("chunk file was not sent whole", keyError, err)
	}
}

// puller fetches data that this node lacks. One goroutine does, for whoever
// asked: a node that joins, raft when it got a snapshot whose data are not here,
// or a node that lost data.
type puller struct {
	c       *Cluster
	wake    chan struct{} // capacity 1
	wanted  atomic.Int32  // waiting callers; while there are some, it goes on
	round   atomic.Pointer[pullRound]
	active  atomic.Bool
	err     atomic.Pointer[error] // why nothing more can come, ever
	limit   *rate.Limiter
	partial partial // a chunk file that is being fetched

	partly atomic.Int64 // bytes there are of that file
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
	why   error // why nobody could be asked, or what all that were asked said, once done
}

const (
	pullPace = 100 * time.Millisecond // between two attempts while somebody waits

	waitSilently = 10 * time.Second // before a node that finds no cluster to join says so in its log
	busyBytes    = 64 << 10         // a cluster whose log grows by so much a second counts as written to
	fileBlock    = 1 << 20

	worthALine = 1 << 20 // bytes fetched in one go

	partialPace = time.Second // between looks at whether a file that was fetched in part is of use still
)

func newPuller(c *Cluster) *puller {
	p := &puller{c: c, wake: make(chan struct{}, 1), limit: rate.NewLimiter(rate.Inf, maxBlock)}
	p.round.Store(&pullRound{done: make(chan struct{})})
	return p
}

// kick asks for an attempt without waiting for it.
func (p *puller) kick() {
	select {
	case p.wake <- struct{}{}:
	default:
	}
}

func (p *puller) busy() bool { return p.active.Load() }

// level returns when this node has everything that the node it fetched from had.
func (p *puller) level(ctx context.Context) error {
	defer p.c.waiting.Store(nil)
	next := time.Now().Add(waitSilently)
	return p.wait(ctx, func(r *pullRound) bool {
		own := p.c.self.end()
		if r.asked {
			p.c.waiting.Store(nil)
			return own >= r.end
		}
		text := p.c.alone(own, r.why)
		p.c.waiting.Store(&text)
		if time.Now().After(next) {
			next = time.Now().Add(sayEvery)
			p.c.self.logger.Warn(text, "db", p.c.self.opts.Replica.Dir)
		}
		return false
	})
}

// alone says why a node with data and without consensus state, or with nothing, does not find
// the cluster that it is to join.
func (c *Cluster) alone(end int64, why error) string {
	var beyond *beyondError
	running := slices.ContainsFunc(c.peers.heardOthers(), func(s Status) bool { return s.Running })
	switch {
	case end > 0 && !running:
		return fmt.Sprintf("restored data of cluster %s, end %d, and no member of that cluster answers: run annals cluster recover on the node with the newest copy", c.self.clusterID(), end)
	case errors.As(why, &beyond):
		return fmt.Sprintf("restored data of cluster %s, end %d, which is more than the cluster has: the log of the node at %s ends at %d. "+
			"To keep what is beyond, stop the others, rename their folders raft, and run annals cluster recover here; to give it up, remove this data directory",
			c.self.clusterID(), end, beyond.address, beyond.end)
	}
	return fmt.Sprintf("waiting to join cluster %s: %v", c.self.clusterID(), cmp.Or(why, errNoSource))
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
	return p.wait(ctx, func(*pullRound) bool { return p.c.self.materials.Load().Log.Tail().End >= end })
}

func (p *puller) wait(ctx context.Context, enough func(*pullRound) bool) error {
	p.wanted.Add(1)
	defer p.wanted.Add(-1)
	for {
		round := p.round.Load()
		p.kick()
		select {
		case <-round.done:
			if err := p.err.Load(); err != nil {
				return *err
			}
			if enough(round) {
				return nil
			}
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}

// run fetches as long as somebody waits.
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
		before := p.c.self.end()
		progress, err := p.attempt(ctx)
		if fetched := p.c.self.end() - before; fetched > worthALine {
			p.c.self.logger.Info("data was fetched from other nodes", "bytes", fetched, "end", p.c.self.end(), "took", time.Since(begun).Round(time.Millisecond))
		}
		p.active.Store(false)
		if err != nil && ctx.Err() == nil && time.Since(said) > p.c.self.opts.AdviceEvery {
			said = time.Now()
			p.c.self.logger.Warn("data could not be fetched from other nodes; it is tried again", keyError, err)
		}
		if p.wanted.Load() > 0 && !progress {
			if waitSome(ctx, pullPace, nil) != nil {
				return
			}
		}
		if p.wanted.Load() > 0 {
			p.kick()
		}
	}
}

// attempt asks one node after the other until one sends something or has nothing
// more. It reports whether the log grew.
func (p *puller) attempt(ctx context.Context) (progress bool, err error) {
	m := p.c.self.materials.Load()
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
	if l := p.c.self.lineage.Load(); why != nil && l != nil && l.fixed {
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
	// One node alone may be the one that is wrong. A replica that runs leaves the judgement to the comparison of histories.
	if refusals > 0 && refusals == asked && p.c.self.replica.Load() == nil {
		fatal := fmt.Errorf("this node's data are not those of its cluster, and it cannot join: %w; "+
			"remove its data directory to have it fetch everything anew", refusal)
		p.err.Store(&fatal)
	}
	return false, err
}

type source struct {
	address string
	status  Status
}

// sources are the members of the leader's configuration that can be asked, the best first: those that have more
// than this node, and of these rather one that does not lead.
func (p *puller) sources(ctx context.Context) ([]source, error) {
	p.c.peers.askAll(ctx)
	belongs, err := p.c.histories.origin()
	if err != nil {
		return nil, err
	}
	var list []source
	for _, m := range p.c.peers.others() {
		if s, ok := p.c.peers.heard(m.Node.String()); ok && s.status.Running && belongs(&s.status) {
			list = append(list, source{m.ReplicationAddress, s.status})
		}
	}
	if len(list) == 0 {
		return nil, errNoSource
	}
	own := p.c.self.materials.Load().Log.Tail().End
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
func (p *puller) fetch(ctx context.Context, m *Materials, address string) (event.Tail, error) {
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

func (p *puller) fetchFrames(ctx context.Context, m *Materials, address string) (last framesEnd, err error) {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	stall := newStall(cancel)
	defer stall.stop()
	resp, err := p.c.caller.request(ctx, address, http.MethodGet, "/frames?"+place(m.Log.Tail()).Encode(), nil)
	if err != nil {
		return last, err
	}
	defer func() { p.c.self.warnDebug(resp.Body.Close()) }()
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
		stall.moved()
		if position == -1 {
			if err := json.Unmarshal(block, &last); err != nil {
				return last, fmt.Errorf("frames from %s: %w", address, err)
			}
			return last, nil
		}
		if err := p.throttle(ctx, len(block)); err != nil {
			return last, err
		}
		stall.moved()
		if err := p.c.self.markPulled(); err != nil {
			return last, err
		}
		fresh, err := m.Data.AppendFrames(position, block)
		if err != nil {
			return last, fmt.Errorf("frames from %s: %w", address, err)
		}
		p.fetched(len(block))
		p.c.metrics.fetchedFrames.Add(uint64(fresh))
	}
}

// fetchFile gets a chunk file, beginning where an earlier attempt ended.
func (p *puller) fetchFile(ctx context.Context, m *Materials, address string, file ChunkFile) (err error) {
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
		p.c.metrics.resumed.Inc()
	}
	if offset < file.Size {
		if err := p.fetchBytes(ctx, m, address, file, f, offset); err != nil {
			return err
		}
	}
	closed = true
	if err := errors.Join(f.Sync(), f.Close()); err != nil {
		return err
	}
	if err := p.c.self.markPulled(); err != nil {
		return err
	}
	p.partial = partial{}
	defer p.partly.Store(0)
	if err := m.Data.InstallChunk(name); err != nil {
		return errors.Join(fmt.Errorf("chunk file from %s: %w", address, err), m.Data.DropTemp(name))
	}
	p.c.metrics.fetchedFiles.Inc()
	return nil
}

// fetched counts bytes that came from another node.
func (p *puller) fetched(bytes int) {
	p.c.metrics.fetchedBytes.Add(uint64(bytes))
	p.c.metrics.lastFetch.Set(time.Now().Unix())
}

// tempFile opens what was fetched of a chunk file before, or begins anew.
func (p *puller) tempFile(m *Materials, file *ChunkFile) (TempFile, error) {
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
	if m := p.c.self.materials.Load(); m != nil && m.Log.Tail().End >= p.partial.end {
		p.dropPartial(m)
	}
}

func (p *puller) dropPartial(m *Materials) {
	if p.partial.name != "" {
		p.partly.Store(0)
		p.c.self.warn("remove a chunk file that was fetched in part", m.Data.DropTemp(p.partial.name))
		p.partial = partial{}
	}
}

func (p *puller) fetchBytes(ctx context.Context, m *Materials, address string, file ChunkFile, f TempFile, offset int64) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	stall := newStall(cancel)
	defer stall.stop()
	query := place(m.Log.Tail())
	query.Set("offset", strconv.FormatInt(offset, 10))
	query.Set("checksum", file.Checksum)
	resp, err := p.c.caller.request(ctx, address, http.MethodGet, "/chunk?"+query.Encode(), nil)
	if err != nil {
		return err
	}
	defer func() { p.c.self.warnDebug(resp.Body.Close()) }()
	buf := make([]byte, fileBlock)
	for offset < file.Size {
		n, err := io.ReadFull(resp.Body, buf[:min(int64(len(buf)), file.Size-offset)])
		if n > 0 {
			stall.moved()
			if _, err := f.WriteAt(buf[:n], offset); err != nil {
				return err
			}
			offset += int64(n)
			p.partly.Store(offset)
			p.fetched(n)
		}
		if err != nil {
			return fmt.Errorf("chunk file from %s ends at %d of %d: %w", address, offset, file.Size, err)
		}
		if err := p.throttle(ctx, n); err != nil {
			return err
		}
	}
	return nil
}

// throttle slows fetching down while the cluster is being written to: the nodes
// that send need their disk and processor for that. It never goes below twice what
// is written, or this node would not catch up.
func (p *puller) throttle(ctx context.Context, n int) error {
	want := rate.Inf
	growth, known := p.c.peers.growth.rate()
	if most := p.c.self.opts.CatchUpRate; most > 0 && (!known || growth > busyBytes) {
		want = rate.Limit(max(float64(most), 2*growth))
	}
	if p.limit.Limit() != want {
		p.limit.SetLimit(want)
	}
	if want == rate.Inf {
		return nil
	}
	begun := time.Now()
	defer func() { p.c.metrics.throttled.Add(int64(time.Since(begun))) }()
	return p.limit.WaitN(ctx, min(n, maxBlock))
}

// growth is how fast the cluster's log grows, as its nodes tell.
type growth struct {
	mu    sync.Mutex // guards what follows
	end   int64
	at    time.Time
	speed float64 // bytes a second
	known time.Time
}

const growthSpan = 500 * time.Millisecond // below that a measurement means little

// saw takes note of where the longest log ended at some time.
func (g *growth) saw(end int64, at time.Time) {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.at.IsZero() {
		g.end, g.at = end, at
		return
	}
	span := at.Sub(g.at)
	if span < growthSpan {
		return
	}
	if span < 10*peerPace {
		g.speed, g.known = float64(max(end-g.end, 0))/span.Seconds(), at
	}
	g.end, g.at = end, at
}

// rate returns the bytes a second of late; known is false when there was no chance to see.
func (g *growth) rate() (speed float64, known bool) {
	g.mu.Lock()
	defer g.mu.Unlock()
	return g.speed, time.Since(g.known) < 5*peerPace
}

// stall cancels a transfer in which nothing moves.
type stall struct{ timer *time.Timer }

const stallAfter = 15 * time.Second

func newStall(cancel func()) stall { return stall{time.AfterFunc(stallAfter, cancel)} }
func (s stall) moved()             { s.timer.Reset(stallAfter) }
func (s stall) stop()              { s.timer.Stop() }

// prepareInstall is called before raft sees a snapshot that the leader sends: it
// waits until the data are here, for as long as the leader waits for an answer.
func (c *Cluster) prepareInstall(ctx context.Context, _, _ uint64, manifest []byte) error {
	var m event.Manifest
	if err := json.Unmarshal(manifest, &m); err != nil {
		return fmt.Errorf("read manifest: %w", err)
	}
	return c.pull.until(ctx, m.Tail.End)
}
