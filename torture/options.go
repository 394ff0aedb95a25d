package torture

import (
	"cmp"
	"errors"
	"fmt"
	"runtime"
	"time"
)

// options is what the flags say.
type options struct {
	nodes      int
	seconds    float64
	seed       uint64
	rounds     int
	faultNames []string
	bitFlips   int
	diskFaults bool
	loopback   bool
	tls        bool // certificates and users

	writers, erasers, visitors, subscribers int
	shedders, consumers, guests             int
	transfers, indexers, deciders           int
	scavenges, projections, backups         bool
	redactions, scheduled                   bool // scheduled: scavenges that nodes start themselves
	rate                                    float64
	timeout                                 time.Duration
	heal                                    time.Duration
	every                                   time.Duration
	operations                              int

	// slow is how many times as long pauses of clients are as usual, pauses those between faults,
	// 0: as slow.
	slow, pauses float64
	another      float64 // as of nemesis, 0: as usual
	spells       spells
	age          time.Duration // of events in some streams; 0: as a busy cluster has it
	dial         dialer
	// create makes the cluster, nil for the laboratory. It calls ended when a node ends by itself.
	create func(ended func(node, code int, tail string)) (Cluster, error)

	binary      string
	nodeOptions []string
	attach      []string
	keep        string
	json        bool
	failFast    bool
}

// restless is how many times as long pauses between faults are as usual.
func (o *options) restless() float64 { return cmp.Or(o.pauses, o.slow) }

// number is an option that says how many there are of something, within bounds that keep a mistyped
// flag from exhausting the machine.
type number struct {
	name               string
	value              *int
	usual, least, most int
	doc                string
}

const maxClients = 2000

func (o *options) numbers() []number {
	return []number{
		{"nodes", &o.nodes, 3, 1, 9, "voting nodes of the cluster"},
		{"rounds", &o.rounds, 1, 1, 100_000, "rounds, each with a new cluster and the next seed"},
		{"writers", &o.writers, 8, 0, maxClients, "clients that write and read on the leader"},
		{"erasers", &o.erasers, 2, 0, maxClients, "clients that delete streams and write to them again"},
		{"shedders", &o.shedders, 2, 0, maxClients, "clients that limit and delete their streams, for scavenges to remove something"},
		{"transfers", &o.transfers, 6, 0, maxClients, "clients that move money between accounts, each time in one write to several streams"},
		{"deciders", &o.deciders, 8, 0, maxClients, "clients that write under the condition that nothing came which changes what they read"},
		{"indexers", &o.indexers, 4, 0, maxClients, "clients that read indexes and queries from all nodes"},
		{"visitors", &o.visitors, 3, 0, maxClients, "clients that read here and there from any node"},
		{"subscribers", &o.subscribers, 4, 0, maxClients, "clients that follow the log or a stream"},
		{"consumers", &o.consumers, 8, 0, maxClients, "clients that compete for the messages of persistent subscriptions; 0 for no subscriptions"},
		{"guests", &o.guests, 2, 0, maxClients, "clients that sign in as users whom an operator changes meanwhile, with --tls; 0 for no changes"},
		{"bit-flips", &o.bitFlips, 0, 0, 1_000_000, "single bits that change in files of nodes, one after the other, in place of all else; 0 for none"},
		{"operations", &o.operations, 4_000_000, 1, 50_000_000, "operations of all clients that the history holds; they stop there"},
	}
}

func (o *options) validate() error {
	if !(o.seconds > 0 && o.seconds <= 7*24*3600) {
		return fmt.Errorf("--seconds %g is not between zero and a week", o.seconds)
	}
	if !(o.rate >= 0 && o.rate <= 1e6) {
		return fmt.Errorf("--rate %g is not between 0 and a million", o.rate)
	}
	if o.timeout <= 0 || o.heal <= 0 || o.every <= 0 {
		return errors.New("--timeout, --heal and --progress must be positive")
	}
	if len(o.attach) > 0 && (o.diskFaults || len(o.faultNames) > 0 || len(o.nodeOptions) > 0) {
		return errors.New("--attach does nothing to nodes: --faults, --disk-faults and --option are only for nodes that this command starts")
	}
	if len(o.attach) == 0 && runtime.GOOS != "linux" {
		return errors.New("the laboratory needs Linux; --attach works everywhere")
	}
	if o.bitFlips > 0 && (len(o.attach) > 0 || o.nodes < 3) {
		return errors.New("--bit-flips needs three or more nodes, which this command starts itself")
	}
	if o.tls && o.bitFlips > 0 {
		return errors.New("--tls does not go together with --bit-flips, whose nodes have no certificates")
	}
	if o.tls && len(o.attach) > 0 {
		return errors.New("--tls gives certificates to nodes that this command starts; with --attach write https:// in their addresses")
	}
	if o.keep == "" {
		return errors.New("--keep needs the name of a folder")
	}
	for _, n := range o.numbers() {
		if *n.value < n.least || *n.value > n.most {
			return fmt.Errorf("--%s %d is not between %d and %d", n.name, *n.value, n.least, n.most)
		}
	}
	return nil
}
