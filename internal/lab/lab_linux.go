package lab

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"net"
	"net/netip"
	"os"
	"path/filepath"
	"slices"
	"sync"
	"sync/atomic"

	"golang.org/x/sys/unix"
)

// Lab is a small network of hosts. Its methods may be called by several
// goroutines at once.
type Lab struct {
	options Options
	name    string // of the folder and of mounts, with our process id: see removeLeftovers
	folder  string
	made    bool // the folder is ours to remove

	subnet  netip.Prefix
	network *network // nil where hosts are loopback addresses
	noLinks error    // why they are
	claim   *net.UDPConn

	hosts   []*Host
	closed  atomic.Bool
	closing func() error // once
}

// New makes a lab. First it removes what labs of dead processes have left
// behind. Where network namespaces are not allowed the lab does without, see the
// package comment.
func New(o Options) (*Lab, error) {
	o.EnsureDefaults()
	if err := o.Validate(); err != nil {
		return nil, fmt.Errorf("options of a lab: %w", err)
	}
	_ = removeLeftovers() // A lab works even if this fails.
	if o.Loopback {
		return build(o, errors.New("the options of the lab ask for it"))
	}
	l, err := build(o, nil)
	if err != nil && notAllowed(err) {
		return build(o, err)
	}
	return l, err
}

// errNetwork marks what went wrong while namespaces and devices were made.
var errNetwork = errors.New("set up the network of the lab")

// notAllowed tells a system that does not let us have namespaces or TUN devices
// from one where something went wrong.
func notAllowed(err error) bool {
	return errors.Is(err, errNetwork) && slices.ContainsFunc([]error{unix.EPERM, unix.EACCES, unix.ENOENT, unix.ENODEV, unix.ENXIO, unix.ENOSYS, unix.EINVAL},
		func(e error) bool { return errors.Is(err, e) })
}

// build makes a lab whose hosts are loopback addresses if there is a reason for that.
func build(o Options, noLinks error) (_ *Lab, err error) {
	l := &Lab{options: o, noLinks: noLinks, name: fmt.Sprintf("%s%d-%08x", namePrefix, os.Getpid(), rand.Uint32())}
	l.closing = sync.OnceValue(l.close)
	defer func() {
		if err != nil {
			err = errors.Join(err, l.Close())
		}
	}()
	if err := l.claimAddresses(); err != nil {
		return nil, err
	}
	if err := l.makeFolder(); err != nil {
		return nil, err
	}
	for i := range o.Hosts {
		h, err := l.newHost(byte(i + 1))
		if err != nil {
			return nil, fmt.Errorf("make host %d: %w", i, err)
		}
		l.hosts = append(l.hosts, h)
	}
	return l, nil
}

// claimAddresses finds addresses for hosts of the kind that is possible.
func (l *Lab) claimAddresses() error {
	if l.noLinks != nil {
		return l.claimLoopback()
	}
	n, err := openNetwork(l.options.Seed)
	if err != nil {
		return fmt.Errorf("%w: %w", errNetwork, err)
	}
	l.network, l.subnet = n, n.subnet
	return nil
}

// makeFolder makes the folder that holds those of the hosts.
func (l *Lab) makeFolder() (err error) {
	folder := l.options.Dir
	if folder == "" {
		folder = filepath.Join(os.TempDir(), l.name)
	}
	if folder, err = filepath.Abs(folder); err != nil {
		return fmt.Errorf("folder of the lab: %w", err)
	}
	switch err := os.Mkdir(folder, 0o755); {
	case err == nil:
		l.made = true
	case l.options.Dir == "" || !errors.Is(err, os.ErrExist):
		return fmt.Errorf("folder of the lab: %w", err)
	}
	l.folder = folder
	return nil
}

// claimPort is bound on the last address of a loopback subnet by the lab that has it.
const claimPort = 41953

// claimLoopback finds 256 loopback addresses that no other lab uses.
func (l *Lab) claimLoopback() error {
	for range subnetTries {
		// Above 127.0: that is where everybody else is.
		subnet := netip.PrefixFrom(netip.AddrFrom4([4]byte{127, byte(1 + rand.IntN(254)), byte(rand.IntN(256)), 0}), 24)
		claim, err := net.ListenUDP("udp4", net.UDPAddrFromAddrPort(netip.AddrPortFrom(address(subnet, clientNumber), claimPort)))
		if err == nil {
			l.subnet, l.claim = subnet, claim
			return nil
		}
		if !errors.Is(err, unix.EADDRINUSE) {
			return fmt.Errorf("claim loopback addresses: %w", err)
		}
	}
	return errors.New("no free loopback addresses for the hosts")
}

// Host returns a host; the first one is 0. It panics if there is none.
func (l *Lab) Host(i int) *Host { return l.hosts[i] }

// Hosts returns all hosts in order.
func (l *Lab) Hosts() []*Host { return slices.Clone(l.hosts) }

// Dir is the folder that holds those of the hosts and their log files.
func (l *Lab) Dir() string { return l.folder }

// Close kills all processes and removes all that the lab has made. It waits for
// that, but not for ever: a process that the kernel does not let die is an error.
func (l *Lab) Close() error { return l.closing() }

func (l *Lab) close() error {
	l.closed.Store(true)
	// Processes before the network: they die all at once and see nothing break.
	errs := make([]error, len(l.hosts))
	var group sync.WaitGroup
	for i, h := range l.hosts {
		group.Go(func() { errs[i] = h.killAll() })
	}
	group.Wait()
	if l.network != nil {
		errs = append(errs, l.network.close())
	}
	if l.claim != nil {
		errs = append(errs, l.claim.Close())
	}
	for _, h := range l.hosts {
		h.thread.end()
		errs = append(errs, h.unmount())
		if !l.options.Keep {
			errs = append(errs, os.RemoveAll(h.folder))
		}
	}
	if l.made && !l.options.Keep {
		errs = append(errs, os.RemoveAll(l.folder))
	}
	if err := errors.Join(errs...); err != nil {
		return fmt.Errorf("close the lab: %w", err)
	}
	return nil
}

// newHost makes a host: its folder, its thread and, if it is allowed, its
// namespace with a device in it.
func (l *Lab) newHost(number byte) (_ *Host, err error) {
	h := &Host{lab: l, number: number, thread: startThread()}
	defer func() {
		if err != nil {
			h.thread.end()
			err = errors.Join(err, os.RemoveAll(h.folder))
		}
	}()
	h.folder = filepath.Join(l.folder, fmt.Sprintf("host-%d", h.Index()))
	if err := os.MkdirAll(h.Dir(), 0o755); err != nil {
		return nil, fmt.Errorf("make its folder: %w", err)
	}
	if l.network == nil {
		return h, nil
	}
	var device *os.File
	err = h.thread.do(context.Background(), func() (err error) {
		if err := unix.Unshare(unix.CLONE_NEWNET); err != nil {
			return fmt.Errorf("make a network namespace: %w", err)
		}
		if err := raiseLoopback(); err != nil {
			return fmt.Errorf("set up its loopback device: %w", err)
		}
		device, err = openDevice("host", address(l.subnet, number))
		return err
	})
	if err != nil {
		return nil, fmt.Errorf("%w: %w", errNetwork, err)
	}
	l.network.attach(number, device)
	return h, nil
}
