package gossip

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"strconv"
	"time"

	"github.com/hashicorp/go-hclog"

	"github.com/annalsdb/annals/replication/wire"
	"github.com/annalsdb/annals/stats"
)

// Options of Gossip. Port and Self.Node must be given; what else is zero gets a default.
type Options struct {
	Port *wire.Port // between nodes. It is to be closed after the gossip.

	Self Self // what this node says of itself

	// Seeds returns nodes to begin with, each as host:port. It is called again while this node
	// knows no other node or a node is missing, as answers may change.
	Seeds func(ctx context.Context) ([]string, error)

	// Ask asks a seed that is not a port between nodes, at an ip:port that was found for a host, as
	// a port for clients. It returns the ports between nodes that are known there, each as
	// host:port. Default: none is asked.
	Ask func(ctx context.Context, address, host string) ([]string, error)

	// Interval and Timeout pace everything that is done periodically: a dead node
	// is noticed after 2 to 4 s with the defaults of 2 s and 2.5 s, and after
	// accordingly longer with larger ones.
	Interval time.Duration
	Timeout  time.Duration

	DeadRemoval time.Duration // a dead node stays in the list for so long; default 30 min

	Logger hclog.Logger    // default: none
	Stats  *stats.Registry // where the metrics are registered; default: nowhere

	timing timing
	// allow says whether this node reaches an address. Tests cut links with it.
	allow func(to netip.AddrPort) bool
}

// timing holds what no operator changes and tests shorten.
type timing struct {
	retryMin, retryMax time.Duration // pause between attempts to find any node
	heal               time.Duration // pause between attempts to find those that are missing
	again              time.Duration // the same complaint is logged again after so long
	leave              time.Duration // bound for leaving gracefully
	// for so long after the start a silent seed causes no warning: nodes that are started together
	// begin one after the other
	seeds time.Duration
}

// EnsureDefaults replaces zero values by defaults.
func (o *Options) EnsureDefaults() {
	o.Interval = cmp.Or(o.Interval, 2*time.Second)
	o.Timeout = cmp.Or(o.Timeout, 2500*time.Millisecond)
	o.DeadRemoval = cmp.Or(o.DeadRemoval, 30*time.Minute)
	o.timing.retryMin = cmp.Or(o.timing.retryMin, 200*time.Millisecond)
	o.timing.retryMax = cmp.Or(o.timing.retryMax, 5*time.Second)
	o.timing.heal = cmp.Or(o.timing.heal, 15*time.Second)
	o.timing.again = cmp.Or(o.timing.again, time.Minute)
	o.timing.leave = cmp.Or(o.timing.leave, 2*time.Second)
	o.timing.seeds = cmp.Or(o.timing.seeds, 30*time.Second)
	o.Logger = cmp.Or(o.Logger, hclog.NewNullLogger())
	if o.Seeds == nil {
		o.Seeds = func(context.Context) ([]string, error) { return nil, nil }
	}
	if o.allow == nil {
		o.allow = func(netip.AddrPort) bool { return true }
	}
}

// minPace is the least Interval, Timeout and DeadRemoval: so the values derived from them stay
// above zero.
const minPace = 20 * time.Millisecond

// Validate reports what cannot work.
func (o *Options) Validate() error {
	if o.Self.Node.IsZero() {
		return errors.New("gossip: the node has no id")
	}
	for _, d := range []time.Duration{o.Interval, o.Timeout, o.DeadRemoval} {
		if d < minPace {
			return fmt.Errorf("gossip: a period of %v is less than %v", d, minPace)
		}
	}
	return nil
}

// pace holds the settings of memberlist and serf, derived from Interval and Timeout.
type pace struct {
	probe     time.Duration // between two probes; a node is suspected after one without an answer
	direct    time.Duration // wait for a direct answer, before asking others to probe
	spread    time.Duration // between two rounds of passing on news
	broadcast time.Duration // wait for news to be passed on
	reap      time.Duration // between two searches for those dead too long
}

// suspicion is how many probe intervals a suspect has to answer before it counts
// as dead, and suspicionMax the factor on it while no other node agrees. With the default
// probes of 500 ms this makes 2 s and 4 s after a first probe and its answer's time.
const (
	suspicion    = 4
	suspicionMax = 2
)

func (o *Options) pace() pace {
	// A probe has a direct part and, after it, one through others and over TCP.
	probe := max(o.Interval/4, o.Timeout/5)
	return pace{
		probe:     probe,
		direct:    min(o.Timeout/10, probe/2),
		spread:    o.Interval / 20,
		broadcast: o.timing.leave / 3,
		reap:      min(15*time.Second, o.DeadRemoval/4),
	}
}

// splitHostPort takes host:port apart. The port must be a number above zero.
func splitHostPort(text string) (string, uint16, error) {
	host, portText, err := net.SplitHostPort(text)
	if err != nil {
		return "", 0, err
	}
	port, err := strconv.ParseUint(portText, 10, 16)
	if err != nil || port == 0 || host == "" {
		return "", 0, fmt.Errorf("%q is not of the form host:port", text)
	}
	return host, uint16(port), nil
}
