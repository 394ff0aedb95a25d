package simulation

import (
	"context"
	"errors"
	"fmt"
	"math"
	"math/rand/v2"
	"net"
	"net/netip"
	"path"
	"slices"
	"strconv"
	"sync"
	"sync/atomic"
	"time"

	"github.com/hashicorp/go-hclog"

	"github.com/annalsdb/annals/admin/verify"
	"github.com/annalsdb/annals/config"
	"github.com/annalsdb/annals/internal/network/memory"
	"github.com/annalsdb/annals/internal/vfs"
	"github.com/annalsdb/annals/node"
	"github.com/annalsdb/annals/torture"
)

const (
	nodePort        = 2113
	replicationPort = 1112
	dataFolder      = "/data"
	etcFolder       = "/etc"
	clients         = "clients"
	restored        = "restored" // the host on which a backup is tried
	// convertOneIn is how often a node is started with the other store of its Raft log.
	convertOneIn = 6
	shownLines   = 40
)

var stores = [...]config.LogStore{config.LogStoreWal, config.LogStoreBoltDB}

// cluster is nodes in this process. It implements torture.Cluster.
type cluster struct {
	*torture.Machines[*member]
	plan         *plan
	net          *memory.Network
	dialer       *memory.Endpoint // of the clients
	trace        *trace
	ended        func(node, code int, tail string)
	backups      *vfs.Mem
	certificates *torture.Certificates // nil: no TLS and no users
	owned        sync.WaitGroup
	crashes      atomic.Int64 // power cuts
	won          elections
	news         news
	danger       *danger
	gates        []*gate // of all processes; only who starts nodes adds to them
}

// member is a host and the node on it.
type member struct {
	c        *cluster
	index    atomic.Int64 // as the cluster has it
	name, ip string
	offset   atomic.Int64 // of its clock, in nanoseconds
	stalled  atomic.Bool  // by Pause
	breaks   atomic.Int64 // of a million operations on the disk
	drift    float64

	mu      sync.Mutex
	disk    *vfs.Mem
	etc     *vfs.Mem // what the operator gives the node: certificates
	process *process // nil while no node is wanted to run
	last    *process // that was killed or stopped
	dark    bool     // it is without power
	store   config.LogStore
	rng     *rand.Rand
}

func newCluster(p *plan) (*cluster, error) {
	c := &cluster{plan: p, trace: newTrace(), backups: vfs.NewMem()}
	c.danger = newDanger(rand.New(rand.NewPCG(p.seed, 13<<32)))
	if p.mapped {
		c.backups.SetMappable()
	}
	c.net = memory.New(memory.Options{Seed: p.seed, Trace: c.trace.add})
	var members []*member
	for i := range torture.HostsFor(p.nodes) {
		m := &member{c: c, name: fmt.Sprintf("node%d", i), disk: c.newDisk(), etc: vfs.NewMem(), rng: rand.New(rand.NewPCG(p.seed, 9<<32+uint64(i)))}
		m.ip = c.net.AddHost(m.name)
		m.store = p.stores[i%len(p.stores)]
		m.drift = p.drift * (2*m.rng.Float64() - 1)
		members = append(members, m)
	}
	c.Machines = torture.NewMachines(members, p.nodes)
	for _, i := range c.All() {
		c.At(i).index.Store(int64(i))
	}
	for _, name := range []string{clients, restored} {
		c.net.AddHost(name)
	}
	c.net.Heal(p.link)
	c.dialer, _ = c.net.Endpoint(clients) // The host is there.
	if !p.secure {
		return c, nil
	}
	var err error
	if c.certificates, err = torture.NewCertificates(); err != nil {
		return nil, err
	}
	for _, i := range c.All() {
		if _, err := c.Certify(i, torture.Trust{}); err != nil {
			return nil, err
		}
	}
	return c, nil
}

func (c *cluster) Move(i int) error {
	if err := c.Kill(torture.Former); err != nil {
		return err
	}
	m, former := c.Swap(i)
	m.index.Store(int64(i))
	former.index.Store(torture.Former)
	c.won.removed(former.name, true)
	c.won.removed(m.name, false)
	c.trace.add(m.name, "the machine takes the place of "+former.name)
	m.mu.Lock()
	defer m.mu.Unlock()
	m.disk = c.newDisk()
	return nil
}

// Grow begins with the new voter, and ends when the last one has been removed.
func (c *cluster) Grow(more bool) {
	c.Machines.Grow(more)
	name := c.At(c.plan.nodes).name
	c.trace.add(name, fmt.Sprintf("it is to vote: %t", more))
	c.won.removed(name, !more)
}

// newDisk makes an empty disk of a node.
func (c *cluster) newDisk() *vfs.Mem {
	disk := vfs.NewCrashMem()
	disk.SetCapacity(diskSize)
	if c.plan.mapped {
		disk.SetMappable()
	}
	return disk
}

func (c *cluster) dial(ctx context.Context, _, address string) (net.Conn, error) {
	return c.dialer.Dial(ctx, address)
}

// peer is where other nodes reach a member.
func (m *member) peer() string { return net.JoinHostPort(m.ip, strconv.Itoa(replicationPort)) }

// now is the wall clock of a member.
func (m *member) now() time.Time {
	real := time.Now()
	return real.Add(time.Duration(m.offset.Load()) + drifted(m.drift, real.Sub(m.c.trace.start)))
}

// drifted is how far a clock is off after a time: it drifts to the limit on one side, and back to
// that on the other.
func drifted(rate float64, after time.Duration) time.Duration {
	const most = float64(torture.DriftLimit)
	return time.Duration(most - math.Abs(math.Remainder(rate*float64(after)-most, 4*most)))
}

// options are those of a node on a host.
func (c *cluster) options(host, ip string, etc vfs.FS, size int, g *gate) node.Options {
	o := config.Default()
	o.Db, o.Index = dataFolder, path.Join(dataFolder, "index")
	o.Insecure, o.ClusterSize, o.NodePort, o.ReplicationPort = c.certificates == nil, size, nodePort, replicationPort
	if c.certificates != nil {
		o.CertificateFile, o.CertificatePrivateKeyFile = path.Join(etcFolder, torture.CertificateFile), path.Join(etcFolder, torture.KeyFile)
		o.TrustedRootCertificatesPath = path.Join(etcFolder, torture.RootsFolder)
	}
	o.NodeIp = netip.MustParseAddr(ip)
	o.ReplicationIp = o.NodeIp
	o.DiscoverViaDns, o.EnableUnixSocket = false, false
	o.RequestMemoryMiB, o.StreamExistenceFilterSize = 64, 10_000
	o.PostingsMemory, o.MaxMemTableSize = c.plan.postingsMemory, c.plan.memTable
	patience := time.Duration(c.plan.patience)
	o.LeaderElectionTimeout, o.GossipInterval = patience*o.LeaderElectionTimeout, patience*o.GossipInterval
	if c.plan.Scheduled { // Once an hour.
		o.ScavengeSchedule = "30 * * * *"
	}
	if c.plan.Projections {
		o.RunProjections = config.ProjectionsAll
	}
	logger := hclog.New(&hclog.LoggerOptions{Level: hclog.Debug, Output: lines{c.trace, host, g, &c.won, &c.news}, DisableTime: true})
	return node.Options{Config: o, Logger: logger, Version: "simulated", CertificateFS: etc, PasswordIterations: 10, SnapshotEntries: c.plan.snapshot, TrailingEntries: c.plan.trailing}
}

// Targets implements torture.Cluster, as what follows does.
func (c *cluster) Targets() (list []torture.Target) {
	for i, m := range c.Nodes() {
		if i < c.Voters() || c.Running(i) {
			list = append(list, torture.Target{Name: fmt.Sprintf("node %d", i), Base: c.base(m.ip), Peer: m.peer(), Index: i, Login: c.certificates.Login()})
		}
	}
	return list
}

func (c *cluster) base(ip string) string {
	return c.certificates.Base(net.JoinHostPort(ip, strconv.Itoa(nodePort)))
}

func (c *cluster) Certificates() *torture.Certificates { return c.certificates }

func (c *cluster) Certify(i int, t torture.Trust) (string, error) {
	m := c.At(i)
	return c.certificates.Put(m.etc, etcFolder, m.ip, t)
}

func (c *cluster) Can() torture.Abilities {
	return torture.Abilities{Processes: true, Network: c.plan.nodes > 1, Disk: true, Hang: true, Errors: true, Resets: true, Power: true}
}

func (c *cluster) Start(ctx context.Context, i int) error {
	m := c.At(i)
	m.mu.Lock()
	last, runs := m.last, m.process != nil
	m.mu.Unlock()
	if runs {
		return nil
	}
	if last != nil {
		if err := last.awaitGone(); err != nil {
			return fmt.Errorf("%s: %w", m.name, err)
		}
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	if last != nil && m.rng.IntN(convertOneIn) == 0 {
		m.store = stores[(slices.Index(stores[:], m.store)+1)%len(stores)]
	}
	if m.dark {
		m.dark = false
		if err := c.net.SetPower(m.name, true); err != nil {
			return err
		}
	}
	g := c.newGate(m.name, &m.breaks)
	g.changes = func(op vfs.Op) error { return m.changes(g, op) }
	o := c.options(m.name, m.ip, m.etc, c.plan.nodes, g)
	o.Now, o.Config.RaftLogStore, o.Config.ReadOnlyReplica = m.now, m.store, i >= c.Voters()
	for _, other := range c.Nodes()[:c.plan.nodes] {
		if other != m && c.plan.nodes > 1 {
			o.Config.GossipSeed = append(o.Config.GossipSeed, other.peer())
		}
	}
	e, err := c.net.Endpoint(m.name)
	if err != nil {
		return err
	}
	c.trace.add(m.name, "the process starts, with the Raft log in "+string(m.store))
	m.process = run(ctx, o, m.disk, g, e, m.failed)
	return nil
}

// failed takes note of a node that ended by itself.
func (m *member) failed(p *process, err error) {
	m.c.trace.add(m.name, "the process ends by itself: "+err.Error())
	m.mu.Lock()
	surprise := m.process == p
	if surprise {
		m.process, m.last = nil, p
	}
	m.leaveDisk((*vfs.Mem).Fork)
	m.mu.Unlock()
	m.c.owned.Go(func() {
		if i := int(m.index.Load()); surprise && i != torture.Former {
			m.c.ended(i, 1, m.c.trace.tail(m.name, shownLines))
		}
		p.bury()
	})
}

// take returns the process if one runs, from now on expected to end.
func (m *member) take() *process {
	p := m.process
	if p != nil {
		m.process, m.last = nil, p
	}
	return p
}

// Kill ends a process, half of the time by a power cut: then the disk has what is durable, and of
// the rest what chance leaves.
func (c *cluster) Kill(i int) error {
	if err := c.Resume(i); err != nil {
		return err
	}
	m := c.At(i)
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.process == nil {
		return nil
	}
	return m.kill(m.rng.IntN(2) == 0)
}

// cutPower ends the process, if one runs, by a power cut. i is the number of the member.
func (m *member) cutPower(i int) error {
	if err := m.c.Resume(i); err != nil {
		return err
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.process == nil {
		return nil
	}
	return m.kill(true)
}

// kill ends the process, with its power or without. m.mu is held.
func (m *member) kill(power bool) error {
	p, c := m.take(), m.c
	c.trace.add(m.name, fmt.Sprintf("the process is killed, power cut: %t", power))
	if power {
		c.crashes.Add(1)
		m.dark = true
		if err := c.net.SetPower(m.name, false); err != nil {
			return err
		}
	}
	if p.cut() {
		c.owned.Go(p.bury)
	}
	m.leaveDisk(func(old *vfs.Mem) *vfs.Mem {
		if power {
			return old.CrashClone(vfs.CrashOptions{Rand: m.rng})
		}
		return old.Fork()
	})
	return nil
}

// leaveDisk leaves the disk to a process that has ended, and gives the next one a copy. m.mu is
// held.
func (m *member) leaveDisk(next func(*vfs.Mem) *vfs.Mem) {
	old := m.disk
	m.disk = next(old)
	old.SetCapacity(0)
}

func (c *cluster) Terminate(_ context.Context, i int) error {
	m := c.At(i)
	if err := c.Resume(i); err != nil { // A stopped process that shall end is continued.
		return err
	}
	m.mu.Lock()
	p := m.take()
	m.mu.Unlock()
	if p == nil {
		return nil
	}
	c.trace.add(m.name, "the process is asked to end")
	if err := p.stop(); err != nil {
		return fmt.Errorf("%s: %w\n%s", m.name, err, c.LogTail(i))
	}
	return nil
}

// Pause is no more than what others see of a stopped process, and its disk: timers continue.
func (c *cluster) Pause(i int) error  { return c.stall(i, true) }
func (c *cluster) Resume(i int) error { return c.stall(i, false) }

func (c *cluster) stall(i int, stalled bool) error {
	if stalled && !c.Running(i) || c.At(i).stalled.Swap(stalled) == stalled {
		return nil
	}
	if err := c.freeze(i, stalled); err != nil {
		return err
	}
	return c.net.SetStalled(c.At(i).name, stalled)
}

func (c *cluster) Running(i int) bool {
	m := c.At(i)
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.process != nil
}

func (c *cluster) Wipe(i int, onlyRaft bool) error {
	m := c.At(i)
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.process != nil {
		return fmt.Errorf("wipe %s: it runs", m.name)
	}
	if onlyRaft {
		return m.disk.RemoveAll(path.Join(dataFolder, "raft"))
	}
	m.disk = c.newDisk()
	return nil
}

func (c *cluster) host(i int) string {
	if i == torture.ClientSide {
		return clients
	}
	return c.At(i).name
}

func (c *cluster) Shape(from, to int, s torture.Shape) error {
	l := c.plan.link
	l.Cut, l.Loss = s.Cut, s.Drop
	l.Latency, l.Jitter = l.Latency+s.Delay, l.Jitter+s.Jitter
	return c.net.SetLink(c.host(from), c.host(to), l)
}

func (c *cluster) Reset(i int, share float64) (int, error) {
	m := c.At(i)
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.process == nil {
		return 0, nil
	}
	return m.process.endpoint.Reset(share), nil
}

func (c *cluster) HealNetwork() error {
	c.net.Heal(c.plan.link)
	return nil
}

func (c *cluster) withDisk(i int, do func(*vfs.Mem) error) error {
	m := c.At(i)
	m.mu.Lock()
	defer m.mu.Unlock()
	return do(m.disk)
}

func (c *cluster) FillDisk(i int, bytes int64) error {
	return c.withDisk(i, func(disk *vfs.Mem) error { return leave(disk, bytes) })
}

func (c *cluster) FreeDisk(i int) error {
	return c.withDisk(i, func(disk *vfs.Mem) error {
		disk.SetCapacity(diskSize)
		return nil
	})
}

func (c *cluster) FreezeDisk(i int) error { return c.freeze(i, true) }
func (c *cluster) ThawDisk(i int) error   { return c.freeze(i, false) }

func (c *cluster) freeze(i int, frozen bool) error {
	m := c.At(i)
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.process != nil {
		c.trace.add(m.name, fmt.Sprintf("the disk hangs: %t", frozen))
		m.process.gate.freeze(frozen)
	}
	return nil
}

func (c *cluster) BreakDisk(i int, share float64) error {
	m := c.At(i)
	c.trace.add(m.name, fmt.Sprintf("%.1f %% of what is done with the disk fails", 100*share))
	m.breaks.Store(int64(share * 1e6))
	return nil
}

func (c *cluster) SetClock(i int, offset time.Duration) error {
	c.At(i).offset.Store(int64(offset))
	return nil
}

func (c *cluster) Disk(i int) (vfs.FS, string) {
	if i == torture.ClientSide {
		return c.backups, "/"
	}
	m := c.At(i)
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.disk, dataFolder
}

func (c *cluster) Happens(ctx context.Context, limit time.Duration) (int, error) {
	host, err := c.news.next(ctx, limit)
	return slices.IndexFunc(c.Nodes()[:c.Voters()], func(m *member) bool { return m.name == host }), err
}

func (c *cluster) Verify(ctx context.Context, i int) error {
	files, dir := c.Disk(i)
	if _, err := files.Stat(dir); err != nil && i >= c.plan.nodes {
		return nil // A replica that never ran.
	}
	return checkFolder(ctx, files, dir)
}

func (c *cluster) Check(ctx context.Context, dir string) error {
	return checkFolder(ctx, c.backups, dir)
}

// checkFolder does what annals verify does.
func checkFolder(ctx context.Context, files vfs.FS, dir string) error {
	var o verify.Options
	o.FS, o.Dir = files, dir
	report, err := verify.Run(ctx, o)
	switch {
	case err != nil:
		return fmt.Errorf("verify %s: %w", dir, err)
	case !report.Clean():
		return fmt.Errorf("verify %s: %s", dir, report.Text())
	}
	return nil
}

// Serve makes the copy a cluster of one.
func (c *cluster) Serve(ctx context.Context, dir string) (torture.Target, func() error, error) {
	e, err := c.net.Endpoint(restored)
	if err != nil {
		return torture.Target{}, nil, err
	}
	ip := c.net.Address(restored)
	etc := vfs.NewMem()
	if c.certificates != nil {
		if _, err := c.certificates.Put(etc, etcFolder, ip, torture.Trust{}); err != nil {
			return torture.Target{}, nil, err
		}
	}
	g := c.newGate(restored, new(atomic.Int64))
	o := c.options(restored, ip, etc, 1, g)
	o.Config.Db, o.Config.Index = dir, path.Join(dir, "index")
	p := run(ctx, o, c.backups, g, e, func(*process, error) {})
	<-p.opened
	if p.err != nil {
		return torture.Target{}, nil, p.err
	}
	return torture.Target{Base: c.base(ip), Index: -1, Login: c.certificates.Login()}, p.stop, nil
}

func (c *cluster) LogTail(i int) string { return c.trace.tail(c.At(i).name, shownLines) }

// lost says whether there are processes that cannot end.
func (c *cluster) lost() bool {
	return slices.ContainsFunc(c.gates, func(g *gate) bool {
		select {
		case <-g.lost:
			return true
		default:
			return false
		}
	})
}

// Close ends all nodes and waits for what is left of those that ended before.
func (c *cluster) Close() error {
	var err error
	for _, i := range c.All() {
		err = errors.Join(err, c.Kill(i))
	}
	_ = c.dialer.Close() // It never fails.
	c.owned.Wait()
	return err
}

var _ torture.Cluster = (*cluster)(nil)
