package torture

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/annalsdb/annals/internal/lab"
	"github.com/annalsdb/annals/internal/vfs"
)

// Ports of every node; each has an address of its own.
const (
	nodePort        = 2113
	replicationPort = 1112
)

const (
	// stopLimit bounds how long a node may take to end in order.
	stopLimit = 30 * time.Second
	// diskSize is the disk of a node. It takes what is used of it.
	diskSize = 1 << 30
	// convertOneIn is how often a node is started with the other store of its Raft log, and
	// converts it.
	convertOneIn = 6
	// postingsMemory is so little that nodes write and merge tables of postings all the time.
	postingsMemory = 128 << 10
	// keptLog bounds the log lines that a report shows of one node.
	keptLog = 3000
)

// labCluster runs annals nodes on the hosts of a laboratory.
type labCluster struct {
	*Machines[*member]
	lab *lab.Lab
	o   *options
	// ended is called, on a goroutine of the cluster, when a node ends that was not asked to.
	ended        func(node, code int, tail string)
	watches      sync.WaitGroup
	hangs        bool          // disks can hang
	certificates *Certificates // nil: no TLS and no users
}

// member is one node. mu guards all but host.
type member struct {
	host *lab.Host

	mu      sync.Mutex
	process *lab.Process // the last one, nil before the first start
	wanted  bool         // its end would surprise
	store   string       // of its Raft log; "" if the options say which
	rng     *rand.Rand
}

func newLabCluster(o *options, seed uint64, dir string, ended func(node, code int, tail string)) (*labCluster, error) {
	l, err := lab.New(lab.Options{Hosts: HostsFor(o.nodes), Dir: dir, Seed: int64(seed), Keep: true, Loopback: o.loopback})
	if err != nil {
		return nil, err
	}
	c := &labCluster{lab: l, o: o, hangs: true, ended: ended}
	if o.tls {
		if c.certificates, err = NewCertificates(); err != nil {
			return nil, errors.Join(err, l.Close())
		}
	}
	chosen := slices.ContainsFunc(o.nodeOptions, func(option string) bool { return strings.HasPrefix(option, storeOption) })
	var members []*member
	for i, h := range l.Hosts() {
		if err := c.giveDisk(h); err != nil {
			return nil, errors.Join(err, l.Close())
		}
		m := &member{host: h, rng: rand.New(rand.NewPCG(seed, 8<<32+uint64(i)))}
		if !chosen {
			m.store = stores[(seed+uint64(i))%uint64(len(stores))]
		}
		members = append(members, m)
	}
	c.Machines = NewMachines(members, o.nodes)
	for _, i := range c.All() {
		err := setClock(c.clock(i), 0)
		if o.tls && err == nil {
			_, err = c.Certify(i, Trust{})
		}
		if err != nil {
			return nil, errors.Join(err, l.Close())
		}
	}
	return c, nil
}

// Every cluster has nodes with either store of the Raft log, unless the options name one.
const storeOption = "--raft-log-store"

var stores = [...]string{"Wal", "BoltDB"}

// giveDisk gives a host a disk that can hang, or one in memory where that is all there can be.
func (c *labCluster) giveDisk(h *lab.Host) error {
	if c.hangs {
		err := h.MakeDisk(diskSize)
		if !errors.Is(err, lab.ErrNoDevice) {
			return err
		}
		c.hangs = false
	}
	if c.o.diskFaults {
		return h.LimitDisk(diskSize)
	}
	return nil
}

func (c *labCluster) Move(i int) error {
	if err := c.Kill(Former); err != nil {
		return err
	}
	now, _ := c.Swap(i)
	return os.RemoveAll(now.data())
}

func (c *labCluster) Can() Abilities {
	return Abilities{Processes: true, Network: c.lab.NoLinks() == nil, Disk: c.o.diskFaults, Hang: c.hangs}
}

func (c *labCluster) Targets() []Target {
	var list []Target
	for i, m := range c.Nodes() {
		if i < c.Voters() || m.wants() {
			list = append(list, Target{Name: nodeName(i), Base: c.base(m.host), Peer: c.peer(m.host), Index: i, Login: c.certificates.Login()})
		}
	}
	return list
}

func (c *labCluster) base(h *lab.Host) string {
	return c.certificates.Base(h.Addr() + ":" + strconv.Itoa(nodePort))
}

func (c *labCluster) peer(h *lab.Host) string { return h.Addr() + ":" + strconv.Itoa(replicationPort) }

func (c *labCluster) Certificates() *Certificates { return c.certificates }

// etc is the folder of a machine's certificates. It is not on the machine's disk, which may be full
// or hang.
func (c *labCluster) etc(m *member) string {
	return filepath.Join(c.lab.Dir(), fmt.Sprintf("etc-%d", m.host.Index()))
}

func (c *labCluster) Certify(i int, t Trust) (string, error) {
	m := c.At(i)
	return c.certificates.Put(vfs.OS, c.etc(m), m.host.Addr(), t)
}

// security are the options of a node on a host about who may ask it.
func (c *labCluster) security(m *member) []string {
	if c.certificates == nil {
		return []string{"--insecure"}
	}
	etc := c.etc(m)
	return []string{
		"--certificate-file", filepath.Join(etc, CertificateFile), "--certificate-private-key-file", filepath.Join(etc, KeyFile),
		"--trusted-root-certificates-path", filepath.Join(etc, RootsFolder),
	}
}

func (m *member) wants() bool {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.wanted
}

func (m *member) data() string { return filepath.Join(m.host.Dir(), "data") }

// arguments are those of a node's command line. The member's mu is held.
func (c *labCluster) arguments(i int) []string {
	h := c.At(i).host
	args := append(slices.Clone(nodeCommand), c.clock(i),
		"--db", c.At(i).data(), "--log", filepath.Join(h.Dir(), "log"),
		"--postings-memory", strconv.Itoa(postingsMemory), "--cluster-size", strconv.Itoa(c.o.nodes), "--node-ip", h.Addr(), "--node-port", strconv.Itoa(nodePort),
	)
	args = append(args, c.security(c.At(i))...)
	if c.o.nodes > 1 {
		var seeds []string
		for k, m := range c.Nodes()[:c.o.nodes] {
			if k != i {
				seeds = append(seeds, c.peer(m.host))
			}
		}
		args = append(args, "--replication-ip", h.Addr(), "--replication-port", strconv.Itoa(replicationPort),
			"--discover-via-dns=false", "--gossip-seed", strings.Join(seeds, ","))
		if i >= c.Voters() {
			args = append(args, "--read-only-replica")
		}
	}
	if m := c.At(i); m.store != "" {
		args = append(args, storeOption, m.store)
	}
	if c.o.projections {
		args = append(args, "--run-projections", "All")
	}
	return append(args, c.o.nodeOptions...)
}

func (c *labCluster) Start(ctx context.Context, i int) error {
	m := c.At(i)
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.alive() {
		return nil
	}
	if m.store != "" && m.process != nil && m.rng.IntN(convertOneIn) == 0 {
		m.store = stores[(slices.Index(stores[:], m.store)+1)%len(stores)]
	}
	p, err := m.host.Start(ctx, lab.Command{Path: c.o.binary, Args: c.arguments(i)})
	if err != nil {
		return err
	}
	m.process, m.wanted = p, true
	// It ends with the process, and close kills all of them.
	c.watches.Go(func() {
		<-p.Done()
		m.mu.Lock()
		surprise := m.wanted && m.process == p && c.At(i) == m && i != Former
		m.wanted = m.wanted && !surprise
		m.mu.Unlock()
		if surprise {
			c.ended(i, p.ExitCode(), lastOf(p.Output()))
		}
	})
	return nil
}

// alive says whether the process runs. m.mu is held.
func (m *member) alive() bool {
	if m.process == nil {
		return false
	}
	select {
	case <-m.process.Done():
		return false
	default:
		return true
	}
}

// take returns the process if it runs, from now on expected to end.
func (m *member) take() *lab.Process {
	m.mu.Lock()
	defer m.mu.Unlock()
	if !m.alive() {
		return nil
	}
	m.wanted = false
	return m.process
}

func (c *labCluster) Kill(i int) error {
	if p := c.At(i).take(); p != nil {
		return p.Kill()
	}
	return nil
}

// ErrStop says that a node did not end as it should when it was asked to.
var ErrStop = errors.New("did not stop in order")

func (c *labCluster) Terminate(_ context.Context, i int) error {
	p := c.At(i).take()
	if p == nil {
		return nil
	}
	if err := p.Terminate(stopLimit); err != nil {
		return fmt.Errorf("%w: %w\n%s", ErrStop, err, lastOf(p.Output()))
	}
	if code := p.ExitCode(); code != 0 {
		return fmt.Errorf("%w: exit code %d\n%s", ErrStop, code, lastOf(p.Output()))
	}
	return nil
}

func (c *labCluster) Pause(i int) error  { return c.signal(i, (*lab.Process).Pause) }
func (c *labCluster) Resume(i int) error { return c.signal(i, (*lab.Process).Resume) }

func (c *labCluster) signal(i int, send func(*lab.Process) error) error {
	m := c.At(i)
	m.mu.Lock()
	defer m.mu.Unlock()
	if !m.alive() {
		return nil
	}
	if err := send(m.process); err != nil && !errors.Is(err, os.ErrProcessDone) {
		return err
	}
	return nil
}

func (c *labCluster) Running(i int) bool {
	m := c.At(i)
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.alive()
}

func (c *labCluster) Wipe(i int, onlyRaft bool) error {
	m := c.At(i)
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.alive() {
		return fmt.Errorf("wipe %s: it runs", nodeName(i))
	}
	if onlyRaft {
		return os.RemoveAll(filepath.Join(m.data(), "raft"))
	}
	return os.RemoveAll(m.data())
}

// end of a link as the laboratory knows it.
func (c *labCluster) end(i int) *lab.Host {
	if i == ClientSide {
		return nil
	}
	return c.At(i).host
}

func (c *labCluster) Shape(from, to int, s Shape) error {
	return c.lab.Link(c.end(from), c.end(to)).Set(lab.Rule{Cut: s.Cut, Delay: s.Delay, Jitter: s.Jitter, Drop: s.Drop})
}

func (c *labCluster) HealNetwork() error {
	if c.lab.NoLinks() != nil {
		return nil
	}
	return c.lab.HealAll()
}

func (c *labCluster) FillDisk(i int, leave int64) error { return c.At(i).host.FillDisk(leave) }
func (c *labCluster) FreeDisk(i int) error              { return c.At(i).host.FreeDisk() }

func (c *labCluster) FreezeDisk(i int) error { return c.At(i).host.FreezeDisk() }
func (c *labCluster) ThawDisk(i int) error   { return c.At(i).host.ThawDisk() }

// BreakDisk is never asked for: the kernel answers for these disks.
func (c *labCluster) BreakDisk(int, float64) error { return errors.ErrUnsupported }

// Reset is never asked for: a firewall could only cut what comes next.
func (c *labCluster) Reset(int, float64) (int, error) { return 0, errors.ErrUnsupported }

// clock is the file of a node's clock. It is not on the node's disk, which may be full or hang.
func (c *labCluster) clock(i int) string {
	return filepath.Join(c.lab.Dir(), fmt.Sprintf("clock-%d", i))
}

func (c *labCluster) SetClock(i int, offset time.Duration) error {
	return setClock(c.clock(i), offset)
}

func (c *labCluster) Verify(ctx context.Context, i int) error {
	m := c.At(i)
	if _, err := os.Stat(m.data()); errors.Is(err, os.ErrNotExist) && i >= c.o.nodes {
		return nil // A replica that never ran.
	}
	return c.Check(ctx, m.data())
}

func (c *labCluster) Disk(i int) (vfs.FS, string) {
	if i == ClientSide {
		return vfs.OS, filepath.Join(c.lab.Dir(), "clients")
	}
	return vfs.OS, c.At(i).data()
}

func (c *labCluster) Check(ctx context.Context, dir string) error {
	out, err := exec.CommandContext(ctx, c.o.binary, "verify", "--db", dir).CombinedOutput()
	if err != nil {
		return fmt.Errorf("annals verify --db %s: %w\n%s", dir, err, lastOf(string(out)))
	}
	return nil
}

// serve makes the copy a cluster of one.
func (c *labCluster) Serve(ctx context.Context, dir string) (Target, func() error, error) {
	h := c.At(0).host
	args := []string{"node", "--db", dir, "--log", dir + "-log", "--cluster-size", "1", "--node-ip", h.Addr(), "--node-port", strconv.Itoa(nodePort),
		"--replication-ip", h.Addr(), "--replication-port", strconv.Itoa(replicationPort), "--discover-via-dns=false"}
	args = append(args, c.security(c.At(0))...)
	p, err := h.Start(ctx, lab.Command{Path: c.o.binary, Args: args})
	if err != nil {
		return Target{}, nil, err
	}
	t := Target{Base: c.base(h), Index: -1, Login: c.certificates.Login()}
	return t, func() error { return p.Terminate(stopLimit) }, nil
}

func (c *labCluster) LogTail(i int) string {
	m := c.At(i)
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.process == nil {
		return ""
	}
	return lastOf(m.process.Output())
}

func (c *labCluster) Close() error {
	for _, m := range append(c.Nodes(), c.At(Former)) {
		if m == nil {
			continue
		}
		m.take()
	}
	err := c.lab.Close()
	c.watches.Wait()
	return err
}

// lastOf shortens output to its last lines.
func lastOf(text string) string {
	if len(text) <= keptLog {
		return text
	}
	text = text[len(text)-keptLog:]
	_, text, _ = strings.Cut(text, "\n")
	return "...\n" + text
}

var _ Cluster = (*labCluster)(nil)
