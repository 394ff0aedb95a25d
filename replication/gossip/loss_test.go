package gossip

import (
	"bytes"
	"context"
	"crypto/tls"
	"crypto/x509"
	"encoding/pem"
	"errors"
	"fmt"
	"os"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/hashicorp/go-hclog"

	"github.com/annalsdb/annals/internal/check"
	"github.com/annalsdb/annals/internal/lab"
	"github.com/annalsdb/annals/replication/wire"
)

// Of the nodes of BenchmarkLoss.
const (
	lossNodes  = 5
	lossWindow = 30 * time.Second // without a kill, before each
	lossPort   = ":7000"

	// variables: the number and address of a node, the addresses of all
	lossNode, lossSeeds                = "GOSSIP_LOSS_NODE", "GOSSIP_LOSS_SEEDS"
	lossCertificate, lossKey, lossRoot = "GOSSIP_LOSS_CERTIFICATE", "GOSSIP_LOSS_KEY", "GOSSIP_LOSS_ROOT"
	lossView                           = "VIEW " // begins a line with the nodes that are alive
)

// playNode is one node of BenchmarkLoss, in a process of its own. It prints its log and its views.
func playNode() error {
	number, address, _ := strings.Cut(os.Getenv(lossNode), " ")
	n, err := strconv.ParseUint(number, 10, 8)
	if err != nil {
		return err
	}
	cert, err := tls.X509KeyPair([]byte(os.Getenv(lossCertificate)), []byte(os.Getenv(lossKey)))
	if err != nil {
		return err
	}
	shown := papers{hosts: map[string]int{}}
	shown.cert.Store(&cert)
	shown.pool.Store(x509.NewCertPool())
	shown.pool.Load().AppendCertsFromPEM([]byte(os.Getenv(lossRoot)))
	seeds := strings.Split(os.Getenv(lossSeeds), " ")
	logger := hclog.New(&hclog.LoggerOptions{Output: os.Stdout, Level: hclog.Debug})
	port, err := wire.Open(wire.Options{Bind: address, Node: id(byte(n)), Security: &shown, Logger: logger})
	if err != nil {
		return err
	}
	g, err := Open(Options{
		Port: port, Self: Self{Node: id(byte(n)), ReplicationAddress: address, Format: 1, Phase: "member"},
		Seeds:  func(context.Context) ([]string, error) { return seeds, nil },
		Logger: logger,
	})
	if err != nil {
		return err
	}
	for {
		changed := g.Changed()
		fmt.Println(lossView + summary(g))
		<-changed
	}
}

// lossRun watches the nodes of one run.
type lossRun struct {
	b    *testing.B
	wake chan struct{}

	mu        sync.Mutex // guards what follows
	counting  bool       // no node has been killed or is coming back
	suspected int        // memberlist's suspicions of nodes that live
	dead      int        // of them, those that did not hear of it in time
	views     [lossNodes + 1]string
}

// lossOutput takes what one node prints.
type lossOutput struct {
	r    *lossRun
	node int
	rest []byte // of a line that has not ended
}

func (o *lossOutput) Write(p []byte) (int, error) {
	o.rest = append(o.rest, p...)
	o.r.mu.Lock()
	defer o.r.mu.Unlock()
	for {
		line, rest, whole := bytes.Cut(o.rest, []byte("\n"))
		if !whole {
			return len(p), nil
		}
		o.r.take(o.node, string(line))
		o.rest = rest
	}
}

// take is called with the lock held.
func (r *lossRun) take(node int, line string) {
	if view, ok := strings.CutPrefix(line, lossView); ok {
		r.views[node] = view
		select {
		case r.wake <- struct{}{}:
		default:
		}
	} else if r.counting && strings.Contains(line, "has failed, no acks received") {
		r.suspected++
	} else if r.counting && strings.Contains(line, "suspect timeout reached") {
		r.dead++
	}
}

// until waits until a condition holds for the views of all nodes but one, and returns how long that
// took.
func (r *lossRun) until(but int, what string, holds func(view string) bool) time.Duration {
	begun, late := time.Now(), time.After(patience)
	for {
		r.mu.Lock()
		views, all := r.views, true
		r.mu.Unlock()
		for node := 1; node <= lossNodes; node++ {
			all = all && (node == but || holds(views[node]))
		}
		if all {
			return time.Since(begun)
		}
		select {
		case <-r.wake:
		case <-late:
			r.b.Fatalf("%s: not within %v: %q", what, patience, views)
		}
	}
}

// whole waits until all nodes see all nodes.
func (r *lossRun) whole() {
	r.until(0, "all nodes see all", func(view string) bool { return strings.Count(view, "+") == lossNodes })
}

// forget is called before a node starts.
func (r *lossRun) forget(node int) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.views[node] = ""
}

func (r *lossRun) count(on bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.counting = on
}

// BenchmarkLoss measures, with nodes in networks of their own that lose packets, how long it takes
// until all others see a killed node dead, and how often a living node is suspected, and taken for
// dead, in an hour of each node. Each round is lossWindow without a kill, and one kill.
func BenchmarkLoss(b *testing.B) {
	for _, percent := range []float64{0, 5, 20} {
		b.Run(fmt.Sprintf("percent=%g", percent), func(b *testing.B) { benchmarkLoss(b, percent/100) })
	}
}

func benchmarkLoss(b *testing.B, loss float64) {
	l, err := lab.New(lab.Options{Hosts: lossNodes, Dir: b.TempDir()})
	if errors.Is(err, lab.ErrNeedsLinux) {
		b.Skip(err)
	}
	check.Must(b, err)
	defer func() { check.NoError(b, l.Close()) }()
	if err := l.NoLinks(); err != nil {
		b.Skip(err)
	}
	self := check.Value(os.Executable()).Must(b)
	text := func(kind string, der []byte) string {
		return string(pem.EncodeToMemory(&pem.Block{Type: kind, Bytes: der}))
	}
	ca := newAuthority(b)
	var seeds []string
	for _, h := range l.Hosts() {
		seeds = append(seeds, h.Addr()+lossPort)
	}
	r := &lossRun{b: b, wake: make(chan struct{}, 1)}
	start := func(n int) *lab.Process {
		h := l.Host(n - 1)
		cert := ca.issue(h.Addr())
		key, err := x509.MarshalPKCS8PrivateKey(cert.PrivateKey)
		check.Must(b, err)
		r.forget(n)
		p, err := h.Start(context.Background(), lab.Command{Path: self, Log: &lossOutput{r: r, node: n}, Env: []string{
			fmt.Sprintf("%s=%d %s%s", lossNode, n, h.Addr(), lossPort), lossSeeds + "=" + strings.Join(seeds, " "),
			lossRoot + "=" + text("CERTIFICATE", ca.cert.Raw), lossCertificate + "=" + text("CERTIFICATE", cert.Certificate[0]),
			lossKey + "=" + text("PRIVATE KEY", key),
		}})
		check.Must(b, err)
		return p
	}
	nodes := make([]*lab.Process, lossNodes+1)
	for n := 1; n <= lossNodes; n++ {
		nodes[n] = start(n)
	}
	r.whole()
	for _, from := range l.Hosts() {
		for _, to := range l.Hosts() {
			if from != to {
				check.Must(b, l.Link(from, to).Set(lab.Rule{Drop: loss}))
			}
		}
	}
	var deaths []time.Duration
	for b.Loop() {
		r.count(true)
		<-time.After(lossWindow) // what is measured
		r.count(false)
		n := 1 + len(deaths)%lossNodes
		check.Must(b, nodes[n].Kill())
		deaths = append(deaths, r.until(n, "a killed node is seen dead", func(view string) bool { return !strings.Contains(view, fmt.Sprint(n, "+")) }))
		nodes[n] = start(n)
		r.whole()
	}
	slices.Sort(deaths)
	hours := (time.Duration(len(deaths)*lossNodes) * lossWindow).Hours()
	r.mu.Lock()
	defer r.mu.Unlock()
	b.ReportMetric(deaths[len(deaths)/2].Seconds(), "s/death-median")
	b.ReportMetric(deaths[len(deaths)-1].Seconds(), "s/death-max")
	b.ReportMetric(float64(r.suspected)/hours, "suspicions/node-hour")
	b.ReportMetric(float64(r.dead)/hours, "false-deaths/node-hour")
	b.ReportMetric(0, "ns/op")
}
