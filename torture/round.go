package torture

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net/http"
	"path/filepath"
	"strings"
	"sync"
	"time"

	"github.com/anishathalye/porcupine"

	"github.com/annalsdb/annals/client"
	"github.com/annalsdb/annals/internal/clock"
)

const (
	startupLimit = 60 * time.Second
	// afterwards is how long clients continue when the faults are over: a cluster that heals must
	// serve them again.
	afterwards = 3 * time.Second
	// drainLimit bounds how long subscribers may take to see everything in the end.
	drainLimit  = 45 * time.Second
	linearLimit = 60 * time.Second
	verifyLimit = 5 * time.Minute
	// clientsEnd bounds how long clients take to end after they were asked to. Each has at most one
	// request in flight.
	clientsEnd = 30 * time.Second
)

// round is one run against one cluster.
type round struct {
	o      *options
	seed   uint64
	faults []fault
	dir    string // of the cluster and of what is kept
	out    io.Writer
	// startup bounds how long the cluster may take to serve for the first time.
	startup time.Duration

	start time.Time
	find  *findings
	line  *timeline
	c     Cluster
	watch *watch
	load  *load
	http  *client.Client

	shedders  []*shedder
	followers []*follower
	subs      *subscriptions // nil without
	scavenger *scavenger     // nil without
	projector *projector     // nil without
	backer    *backer        // nil without
	redactor  *redactor      // nil without
	// wiped is when the disk of a node was last destroyed.
	wiped map[int]int64
}

// newRound prepares a round. c is nil for a cluster of its own in the laboratory.
func newRound(o *options, seed uint64, faults []fault, dir string, out io.Writer, c Cluster) *round {
	start := time.Now()
	return &round{
		o: o, seed: seed, faults: faults, dir: dir, out: out, c: c, startup: startupLimit,
		start: start, find: newFindings(start), line: &timeline{start: start},
	}
}

// run does everything. An error means that the round could not be run; violations are in the
// summary.
func (r *round) run(ctx context.Context) (*Summary, error) {
	outer := ctx
	if r.o.failFast {
		var stop context.CancelFunc
		ctx, stop = context.WithCancel(ctx)
		defer stop()
		r.find.first = stop
	}
	s, err := r.whole(ctx)
	if err == nil || !r.o.failFast || outer.Err() != nil || r.find.total() == 0 {
		return s, err
	}
	// Mostly it is only the end of ctx. The violation is what counts in any case.
	if _, err := fmt.Fprintf(r.out, "torture: the first violation ends the round: %v\n", err); err != nil {
		return nil, err
	}
	return r.sum(linearity{}, 0), nil
}

// whole is a round up to its end, or to the end of ctx.
func (r *round) whole(ctx context.Context) (_ *Summary, err error) {
	defer func() {
		if r.load != nil {
			r.load.calls.close()
		}
	}()
	var nem *nemesis // It is there before a node is started.
	ended := func(node, code int, tail string) { nem.ended(node, code, tail) }
	switch {
	case r.c != nil:
	case r.o.create != nil:
		r.c, err = r.o.create(ended)
	default:
		r.c, err = newLabCluster(r.o, r.seed, filepath.Join(r.dir, "cluster"), ended)
	}
	if err != nil {
		return nil, fmt.Errorf("set up the laboratory: %w", err)
	}
	defer func() { err = errors.Join(err, r.c.Close()) }()
	r.http = newHTTP(r.o.dial.wire(r.c.Certificates().Client()))
	defer r.http.Close()
	nodes := &targets{}
	changed := func() { nodes.set(r.c.Targets()) }
	changed()
	r.watch = newWatch(r.http, nodes.all, r.find, r.line)
	r.watch.ours = r.c.Can().Processes
	nem = newNemesis(r.c, r.watch, r.line, r.find, r.seed, r.faults, changed)
	nem.dial, nem.life = r.o.dial, ctx
	r.watch.slow, nem.slow, nem.patience = r.o.restless(), r.o.restless(), r.o.heal
	if r.o.another > 0 {
		nem.another = r.o.another
	}
	r.watch.spells, nem.spells = r.o.spells, r.o.spells

	watchCtx, stopWatch := context.WithCancel(ctx)
	var watching sync.WaitGroup
	watching.Go(func() { r.watch.run(watchCtx) })
	defer watching.Wait()
	defer stopWatch()
	if r.c.Can().Processes {
		for i := range r.c.Voters() {
			if err := r.c.Start(ctx, i); err != nil {
				return nil, err
			}
		}
	}
	origin, err := r.ready(ctx, nem)
	if err != nil {
		return nil, err
	}
	if err := r.prepare(ctx, nem, nodes, origin); err != nil {
		return nil, err
	}
	r.line.add(happenedPhase, "the cluster serves; clients begin")
	if err := r.torment(ctx, nem); err != nil {
		return nil, err
	}
	// The end of the nodes is not reported any more.
	stopWatch()
	watching.Wait()
	return r.conclude(ctx, nem)
}

// ready waits until the cluster has a leader and every node is with it. It returns where the log
// ends if other clients have written to it.
func (r *round) ready(ctx context.Context, nem *nemesis) (int64, error) {
	if missing := nem.missing(ctx, r.startup); missing != "" {
		if err := ctx.Err(); err != nil {
			return 0, err
		}
		return 0, fmt.Errorf("the cluster does not serve %s after its start: %s", r.startup, missing)
	}
	if r.c.Can().Processes {
		return 0, nil
	}
	if leader, ok := r.watch.leads(r.c.Targets()); ok {
		return logEnd(ctx, r.http, leader, true)
	}
	return 0, errors.New("the leader was lost at once")
}

// prepare makes the books and the clients, and the groups.
func (r *round) prepare(ctx context.Context, nem *nemesis, nodes *targets, origin int64) error {
	l, links := newRun(r.seed, newHistory(r.start, int64(r.o.operations)), r.http, r.find, nodes, origin, r.o.consumers > 0, r.o.transfers, r.o.deciders)
	hist := l.hist
	r.load, l.timeout, l.slow, l.calls.dial = l, r.o.timeout, r.o.slow, r.o.dial
	l.calls.tls = r.c.Certificates().Client()
	l.spells, l.gaps.spells, l.age = r.o.spells, r.o.spells, cmp.Or(r.o.age, l.age)
	if r.o.rate > 0 {
		l.pace = time.Duration(float64(time.Second) * float64(r.o.writers) / r.o.rate)
	}
	for range r.o.writers {
		l.employ(newWriter(l, hist.journal()).turn)
	}
	for range r.o.erasers {
		r.shedders = append(r.shedders, newShedder(l, erasing...))
	}
	for range r.o.shedders {
		r.shedders = append(r.shedders, newShedder(l, allStyles...))
	}
	ours := r.c.Can().Processes
	if r.o.scavenges && ours {
		r.scavenger = newScavenger(l)
		r.scavenger.scheduled = r.o.scheduled
	}
	if r.o.redactions && ours {
		r.redactor = newRedactor(l)
	}
	if r.o.backups && ours {
		files, folder := r.c.Disk(ClientSide)
		r.backer = newBacker(l, files, filepath.Join(folder, "backups"), nem.isRotten)
	}
	for i := range r.o.visitors {
		newVisitor(l, i)
	}
	for i := range r.o.indexers {
		newIndexer(l, i)
	}
	for i := range r.o.subscribers {
		var stream *stream
		if i%2 == 1 {
			stream = l.plainStream(l.spread(i / 2))
		}
		r.followers = append(r.followers, newFollower(l, i, stream))
	}
	if r.o.guests > 0 && r.c.Certificates() != nil {
		if err := newWarden(l, r.o.guests).prepare(ctx); err != nil {
			return err
		}
	}
	if r.o.projections {
		p := newProjector(l, ours)
		if able, err := r.able(p.create(ctx)); err != nil {
			return err
		} else if able {
			r.projector = p
			l.employ(p.turn)
		}
	}
	if r.o.consumers > 0 {
		s := newSubscriptions(l, tormentedGroups(l.prefix))
		if able, err := r.able(s.create(ctx)); err != nil {
			return err
		} else if able {
			r.subs = s
			s.begin(r.o.consumers, links)
		}
	}
	return nil
}

// able says whether nodes can do what was asked of them. Those of a given cluster may lack it.
func (r *round) able(err error) (bool, error) {
	if client.HasStatus(err, http.StatusNotFound) && !r.c.Can().Processes {
		r.line.add(happenedPhase, "the nodes lack this, so it is not tested: %v", err)
		return false, nil
	}
	return err == nil, err
}

// torment lets clients work while the nemesis strikes, heals the cluster and waits for all of them.
func (r *round) torment(ctx context.Context, nem *nemesis) error {
	clients, abandon := context.WithCancel(ctx)
	defer abandon()
	var working, following sync.WaitGroup
	for _, work := range r.load.work {
		working.Go(func() { work(clients) })
	}
	for _, f := range r.followers {
		following.Go(func() { f.run(clients) })
	}
	defer following.Wait()
	defer abandon()
	progress, stopProgress := context.WithCancel(clients)
	defer stopProgress()
	working.Go(func() { r.progress(progress) })

	trouble, over := context.WithTimeout(ctx, time.Duration(r.o.seconds*float64(time.Second)))
	nem.run(trouble)
	if nem.err == nil {
		<-trouble.Done() // Also without a fault to strike with.
	}
	over()
	r.wiped = nem.wiped
	healErr := nem.heal(context.WithoutCancel(ctx))
	if healErr == nil {
		healErr = nem.restore(ctx, r.o.heal)
	}
	nem.changed()
	r.line.add(happenedPhase, "faults are over")
	_ = clock.Sleep(ctx, afterwards)
	r.line.add(happenedPhase, "clients end")
	// A cluster that never came back has its last gap until here.
	r.load.gaps.success(r.load.hist.now())
	close(r.load.stop)
	stopProgress()
	// What hangs all the same is abandoned.
	timer := time.AfterFunc(clientsEnd, abandon)
	working.Wait()
	timer.Stop()
	if healErr != nil {
		return fmt.Errorf("the laboratory failed: %w", healErr)
	}
	if err := ctx.Err(); err != nil {
		return err
	}
	if len(nem.faults) > 0 && r.seed%2 == 1 {
		if err := r.restart(ctx, "what is on their disks"); err != nil {
			return err
		}
	}
	if err := r.read(ctx, nem); err != nil {
		return err
	}
	r.drain(&following, abandon)
	return nil
}

// restart ends all nodes at once and starts them again, so that the checks judge the contents of
// their disks, not of their memory.
func (r *round) restart(ctx context.Context, what string) error {
	r.line.add(happenedPhase, "kill -9 of all nodes, to judge %s", what)
	var err error
	for _, t := range r.c.Targets() {
		err = errors.Join(err, r.c.Kill(t.Index))
	}
	for i := range r.c.Voters() {
		err = errors.Join(err, r.c.Start(ctx, i))
	}
	return err
}

// read waits for the cluster to heal, scavenges it for the last time, and reads everything from
// every node.
func (r *round) read(ctx context.Context, nem *nemesis) error {
	healed := r.healed(ctx, nem)
	if r.subs != nil {
		r.drainGroups(ctx)
	}
	if r.projector != nil {
		r.projector.drain(ctx)
		if !r.c.Can().Processes {
			r.projector.remove(ctx)
		}
	}
	if healed && (r.subs != nil || r.projector != nil) {
		r.healed(ctx, nem)
	}
	var point *scavengePoint
	if r.scavenger != nil && healed {
		begun := r.line.now()
		if leader, ok := r.watch.leads(r.c.Targets()); ok {
			point = r.scavenger.scavengeAll(ctx, leader, r.c.Targets())
		}
		if point != nil {
			r.line.add(happenedPhase, "all nodes were scavenged up to point %d within %s", point.Number, seconds(r.line.now()-begun))
		}
		if r.seed%2 == 0 && len(nem.faults) > 0 {
			if err := r.restart(ctx, "what scavenged files tell"); err != nil {
				return err
			}
		}
		r.healed(ctx, nem)
	}
	nodes := r.c.Targets()
	logs := readBack(ctx, r.load, nodes)
	for _, t := range nodes {
		if err := r.lookAtLimited(ctx, t); err != nil {
			r.find.add(kindHeal, "%s cannot be read: %v", t.Name, err)
		}
	}
	readIndexes(ctx, r.load, nodes)
	readDecisions(ctx, r.load, nodes[int(r.seed%uint64(len(nodes)))])
	r.line.add(happenedPhase, "read back %d events from each node", r.load.book.len())
	if r.projector != nil {
		r.projector.read(ctx, nodes[int(r.seed%uint64(len(nodes)))])
	}
	if point != nil {
		r.compareScavenged(logs, point)
		if err := r.decisions(ctx, nodes); err != nil {
			return err
		}
		if healed {
			r.healed(ctx, nem)
		}
	}
	return nil
}

// healed waits for every node to have everything.
func (r *round) healed(ctx context.Context, nem *nemesis) bool {
	begun := r.line.now()
	defer nem.changed()
	missing := nem.missing(ctx, r.o.heal)
	if missing == "" {
		r.line.add(happenedPhase, "all nodes have caught up after %s", seconds(r.line.now()-begun))
		return true
	}
	r.find.add(kindHeal, "%s after the last fault not every node has caught up: %s", r.o.heal, missing)
	return false
}

// drain lets subscribers see the rest.
func (r *round) drain(following *sync.WaitGroup, abandon func()) {
	for _, f := range r.followers {
		goal := int64(r.load.book.len())
		if f.stream != nil {
			goal = r.load.book.logged(f.stream)
		}
		f.goal.Store(goal)
	}
	timer := time.AfterFunc(drainLimit, abandon)
	defer timer.Stop()
	following.Wait()
	for _, f := range r.followers {
		if seen, goal := int64(f.at.ordinal), f.goal.Load(); seen < goal {
			r.find.add(kindStuck, "the subscriber of %s has seen %d of %d events %s after everything was calm", f.what(), seen, goal, drainLimit)
		}
	}
}

// conclude ends the nodes, checks their files, and sums up.
func (r *round) conclude(ctx context.Context, nem *nemesis) (*Summary, error) {
	books := newLedger(r.load.hist, r.load.book)
	books.check()
	books.powerless(nem.powerless)
	if r.subs != nil {
		checkGroups(books, r.subs, r.watch.wasCalm)
	}
	if r.projector != nil {
		r.projector.check(books)
	}
	linear := books.linearizable(ctx, linearLimit, func(stream string, m porcupine.Model, info porcupine.LinearizationInfo) {
		// The picture is an extra: what is wrong is said in the violation.
		_ = porcupine.VisualizePath(m, info, filepath.Join(r.dir, "linear-"+stream+".html"))
	})
	verified := 0
	if r.c.Can().Processes {
		var err error
		if verified, err = r.verify(ctx, nem); err != nil {
			return nil, err
		}
		if r.redactor != nil {
			if err := r.redactor.search(r.c, r.wiped); err != nil {
				return nil, fmt.Errorf("search for redacted data: %w", err)
			}
		}
		if r.backer != nil {
			if err := r.backer.restore(ctx, r.c, books); err != nil {
				return nil, err
			}
		}
	}
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	return r.sum(linear, verified), nil
}

// verify stops all nodes in order and checks their data folders.
func (r *round) verify(ctx context.Context, nem *nemesis) (int, error) {
	ctx, cancel := context.WithTimeout(ctx, verifyLimit)
	defer cancel()
	list := r.c.Targets()
	order := rand.New(rand.NewPCG(r.seed, 4<<32)).Perm(len(list))
	for _, i := range order {
		if err := r.c.Terminate(ctx, list[i].Index); errors.Is(err, ErrStop) {
			r.find.add(kindStop, "%s: %v", list[i].Name, err)
		} else if err != nil {
			return 0, err
		}
	}
	if err := nem.uncover(); err != nil {
		return 0, err
	}
	for _, t := range list {
		if err := r.c.Verify(ctx, t.Index); err != nil {
			if ctx.Err() != nil {
				return 0, fmt.Errorf("verify %s: %w", t.Name, ctx.Err())
			}
			r.find.add(kindVerify, "%s: %v", t.Name, err)
		}
	}
	return len(list), nil
}

// progress prints a line now and then.
func (r *round) progress(ctx context.Context) {
	for clock.Sleep(ctx, r.o.every) == nil {
		writes, reads := r.load.count.of(ofWrites), r.load.count.of(ofReads)
		leader, term := r.watch.leading()
		// A line that cannot be printed is not a reason to stop.
		_, _ = fmt.Fprintf(r.out, "%6.1fs  writes %d ok, %d conflicts, %d refused, %d indeterminate; %d leader reads, %d pages; leader %s, term %d; %d violations\n",
			time.Since(r.start).Seconds(), writes[written[done]], writes[written[conflict]], writes[written[refused]],
			writes[written[pending]], reads["leader"], reads["pages"], strings.Replace(nodeName(leader), "clients", "none", 1), term, r.find.total())
	}
}
