package torture

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"time"
)

// Bounds that keep a mistyped flag from exhausting the machine.
const (
	maxClients    = 2000
	maxOperations = 50_000_000
	maxRounds     = 100_000
)

// options is what the flags say.
type options struct {
	nodes      int
	seconds    float64
	seed       uint64
	rounds     int
	faultNames []string
	diskFaults bool
	loopback   bool

	writers, erasers, visitors, subscribers int
	shedders, consumers                     int
	scavenges, projections, backups         bool
	redactions                              bool
	rate                                    float64
	timeout                                 time.Duration
	heal                                    time.Duration
	every                                   time.Duration
	operations                              int64

	binary      string
	nodeOptions []string
	attach      []string
	keep        string
	json        bool

	duration time.Duration // from seconds
}

func defaultOptions() options {
	return options{
		nodes: 3, seconds: 60, rounds: 1,
		writers: 8, erasers: 2, shedders: 2, scavenges: true, projections: true, backups: true, redactions: true, visitors: 3, subscribers: 4, consumers: 8,
		rate: 800, timeout: 3 * time.Second, heal: 90 * time.Second, every: 5 * time.Second,
		operations: 4_000_000, keep: filepath.Join(os.TempDir(), "annals-torture"),
	}
}

func (o *options) validate() error {
	between := func(what string, n, low, high int64) error {
		if n < low || n > high {
			return fmt.Errorf("--%s %d is not between %d and %d", what, n, low, high)
		}
		return nil
	}
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
		return errors.New("--attach tortures nobody's nodes: --faults, --disk-faults and --option go with nodes of our own")
	}
	if len(o.attach) == 0 && runtime.GOOS != "linux" {
		return errors.New("the laboratory needs Linux; --attach works everywhere")
	}
	if o.keep == "" {
		return errors.New("--keep names no folder")
	}
	o.duration = time.Duration(o.seconds * float64(time.Second))
	return errors.Join(
		between("nodes", int64(o.nodes), 1, 9),
		between("rounds", int64(o.rounds), 1, maxRounds),
		between("writers", int64(o.writers), 0, maxClients),
		between("erasers", int64(o.erasers), 0, maxClients),
		between("shedders", int64(o.shedders), 0, maxClients),
		between("visitors", int64(o.visitors), 0, maxClients),
		between("subscribers", int64(o.subscribers), 0, maxClients),
		between("consumers", int64(o.consumers), 0, maxClients),
		between("operations", o.operations, 1, maxOperations),
	)
}
