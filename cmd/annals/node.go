package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"net"
	"net/netip"
	"os"
	"os/signal"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	"github.com/hashicorp/go-hclog"

	"github.com/annalsdb/annals/admin/cron"
	"github.com/annalsdb/annals/config"
	"github.com/annalsdb/annals/internal/logkey"
	"github.com/annalsdb/annals/internal/owner"
	"github.com/annalsdb/annals/node"
	"github.com/annalsdb/annals/torture"
)

// runNode is the command node of a process.
func runNode(args []string, stdout, stderr io.Writer) error {
	return runNodeBy("", args, stdout, stderr)
}

// runNodeBy runs a node by the clock of a file, by the machine's if none is named.
func runNodeBy(clock string, args []string, stdout, stderr io.Writer) error {
	relaxTimers()
	signals := make(chan os.Signal, 4)
	signal.Notify(signals, syscall.SIGINT, syscall.SIGTERM, syscall.SIGHUP)
	defer signal.Stop(signals)
	h := host{
		clock:    clock,
		stdout:   stdout,
		stderr:   stderr,
		environ:  os.Environ(),
		readFile: os.ReadFile,
		signals:  signals,
		exit:     os.Exit,
		open: func(ctx context.Context, o node.Options) (runningNode, error) {
			// A reader of the log through a pipe may go away; the node does not end with that.
			signal.Ignore(syscall.SIGPIPE)
			return node.Open(ctx, o)
		},
	}
	return h.run(args)
}

// runningNode is what the command needs of a node.
type runningNode interface {
	// URL returns where clients are served.
	URL() string
	// Done is closed when the node has stopped by itself.
	Done() <-chan struct{}
	// ReloadCertificates takes over the certificates that a configuration names, and says whether
	// it has.
	ReloadCertificates(*config.Config) (taken, refused bool)
	// Unready returns why the node should not be sent requests, nothing when it should.
	Unready() string
	// Close stops the node in order. It may be called again.
	Close() error
}

// host is the world around one node. Tests put another one in its place.
type host struct {
	clock          string // file of the clock that torture sets, empty for the machine's
	stdout, stderr io.Writer
	environ        []string
	readFile       func(string) ([]byte, error)
	signals        <-chan os.Signal
	exit           func(code int)
	open           func(context.Context, node.Options) (runningNode, error)
}

func (h *host) run(args []string) error {
	c, err := h.load(args)
	if err != nil {
		return h.misconfigured(owner.Explain(err))
	}
	switch {
	case c.Help:
		if _, err := fmt.Fprint(h.stdout, "Usage: annals node [options]\n\n"); err != nil {
			return err
		}
		return config.WriteHelp(h.stdout, nil)
	case c.Version:
		return printVersion(h.stdout)
	case c.WhatIf:
		return c.WriteWhatIf(h.stdout)
	}
	logger, err := newLogger(c, h.stderr)
	if err != nil {
		return owner.Explain(err, c.Log)
	}
	defer logger.close()
	if err := owner.Explain(h.serve(args, c, logger), c.Db, c.Index); err != nil {
		logger.fileOnly.Error("the node ends", logkey.Error, err)
		return err
	}
	return nil
}

// exitMisconfigured tells systemd that options are wrong, so that another start would end the same
// way: EX_CONFIG of sysexits.h. It is not 2: Go ends with that after a panic. Files that cannot be
// read, and certificates, may be right at the next start.
const exitMisconfigured = 78

// misconfigured gives wrong options the exit code that the unit of systemd names. Without a
// supervisor it is 1, as EventStoreDB has it.
func (h *host) misconfigured(err error) error {
	if _, unread := errors.AsType[*fs.PathError](err); supervised(h.environ) && !unread {
		return &codedError{code: exitMisconfigured, err: err}
	}
	return err
}

// load reads the options and makes every check that needs no disk.
func (h *host) load(args []string) (*config.Config, error) {
	c, err := config.Load(args, h.environ, h.readFile)
	if err != nil {
		return nil, err
	}
	if err := checkSchedules(c); err != nil {
		return nil, err
	}
	return c, nil
}

// checkSchedules returns a line for each schedule that is wrong.
func checkSchedules(c *config.Config) error {
	var problems []error
	for _, o := range []struct{ name, schedule string }{{"ScavengeSchedule", c.ScavengeSchedule}, {"BackupSchedule", c.BackupSchedule}} {
		if _, err := cron.Parse(o.schedule); err != nil {
			problems = append(problems, c.Located(fmt.Errorf("option %s: %w", o.name, err)))
		}
	}
	return errors.Join(problems...)
}

// serve runs the node until it or a signal ends it.
func (h *host) serve(args []string, c *config.Config, logger *processLog) error {
	if c.File() != "" {
		logger.Info("configuration file read", logkey.File, c.File())
	}
	for _, line := range c.Warnings() {
		logger.Warn(line)
	}
	// A file system that hangs does not keep the node from starting.
	if err := briefly(func() error { return tryBackups(c) }); errors.Is(err, errUnread) {
		logger.Warn("option BackupTo: the folder for backups does not answer")
	} else if err != nil {
		logger.Warn(err.Error())
	}
	if c.Insecure {
		logger.Warn("this node is INSECURE: no authentication, no authorisation, no TLS; everyone who reaches it may do everything")
	}

	stopping, stop := context.WithCancel(context.Background())
	defer stop()
	reload := newReloader(c, func() (*config.Config, error) { return h.load(args) }, logger)
	exit := func() {
		logger.flush()
		h.exit(1)
	}
	defer h.watchSignals(stop, reload.run, exit, logger)()

	var now func() time.Time
	if h.clock != "" {
		var err error
		if now, err = torture.OpenClock(h.clock); err != nil {
			return err
		}
		logger.Warn("the clock is that of a test: it may be wrong", logkey.File, h.clock)
	}
	watch, err := findSupervisor(h.environ)
	if err != nil {
		logger.Warn("the supervisor of this process will not hear of it", logkey.Error, err)
	}
	defer watch.close()
	watch.starting()
	n, err := h.open(stopping, node.Options{
		PasswordIterations: passwordIterations,
		Config:             c,
		Now:                now,
		Logger:             logger,
		Version:            buildVersion(),
		Reload:             reload.run,
		Settings:           reload.settings,
		OnFatal: func(err error) {
			// Acknowledged writes are on disk. After a failed write nothing more may be
			// written, so the process ends here without closing anything.
			logger.flush()
			complain(h.stderr, err)
			logger.fileOnly.Error("the node ends at once", logkey.Error, err)
			exit()
		},
		LinesDropped: logger.dropped,
	})
	switch {
	case err != nil && stopping.Err() != nil && errors.Is(err, context.Canceled):
		logger.Info("stopped while starting")
		return nil
	case err != nil:
		return explainPort(err, c.NodePort, "--node-port")
	}
	reload.attach(n)
	if !c.Insecure && c.AllowAnonymousStreamAccess && !c.NodeIp.IsLoopback() {
		logger.Warn("callers without credentials may read, write and delete streams that have no access list: see AllowAnonymousStreamAccess, and the default lists in $settings", logkey.Address, c.ListenAddr())
	}
	if err := briefly(func() error { return announce(h.stdout, n.URL()) }); err != nil {
		logger.Warn("standard output cannot be written", logkey.Error, err)
	}
	silence := watch.serving(n.URL(), n.Unready)
	defer silence()
	select {
	case <-stopping.Done():
	case <-n.Done():
		logger.Info("the node has been shut down")
	}
	watch.stopping()
	if err := n.Close(); err != nil {
		return fmt.Errorf("stop: %w", err)
	}
	logger.Info("stopped")
	return nil
}

// explainPort says what to do when another process has the port of clients.
func explainPort(err error, port int, flag string) error {
	taken, ok := errors.AsType[*net.OpError](err)
	if !ok || !errors.Is(err, syscall.EADDRINUSE) {
		return err
	}
	if addr, ok := taken.Addr.(*net.TCPAddr); (!ok || addr.Port != port) && flag == "--node-port" {
		flag = "--replication-port"
	}
	return fmt.Errorf("%w: is a node running there already? %s chooses another port", err, flag)
}

// announce prints the address of the node and how to write the first event.
func announce(w io.Writer, url string) error {
	_, err := fmt.Fprintf(w, "annals listens on %s\n", url)
	// With TLS, only the reader knows which authority to trust.
	if addr, plain := strings.CutPrefix(url, "http://"); plain && err == nil {
		_, err = fmt.Fprintf(w, "write a first event: %s\n", firstAppend(addr))
	}
	return err
}

// firstAppend is the first command of the README. Its event id is fixed, so running it twice writes
// once. A node that listens on all addresses is reached on this machine.
func firstAppend(addr string) string {
	if at, err := netip.ParseAddrPort(addr); err == nil && at.Addr().IsUnspecified() {
		addr = netip.AddrPortFrom(netip.AddrFrom4([4]byte{127, 0, 0, 1}), at.Port()).String()
	}
	return "curl -i http://" + addr + "/streams/orders-1" +
		" -H 'Content-Type: application/vnd.eventstore.events+json'" +
		` -d '[{"eventId": "fbf4a1a1-b4a3-4dfe-a01f-ec52c34e16e4", "eventType": "OrderPlaced", "data": {"total": 12}}]'`
}

// watchSignals calls stop at the first signal that ends the process and leaves
// at once at the second. The function that it returns ends it and what it has set off.
func (h *host) watchSignals(stop, reload, exit func(), logger hclog.Logger) (end func()) {
	quit := make(chan struct{})
	var wg sync.WaitGroup
	wg.Go(func() {
		stopping := false
		for {
			select {
			case <-quit:
				return
			case s := <-h.signals:
				switch {
				case s == syscall.SIGHUP:
					wg.Go(reload) // Meanwhile the next signal may end the process.
				case stopping:
					complain(h.stderr, errForced)
					exit()
				default:
					stopping = true
					logger.Info("stopping", "signal", s.String())
					stop()
				}
			}
		}
	})
	return func() {
		close(quit)
		wg.Wait()
	}
}

// reloader reads the configuration again while the node runs. The file may have
// changed. The command line and the environment are those of the start and still
// override it.
type reloader struct {
	load   func() (*config.Config, error)
	logger hclog.Logger
	// latest is the configuration of the start with the options that were taken over since.
	latest atomic.Pointer[config.Config]

	underWay sync.Mutex // guards what follows, for as long as a reload takes
	node     runningNode
	missed   *config.Config // was read before there was a node
}

// newReloader returns one for a node that starts by c.
func newReloader(c *config.Config, load func() (*config.Config, error), logger hclog.Logger) *reloader {
	r := &reloader{load: load, logger: logger}
	r.latest.Store(c)
	return r
}

// settings returns the options in force.
func (r *reloader) settings() []config.Value { return r.latest.Load().Values() }

// run takes over the options that may change while a node runs: the level of the log,
// unless it is Default, and the certificates. A configuration that a start would refuse
// changes nothing. Only the log has the outcome. A call while another one runs is ignored.
func (r *reloader) run() {
	if !r.underWay.TryLock() {
		r.logger.Warn("a reload of the configuration is running, so another request for it is ignored")
		return
	}
	defer r.underWay.Unlock()
	c, err := r.load()
	if err != nil {
		r.logger.Error("the configuration was not reloaded", logkey.Error, err)
		return
	}
	if c.LogLevel != config.LogLevelDefault {
		r.logger.SetLevel(hclogLevel(c.LogLevel))
	}
	before := r.latest.Load()
	taken, refused := r.certificates(c)
	r.latest.Store(before.Reloaded(c, taken))
	if names := before.AwaitRestart(c); len(names) > 0 {
		r.logger.Warn("changed, but needs a restart: " + strings.Join(names, ", "))
	}
	if refused {
		r.logger.Warn("configuration reloaded, but for the certificates: the old ones stay in force", logkey.File, c.File(), "logLevel", string(c.LogLevel))
		return
	}
	r.logger.Info("configuration reloaded", logkey.File, c.File(), "logLevel", string(c.LogLevel))
}

// certificates passes a configuration on to the node, once there is one.
func (r *reloader) certificates(c *config.Config) (taken, refused bool) {
	if r.node == nil {
		r.missed = c
		return false, false
	}
	return r.node.ReloadCertificates(c)
}

// attach gives the node that runs now what was read while it started.
func (r *reloader) attach(n runningNode) {
	r.underWay.Lock()
	defer r.underWay.Unlock()
	r.node = n
	if c := r.missed; c != nil {
		r.missed = nil
		taken, _ := r.certificates(c)
		r.latest.Store(r.latest.Load().Reloaded(c, taken))
	}
}
