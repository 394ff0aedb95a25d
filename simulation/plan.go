package simulation

import (
	"cmp"
	"fmt"
	"math"
	"math/rand/v2"
	"strings"
	"time"

	"github.com/annalsdb/annals/config"
	"github.com/annalsdb/annals/internal/network/memory"
	"github.com/annalsdb/annals/torture"
)

// plan is what follows from a seed.
type plan struct {
	torture.Plan
	seed           uint64
	nodes          int
	secure         bool              // nodes and clients use TLS, and there are users
	stores         []config.LogStore // of the Raft logs, node by node
	link           memory.Link       // between any two hosts, without a fault
	drift          float64           // of the worst clock, in seconds a second
	sync           time.Duration     // of a file or a folder
	patience       int               // how many times as long as usual nodes wait for each other
	postingsMemory int               // bytes
	memTable       int               // entries of the index
	snapshot       uint64            // after so many entries in the Raft log; 0: as usual
	trailing       int               // entries, which the Raft log keeps
	mapped         bool              // whether nodes map files into memory, as they do on disks
}

const (
	// secureOneIn is how often nodes have certificates and users.
	secureOneIn  = 4
	requestLimit = 3 * time.Second
	healLimit    = 2 * time.Minute
	// livenessLimit and so many pauses of writers bound how long no write succeeds. Faults last
	// seconds, and between them the cluster is whole.
	livenessLimit  = 90 * time.Second
	livenessPauses = 15
	// longestBusy is how long a cluster may be at work all the time. One that lives longer lives as
	// most do: clients and faults come in spells of minutes, and up to hours of quiet lie between
	// them.
	longestBusy = 2 * time.Hour
)

var sizes = [...]int{1, 1, 3, 3, 3, 5}

// newPlan makes the plan of a seed.
func newPlan(o Options) *plan {
	rng := rand.New(rand.NewPCG(o.Seed, 10<<32))
	p := &plan{seed: o.Seed, nodes: sizes[rng.IntN(len(sizes))]}
	p.nodes = cmp.Or(o.Nodes, p.nodes)
	security := rand.New(rand.NewPCG(o.Seed, 12<<32))
	p.secure = security.IntN(secureOneIn) == 0
	first := rng.IntN(len(stores))
	p.stores = append(p.stores, stores[first])
	if p.nodes > 1 && rng.IntN(2) == 0 {
		p.stores = append(p.stores, stores[1-first])
	}
	p.link.Latency = time.Duration(100+rng.IntN(3000)) * time.Microsecond
	p.link.Jitter = time.Duration(rng.IntN(1000)) * time.Microsecond
	if rng.IntN(4) == 0 {
		p.link.Bandwidth = 1<<20 + rng.Int64N(16<<20)
	}
	if rng.IntN(2) == 0 {
		p.drift = 1e-4 * rng.Float64() // 100 parts in a million are a bad clock.
	}
	p.sync = time.Duration(50+rng.IntN(5000)) * time.Microsecond
	p.postingsMemory, p.memTable = 32<<10+rng.IntN(256<<10), int(spread(rng, 20, 1000))
	// Long Raft logs need no snapshots, which mend what is wrong with a log.
	if rng.IntN(2) == 0 {
		p.snapshot, p.trailing = uint64(spread(rng, 3, 1000)), int(spread(rng, 1, 500))
	}

	// Some clusters are never at rest, others for minutes. Where hours are quiet, spells are not.
	slowest := 30.0
	if o.Length > longestBusy {
		slowest = 5
	}
	slow := spread(rng, 5, 5*slowest)
	few := func(most int) int { return rng.IntN(most + 1) }
	p.Plan = torture.Plan{
		Seed: o.Seed, Length: o.Length, Slow: slow, Pauses: spread(rng, 0.5, 50), Another: 0.9 * rng.Float64() * rng.Float64(), Timeout: requestLimit, Heal: healLimit, Rate: 0.2 + 10/slow, Progress: o.Progress,
		Writers: 1 + few(3), Erasers: few(1), Shedders: few(1), Transfers: few(2), Deciders: few(2), Indexers: few(1),
		Visitors: 1 + few(2), Subscribers: few(2), Consumers: few(3),
		Scavenges: few(1) == 0, Projections: few(2) == 0, Backups: few(1) == 0, Redactions: few(1) == 0,
	}
	if p.secure {
		p.Guests = 1 + security.IntN(3)
	}
	p.patience = 1
	if o.Length > longestBusy {
		p.Busy = time.Duration(60+rng.IntN(120)) * time.Second
		p.Quiet = time.Duration(float64(30*time.Minute) * math.Pow(12, rng.Float64())).Round(time.Second)
		p.Age = time.Duration(1+rng.Int64N(2*int64(p.Quiet/time.Second))) * time.Second
		p.patience = 1 << few(2)
		p.Scheduled = p.Scavenges && few(1) == 0
	}
	if rng.IntN(5) == 0 { // Clients get in each other's way.
		p.Rate, p.Writers, p.Transfers, p.Deciders = 8*p.Rate, 4, 3, 4
	}
	// A few kinds of faults meet each other more often than all do.
	if p.Faults = o.Faults; len(o.Faults) == 0 && rng.IntN(2) == 0 {
		for _, name := range torture.FaultNames() {
			if rng.IntN(3) == 0 {
				p.Faults = append(p.Faults, name)
			}
		}
	}
	p.mapped = rng.IntN(4) > 0
	return p
}

// spread chooses between two bounds, small numbers as often as large ones.
func spread(rng *rand.Rand, least, most float64) float64 {
	return least * math.Exp(rng.Float64()*math.Log(most/least))
}

// liveness bounds how long no write may succeed.
func (p *plan) liveness() time.Duration {
	pause := time.Duration(float64(p.Writers) / p.Rate * float64(time.Second))
	return livenessLimit + livenessPauses*pause
}

// String is a line that says what is simulated.
func (p *plan) String() string {
	var kinds []string
	for _, s := range p.stores {
		kinds = append(kinds, string(s))
	}
	text := fmt.Sprintf("seed %d: %s on %d nodes, Raft logs in %s; %s from host to host, %s for a sync; pauses %.0f times as long",
		p.seed, p.Length, p.nodes, strings.Join(kinds, ", "), p.link.Latency, p.sync, p.Slow)
	if p.secure {
		text += "; with certificates and users"
	}
	if p.Quiet > 0 {
		text += fmt.Sprintf("; spells of %s, then %s of quiet", p.Busy, p.Quiet)
	}
	return text
}
