package lab

import (
	"errors"
	"fmt"
	"io/fs"
	"math/rand/v2"
	"net"
	"net/netip"
	"os"
	"sync"
	"sync/atomic"

	"golang.org/x/sys/unix"
)

const (
	// clientNumber is the last byte of the address of this process. Hosts count from 1.
	clientNumber = 254
	// subnetTries bounds the search for unused addresses.
	subnetTries = 64
)

// network is the switch, its devices, and the links between them.
type network struct {
	subnet netip.Prefix
	seed   uint64

	stop chan struct{} // closed when the links are to end
	// a goroutine for each device, and for each link that ever let a packet wait
	running sync.WaitGroup

	mu      sync.Mutex // guards what follows
	devices map[byte]*device
	lost    error // devices that could not be read
}

// device is one end of the network.
type device struct {
	number byte
	file   *os.File
	links  [256]atomic.Pointer[link] // by the receiving device's number
}

// openNetwork finds a free subnet and attaches this process to it.
func openNetwork(seed int64) (*network, error) {
	taken, err := interfaceNetworks()
	if err != nil {
		return nil, err
	}
	for try := range subnetTries {
		x, y := byte(rand.IntN(256)), byte(rand.IntN(256))
		subnet := netip.PrefixFrom(netip.AddrFrom4([4]byte{10, x, y, 0}), 24)
		if collides(subnet, taken, try >= subnetTries/2) {
			continue
		}
		// The name makes the subnet ours: the kernel gives it to one process at a time.
		file, err := openDevice(fmt.Sprintf("lab-10-%d-%d", x, y), address(subnet, clientNumber))
		if errors.Is(err, unix.EBUSY) {
			continue
		}
		if err != nil {
			return nil, err
		}
		n := &network{
			subnet: subnet, seed: uint64(seed), stop: make(chan struct{}), devices: map[byte]*device{},
		}
		n.attach(clientNumber, file)
		return n, nil
	}
	return nil, errors.New("no free subnet within 10.0.0.0/8 for the hosts")
}

// collides says whether others use the addresses. Those who must be content
// with less only avoid the addresses of this machine: a machine may be in a
// network that spans all of 10.0.0.0/8.
func collides(subnet netip.Prefix, taken []netip.Prefix, contentWithLess bool) bool {
	for _, t := range taken {
		if subnet.Contains(t.Addr()) || !contentWithLess && subnet.Overlaps(t) {
			return true
		}
	}
	return false
}

// interfaceNetworks are the IPv4 networks that this machine is in, with its addresses in them.
func interfaceNetworks() ([]netip.Prefix, error) {
	addresses, err := net.InterfaceAddrs()
	if err != nil {
		return nil, fmt.Errorf("list the addresses of this machine: %w", err)
	}
	var all []netip.Prefix
	for _, a := range addresses {
		if p, err := netip.ParsePrefix(a.String()); err == nil && p.Addr().Is4() {
			all = append(all, p)
		}
	}
	return all, nil
}

// address is the host address with a number within the subnet.
func address(subnet netip.Prefix, number byte) netip.Addr {
	b := subnet.Addr().As4()
	b[3] = number
	return netip.AddrFrom4(b)
}

// attach connects a device to all others and takes over its file.
func (n *network) attach(number byte, file *os.File) {
	d := &device{number: number, file: file}
	n.mu.Lock()
	for _, other := range n.devices {
		d.links[other.number].Store(newLink(n, other, n.seed, uint64(number)<<8|uint64(other.number)))
		other.links[number].Store(newLink(n, d, n.seed, uint64(other.number)<<8|uint64(number)))
	}
	n.devices[number] = d
	n.mu.Unlock()
	n.running.Add(1)
	go n.serve(d)
}

// serve forwards what a device sends until its file is closed.
func (n *network) serve(d *device) {
	defer n.running.Done()
	buffer := make([]byte, headerSize+maxPacket)
	for {
		size, err := d.file.Read(buffer)
		if errors.Is(err, fs.ErrClosed) {
			return
		}
		if err != nil {
			n.mu.Lock()
			n.lost = errors.Join(n.lost, fmt.Errorf("nothing from %s passed any more: %w", address(n.subnet, d.number), err))
			n.mu.Unlock()
			return
		}
		if number, ok := n.destination(buffer[:size]); ok {
			if l := d.links[number].Load(); l != nil {
				l.forward(buffer[:size])
			}
		}
	}
}

// destination is the number of the device that a packet is for. A packet for no device of this
// network, or one that is not IPv4, is dropped.
func (n *network) destination(packet []byte) (byte, bool) {
	const ipHeader = 20
	if len(packet) < headerSize+ipHeader || packet[headerSize]>>4 != 4 {
		return 0, false
	}
	to := packet[headerSize+16 : headerSize+20]
	s := n.subnet.Addr().As4()
	return to[3], to[0] == s[0] && to[1] == s[1] && to[2] == s[2]
}

// link finds a link.
func (n *network) link(from, to byte) (*link, error) {
	n.mu.Lock()
	defer n.mu.Unlock()
	if d := n.devices[from]; d != nil {
		if l := d.links[to].Load(); l != nil {
			return l, nil
		}
	}
	return nil, fmt.Errorf("there is no link from %s to %s", address(n.subnet, from), address(n.subnet, to))
}

// close takes the devices away and ends all goroutines.
func (n *network) close() error {
	close(n.stop)
	n.mu.Lock()
	var errs []error
	for _, d := range n.devices {
		errs = append(errs, d.file.Close())
	}
	n.mu.Unlock()
	n.running.Wait()
	return errors.Join(append(errs, n.lost)...)
}
