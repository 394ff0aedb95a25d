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
	"slices"
	"strings"
	"sync"
	"syscall"
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
	"golang.org/x/term"

	"github.com/annalsdb/annals/config"
	"github.com/annalsdb/annals/event"
	"github.com/annalsdb/annals/internal/certs"
	"github.com/annalsdb/annals/node"
)

const devHelp = `Run a cluster for development: several nodes in one process, on this machine only. When
all of them are ready, the command prints where each serves clients. SIGINT or SIGTERM
ends it.

At a terminal the command takes lines: stop 2 stops the second node, start 2 starts it again, and
list prints the state of each, so that you can watch the others elect a leader. See --interactive.

Without --db the data are in a temporary folder, which is removed at the end. The nodes
and their clients use plain HTTP. With --tls the command makes certificates for this run,
and prints the file with the authority's certificate. Users are those of any new database:
admin and ops with the password changeit. With --insecure there are no users.

All nodes take the options of annals node from the command line, the environment and the
file of --config (no other file is read), except the options that tell nodes apart. The
log has only warnings, unless --log-level says more. annals dev --help lists the options.`

// devOptions are the flags of annals dev.
type devOptions struct {
	nodes int
	port  int
	tls   bool
	ui    string
	stdin io.Reader      // what commands come from; nil: from nowhere
	node  *config.Config // what all nodes share
}

// devRefused are the options of a node that annals dev decides, each with what it does instead.
func devRefused() map[string]string {
	refused := map[string]string{
		"NodePort":    "clients are served at --port and the ports after it",
		"ClusterSize": "see --nodes",
		"Index":       "each node of annals dev has its index in its data folder",
		"Dev":         "annals dev makes certificates for its nodes with --tls",
		"WhatIf":      "see annals node --what-if",
	}
	for why, names := range map[string][]string{
		"annals dev is reached from this machine only": {
			"NodeIp", "NodeHostAdvertiseAs", "NodePortAdvertiseAs", "AdvertiseHostToClientAs", "AdvertiseNodePortToClientAs",
			"ReplicationIp", "ReplicationHostAdvertiseAs", "ReplicationTcpPortAdvertiseAs",
		},
		"between the nodes of annals dev any free ports are used": {"ReplicationPort", "GossipPort", "ClusterGossipPort"},
		"the nodes of annals dev know each other":                 {"GossipSeed", "DiscoverViaDns", "ClusterDns"},
		"the nodes of annals dev are alike":                       {"NodePriority", "ReadOnlyReplica"},
		"each node needs a place of its own, see annals backup":   {"BackupTo", "BackupS3Endpoint", "BackupSchedule"},
		"annals dev makes certificates for its nodes with --tls": {
			"CertificateFile", "CertificatePrivateKeyFile", "CertificatePassword", "CertificatePrivateKeyPassword",
			"CertificateReservedNodeCommonName", "TrustedRootCertificatesPath",
		},
	} {
		for _, name := range names {
			refused[name] = why
		}
	}
	return refused
}

func devCommand(stdin *os.File, stdout, stderr io.Writer) *cobra.Command {
	var o devOptions
	var interactive bool
	cmd := &cobra.Command{
		Use:   "dev",
		Short: "Run a cluster for development in one process",
		Long:  devHelp,
		// As with node: the table of options has spellings that flag libraries do not know.
		DisableFlagParsing: true,
		ValidArgsFunction:  completeOptions,
	}
	flags := cmd.Flags()
	flags.IntVar(&o.nodes, "nodes", 3, "how many nodes: 1, 3 or 5")
	flags.IntVar(&o.port, "port", 2113, "port of the first node, the others follow; 0: free ones")
	flags.BoolVar(&o.tls, "tls", false, "make certificates for this run and use TLS everywhere")
	flags.BoolVar(&interactive, "interactive", false, "take commands from standard input also if it is not a terminal")
	flags.StringVar(&o.ui, "ui-dir", "", "serve the web interface from this folder, and read it at each request: web/static of the sources")
	cmd.RunE = func(cmd *cobra.Command, args []string) (err error) {
		own, rest := splitFlags(flags, args)
		if err := flags.Parse(own); err != nil {
			return cannot(err)
		}
		if o.node, err = config.LoadRefusing(rest, os.Environ(), os.ReadFile, devRefused()); err != nil {
			return cannot(err)
		}
		switch {
		case o.node.Help:
			_, err := fmt.Fprint(stdout, cmd.Long, "\n\n", cmd.UsageString(), "\n")
			return errors.Join(err, config.WriteHelp(stdout, devRefused()))
		case o.node.Version:
			return printVersion(stdout)
		}
		if interactive || term.IsTerminal(int(stdin.Fd())) {
			o.stdin = stdin
		}
		ctx, stop := signal.NotifyContext(cmd.Context(), syscall.SIGINT, syscall.SIGTERM)
		defer stop()
		return runDev(ctx, o, stdout, stderr, os.Exit)
	}
	return cmd
}

// splitFlags parts the arguments that are for flags, written with two dashes, from the rest.
func splitFlags(flags *pflag.FlagSet, args []string) (own, rest []string) {
	for i := 0; i < len(args); i++ {
		name, _, hasValue := strings.Cut(strings.TrimPrefix(strings.TrimPrefix(args[i], "-"), "-"), "=")
		flag := flags.Lookup(name)
		if flag == nil || name == "help" || !strings.HasPrefix(args[i], "-") {
			rest = append(rest, args[i])
			continue
		}
		own = append(own, "--"+strings.TrimLeft(args[i], "-"))
		if !hasValue && flag.NoOptDefVal == "" && i+1 < len(args) {
			i++
			own = append(own, args[i])
		}
	}
	return own, rest
}

func (o *devOptions) validate() error {
	switch {
	case o.nodes != 1 && o.nodes != 3 && o.nodes != 5:
		return fmt.Errorf("--nodes must be 1, 3 or 5, not %d", o.nodes)
	case o.port < 0 || o.port+o.nodes > 65536:
		return fmt.Errorf("--port %d: the command needs %d ports from there on", o.port, o.nodes)
	case o.tls && o.node.Insecure:
		return errors.New("--tls and --insecure exclude each other")
	}
	if o.ui != "" {
		if _, err := os.Stat(filepath.Join(o.ui, "index.html")); err != nil {
			return fmt.Errorf("--ui-dir: %w", err)
		}
	}
	return nil
}

// devNode is what annals dev needs of a node.
type devNode interface {
	State() event.NodeState
	// Unready returns why the node is not ready, nothing when it is.
	Unready() string
	URL() string
	Close() error
}

// devCluster are the nodes of annals dev.
type devCluster struct {
	o      devOptions
	dir    string
	logger *processLog
	stderr io.Writer
	exit   func(int)
	set    *certs.Set
	nodes  []devNode // nil for one that is stopped
	places []devPlace

	mu    sync.Mutex // guards seeds
	seeds []string   // by node; empty for one that does not run
}

func runDev(ctx context.Context, o devOptions, stdout, stderr io.Writer, exit func(int)) (err error) {
	if err := o.validate(); err != nil {
		return cannot(err)
	}
	c := &devCluster{
		o: o, stderr: stderr, exit: exit,
		nodes: make([]devNode, o.nodes), places: make([]devPlace, o.nodes), seeds: make([]string, o.nodes),
	}
	if o.node.LogLevel == config.LogLevelDefault {
		o.node.LogLevel = config.LogLevelWarning
	}
	if c.logger, err = newLogger(o.node, stderr); err != nil {
		return err
	}
	defer c.logger.close()
	for _, line := range o.node.Warnings() {
		c.logger.Warn(line)
	}
	if c.dir = o.node.Db; !o.node.Given("Db") {
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
	if !c.awaitReady(ctx) {
		return nil
	}
	if err := c.announce(stdout, authority); err != nil {
		return err
	}
	if o.stdin != nil {
		c.control(ctx, o.stdin, stdout)
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
	name := fmt.Sprintf("node%d", i+1)
	home := filepath.Join(c.dir, name)
	g := *c.o.node
	g.Db, g.Index = home, filepath.Join(home, "index")
	g.ClusterSize, g.NodePort, g.ReplicationPort = c.o.nodes, 0, 0
	if c.o.port != 0 {
		g.NodePort = c.o.port + i
	}
	if at := c.places[i]; at.node != 0 {
		g.NodePort, g.ReplicationPort = at.node, at.replication // It was there before.
	}
	n, err := node.Open(ctx, node.Options{
		PasswordIterations: passwordIterations,
		Config:             &g, Logger: c.logger.Named(name), Version: buildVersion(), Certificates: c.set, Seeds: c.known, LinesDropped: c.logger.dropped, UIDir: c.o.ui,
		OnFatal: func(err error) {
			c.logger.flush()
			complain(c.stderr, fmt.Errorf("%s: %w", name, err))
			c.exit(1)
		},
	})
	if err != nil {
		return fmt.Errorf("%s: %w", name, explainPort(err, g.NodePort, "--port"))
	}
	if c.places[i], err = placeOf(n.URL(), n.PeerAddr()); err != nil {
		return errors.Join(fmt.Errorf("%s: %w", name, err), n.Close())
	}
	c.nodes[i] = n
	c.setSeed(i, n.PeerAddr())
	return nil
}

// setSeed notes where a node is found, nowhere if it does not run.
func (c *devCluster) setSeed(i int, address string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.seeds[i] = address
}

// known are the ports between nodes of those that run.
func (c *devCluster) known(context.Context) ([]string, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	return slices.DeleteFunc(slices.Clone(c.seeds), func(seed string) bool { return seed == "" }), nil
}

// devProgressEvery is how often the log says what a cluster waits for.
const devProgressEvery = 10 * time.Second

// awaitReady returns true when the cluster has a leader and all nodes are ready, as
// /health/ready says it, or false when ctx ends before.
func (c *devCluster) awaitReady(ctx context.Context) bool {
	ticker := time.NewTicker(20 * time.Millisecond)
	defer ticker.Stop()
	told := time.Now()
	for {
		waiting := c.unready()
		if waiting == "" {
			return true
		}
		if time.Since(told) >= devProgressEvery {
			c.logger.Warn("the cluster is not ready yet", "waiting", waiting)
			told = time.Now()
		}
		select {
		case <-ticker.C:
		case <-ctx.Done():
			return false
		}
	}
}

// unready returns what the cluster waits for.
func (c *devCluster) unready() string {
	leaders := 0
	for i, n := range c.nodes {
		if n == nil {
			continue
		}
		why, state := n.Unready(), n.State()
		switch {
		case why != "":
			return fmt.Sprintf("node%d: %s", i+1, why)
		case state == event.StateLeader:
			leaders++
		case state != event.StateFollower:
			return fmt.Sprintf("node%d: %s", i+1, state)
		}
	}
	if leaders != 1 {
		return "one leader"
	}
	return ""
}

func (c *devCluster) announce(w io.Writer, authority string) error {
	if err := c.list(w); err != nil {
		return err
	}
	if authority != "" {
		if _, err := fmt.Fprintf(w, "certificates are of the authority in %s: curl --cacert %s …\n", authority, authority); err != nil {
			return err
		}
	}
	where := c.dir
	if c.o.node.MemDb {
		where = "memory"
	}
	_, err := fmt.Fprintf(w, "data are in %s\n", where)
	return err
}

// close stops the nodes one after the other, the leader last: no other node has to
// take over from it. None looks for one that has stopped.
func (c *devCluster) close() error {
	for i := range c.seeds {
		c.setSeed(i, "")
	}
	var errs []error
	var leaders []devNode
	for _, n := range c.nodes {
		if n == nil {
			continue
		}
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
