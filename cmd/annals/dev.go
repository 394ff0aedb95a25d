package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/netip"
	"os"
	"os/signal"
	"path/filepath"
	"sync"
	"syscall"
	"time"

	"github.com/hashicorp/go-hclog"
	"github.com/spf13/cobra"

	"github.com/annalsdb/annals/config"
	"github.com/annalsdb/annals/event"
	"github.com/annalsdb/annals/internal/certs"
	"github.com/annalsdb/annals/node"
)

const devHelp = `Run a cluster for development: several nodes in one process, on this machine
only. When it is ready it prints where each node serves clients. SIGINT or SIGTERM ends it.

Without --db the data are in a temporary folder that goes with the cluster.
Between the nodes and to their clients all is plain, unless --tls makes
certificates for this run; the authority's goes to a file that is printed. Users
are as in any database: admin and ops with the password changeit, unless --insecure
does without.`

// devOptions are the flags of annals dev.
type devOptions struct {
	nodes    int
	db       string
	port     int
	tls      bool
	insecure bool
	logLevel string
}

func devCommand(stdout, stderr io.Writer) *cobra.Command {
	var o devOptions
	cmd := &cobra.Command{
		Use:   "dev",
		Short: "Run a cluster for development in one process",
		Long:  devHelp,
		Args:  cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			ctx, stop := signal.NotifyContext(cmd.Context(), syscall.SIGINT, syscall.SIGTERM)
			defer stop()
			return runDev(ctx, o, stdout, stderr, os.Exit)
		},
	}
	flags := cmd.Flags()
	flags.IntVar(&o.nodes, "nodes", 3, "how many nodes: 1, 3 or 5")
	flags.StringVar(&o.db, "db", "", "folder for the data, which stay; default a temporary one")
	flags.IntVar(&o.port, "port", 2113, "port of the first node, the others follow; 0: free ones")
	flags.BoolVar(&o.tls, "tls", false, "make certificates for this run and use TLS everywhere")
	flags.BoolVar(&o.insecure, "insecure", false, "no users and no rights")
	flags.StringVar(&o.logLevel, "log-level", "warn", "level of the log: error, warn, info, debug")
	return cmd
}

func (o *devOptions) validate() error {
	switch {
	case o.nodes != 1 && o.nodes != 3 && o.nodes != 5:
		return fmt.Errorf("--nodes must be 1, 3 or 5, not %d", o.nodes)
	case o.port < 0 || o.port+o.nodes > 65536:
		return fmt.Errorf("--port %d: %d ports from there on are needed", o.port, o.nodes)
	case o.tls && o.insecure:
		return errors.New("--tls and --insecure exclude each other")
	case hclog.LevelFromString(o.logLevel) == hclog.NoLevel:
		return fmt.Errorf("--log-level %q is not known", o.logLevel)
	}
	return nil
}

// devCluster are the nodes of annals dev.
type devCluster struct {
	o      devOptions
	dir    string
	logger hclog.Logger
	stderr io.Writer
	exit   func(int)
	set    *certs.Set
	nodes  []*node.Node

	mu    sync.Mutex // guards seeds
	seeds []string
}

func runDev(ctx context.Context, o devOptions, stdout, stderr io.Writer, exit func(int)) (err error) {
	if err := o.validate(); err != nil {
		return err
	}
	c := &devCluster{o: o, dir: o.db, stderr: stderr, exit: exit}
	logs := newSink(stderr, func(dropped int) { complain(stderr, fmt.Errorf("%d lines of the log were dropped", dropped)) })
	defer logs.close()
	c.logger = hclog.New(&hclog.LoggerOptions{Name: "annals", Level: hclog.LevelFromString(o.logLevel), Output: logs})
	if c.dir == "" {
		if c.dir, err = os.MkdirTemp("", "annals-dev-"); err != nil {
			return err
		}
		defer func() { err = errors.Join(err, os.RemoveAll(c.dir)) }()
	}
	authority := ""
	if o.tls {
		if authority, err = c.certificates(); err != nil {
			return err
		}
	}
	defer func() { err = errors.Join(err, c.close()) }()
	for i := range o.nodes {
		if err := c.open(ctx, i); err != nil {
			return err
		}
	}
	if err := c.ready(ctx); err != nil {
		if ctx.Err() != nil {
			return nil
		}
		return err
	}
	if err := c.announce(stdout, authority); err != nil {
		return err
	}
	<-ctx.Done()
	return nil
}

// certificates makes an authority and a certificate for this run.
func (c *devCluster) certificates() (path string, err error) {
	authority, err := certs.NewAuthority(certs.AuthorityOptions{})
	if err != nil {
		return "", err
	}
	issued, err := authority.Issue(certs.NodeOptions{DNSNames: []string{"localhost"}, IPs: []netip.Addr{netip.MustParseAddr("127.0.0.1")}})
	if err != nil {
		return "", err
	}
	c.set = authority.Set(issued)
	dir := filepath.Join(c.dir, "ca")
	return filepath.Join(dir, "ca.crt"), authority.Write(dir, true)
}

func (c *devCluster) open(ctx context.Context, i int) error {
	home := filepath.Join(c.dir, fmt.Sprintf("node%d", i+1))
	g := config.Default()
	g.Db, g.Index, g.Log = home, filepath.Join(home, "index"), ""
	g.ClusterSize, g.Insecure = c.o.nodes, c.o.insecure
	g.NodePort, g.ReplicationPort, g.GossipPort = 0, 0, 0
	if c.o.port != 0 {
		g.NodePort = c.o.port + i
	}
	name := fmt.Sprintf("node%d", i+1)
	n, err := node.Open(ctx, node.Options{
		Config: g, Logger: c.logger.Named(name), Version: buildVersion(), Certificates: c.set, Seeds: c.known,
		OnFatal: func(err error) {
			complain(c.stderr, fmt.Errorf("%s: %w", name, err))
			c.exit(1)
		},
	})
	if err != nil {
		return fmt.Errorf("%s: %w", name, err)
	}
	c.nodes = append(c.nodes, n)
	c.mu.Lock()
	defer c.mu.Unlock()
	c.seeds = append(c.seeds, n.GossipAddr())
	return nil
}

// known are the gossip addresses of the nodes opened so far.
func (c *devCluster) known(context.Context) ([]string, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	return append([]string(nil), c.seeds...), nil
}

// devPatience is how long a cluster on one machine may take to form.
const devPatience = time.Minute

// ready returns when the cluster has a leader, and the others follow it.
func (c *devCluster) ready(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, devPatience)
	defer cancel()
	ticker := time.NewTicker(20 * time.Millisecond)
	defer ticker.Stop()
	for {
		leaders, others := 0, 0
		for _, n := range c.nodes {
			switch n.State() {
			case event.StateLeader:
				if n.Ready() {
					leaders++
				}
			case event.StateFollower:
				if n.Ready() {
					others++
				}
			}
		}
		if leaders == 1 && leaders+others == len(c.nodes) {
			return nil
		}
		select {
		case <-ticker.C:
		case <-ctx.Done():
			return fmt.Errorf("the nodes did not form a cluster within %s", devPatience)
		}
	}
}

func (c *devCluster) announce(w io.Writer, authority string) error {
	for i, n := range c.nodes {
		if _, err := fmt.Fprintf(w, "node%d serves %s  %s\n", i+1, n.URL(), n.State()); err != nil {
			return err
		}
	}
	if authority != "" {
		if _, err := fmt.Fprintf(w, "certificates are of the authority in %s: curl --cacert %s …\n", authority, authority); err != nil {
			return err
		}
	}
	_, err := fmt.Fprintf(w, "data are in %s\n", c.dir)
	return err
}

// close stops the nodes one after the other, the leader last: so nobody has to
// take over from it.
func (c *devCluster) close() error {
	var errs []error
	var leaders []*node.Node
	for _, n := range c.nodes {
		if n.State() == event.StateLeader {
			leaders = append(leaders, n)
			continue
		}
		errs = append(errs, n.Close())
	}
	for _, n := range leaders {
		errs = append(errs, n.Close())
	}
	return errors.Join(errs...)
}
