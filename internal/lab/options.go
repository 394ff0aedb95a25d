package lab

import (
	"errors"
	"fmt"
	"io"
	"time"
)

// Errors of a lab. They come wrapped with what was attempted.
var (
	// ErrNeedsLinux is what New returns on other systems.
	ErrNeedsLinux = errors.New("needs Linux")
	// ErrClosed is returned by what is asked of a closed lab.
	ErrClosed = errors.New("the lab is closed")
	// ErrNoLinks is returned by changes of links where hosts are loopback addresses.
	ErrNoLinks = errors.New("links cannot be changed: hosts are loopback addresses")
	// ErrNoDiskLimit is returned for a disk that is as large as the machine's.
	ErrNoDiskLimit = errors.New("the disk of the host has no limit")
	// ErrNoDevice is returned where a host cannot have, or has not, a disk that can hang.
	ErrNoDevice = errors.New("no block device can be had")
)

// MaxHosts is how many hosts fit into the network of a lab.
const MaxHosts = 253

// Options says what a lab looks like. The zero value is a lab of three hosts in
// a temporary folder.
type Options struct {
	// Hosts is the number of hosts at the start, default 3, at most MaxHosts.
	Hosts int
	// Dir holds the folders of the hosts. It is made if it does not exist. The
	// default is a new temporary folder.
	Dir string
	// Keep keeps folders and log files when the lab is closed. Files on limited disks are lost all
	// the same. Files on made disks stay in the image of the disk.
	Keep bool
	// Seed decides which packets are lost and how long jitter lasts, for each
	// link from the sequence of its packets.
	Seed int64
	// Loopback uses loopback addresses even where namespaces are allowed.
	Loopback bool
}

// EnsureDefaults gives zero fields their defaults.
func (o *Options) EnsureDefaults() {
	if o.Hosts == 0 {
		o.Hosts = 3
	}
}

// Validate says what is wrong with the options.
func (o *Options) Validate() error {
	if o.Hosts < 0 || o.Hosts > MaxHosts {
		return fmt.Errorf("%d hosts: a lab has 1 to %d", o.Hosts, MaxHosts)
	}
	return nil
}

// Command describes a process to start on a host. Its working directory is the
// host's folder.
type Command struct {
	// Path is the program. A name without a slash is looked up in PATH.
	Path string
	// Args follow the path.
	Args []string
	// Env is added to the environment of this process, as KEY=value. Of equal keys the last counts.
	Env []string
	// Log gets all that the process prints, too, and must not block. It is used
	// by one goroutine of each process that has it. May be nil.
	Log io.Writer
}

// Traffic counts what a link did since its hosts exist.
type Traffic struct {
	Packets uint64 // handed over
	Bytes   uint64 // in these packets, with their IP headers
	Dropped uint64 // packets lost because of a rule, a full queue, or a receiver that is gone
}

// Rule is how a directed link treats packets. The zero value passes all at once.
type Rule struct {
	// Cut drops everything, whatever the other fields say.
	Cut bool
	// Drop is the probability, 0 to 1, with which a packet is lost.
	Drop float64
	// Delay is added to the way of each packet, in order.
	Delay time.Duration
	// Jitter is the bound of what is added at random to the delay of each packet.
	// With it packets overtake each other.
	Jitter time.Duration
	// BytesPerSecond is the bandwidth; 0 has no limit. What would wait for longer than a
	// quarter of a second for its turn is lost, as in the queue of a router.
	BytesPerSecond int64
}

// Validate says what is wrong with a rule.
func (r Rule) Validate() error {
	switch {
	case !(r.Drop >= 0 && r.Drop <= 1):
		return fmt.Errorf("a packet is lost with probability 0 to 1, not %v", r.Drop)
	case r.Delay < 0 || r.Jitter < 0:
		return fmt.Errorf("a link is not delayed by %s with a jitter of %s", r.Delay, r.Jitter)
	case r.BytesPerSecond < 0:
		return fmt.Errorf("a bandwidth of %d bytes per second", r.BytesPerSecond)
	}
	return nil
}
