package main

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/netip"
	"os"
	"strconv"
	"time"

	"github.com/spf13/cobra"

	"github.com/annalsdb/annals/client"
	"github.com/annalsdb/annals/config"
)

const healthHelp = `Ask a node whether it is ready: it serves requests, and has the data that the leader
has. With --live it is enough that it serves requests, however far behind the leader it is.

Without --node the command asks the node of this machine. It finds the address as that
node does: in the environment (STORE_NODE_PORT and others) and in the configuration file.
Options on the command line of the node are unknown to it: name the address with --node
then. A certificate of the node of this machine is not checked, because no credentials are
sent. With --node it is checked as in other commands.

In a container: HEALTHCHECK CMD ["/annals", "health"]. A supervisor that restarts an
unhealthy node should ask with --live: a node that waits for its cluster needs no restart.

Exit codes: 0 the node is ready, or live, 1 it is not, or does not answer, 2 bad arguments.`

// healthFlags are what annals health is given.
type healthFlags struct {
	clusterFlags
	live       bool
	configFile string
	wait       time.Duration
}

func healthCommand(stdout io.Writer) *cobra.Command {
	var f healthFlags
	cmd := &cobra.Command{
		Use:   "health",
		Short: "Say by the exit code whether a node is ready",
		Long:  healthHelp,
		Example: `  annals health
  annals health --live --node https://node1.example.com:2113 --ca roots
  annals health --wait 1m`,
		Args: cobra.NoArgs,
		RunE: untilInterrupted(func(ctx context.Context) error { return f.run(ctx, stdout) }),
	}
	flags := cmd.Flags()
	flags.StringVar(&f.node, "node", "", "address of the node (default that of this machine)")
	flags.StringVar(&f.configFile, "config", "", "configuration file of the node of this machine (default as annals node)")
	flags.BoolVar(&f.live, "live", false, "ask whether it serves requests, even if it lacks data")
	flags.DurationVar(&f.wait, "wait", 0, "how long to ask again until the answer is yes")
	flags.DurationVar(&f.timeout, "timeout", 5*time.Second, "how long to wait for the answer")
	flags.BoolVar(&f.skipVerify, "insecure-skip-verify", false, "accept any certificate")
	flags.StringVar(&f.ca, "ca", "", "folder with the certificates of trusted authorities (default those of the system)")
	cmd.MarkFlagsMutuallyExclusive("node", "config")
	return cmd
}

// healthPause is the time from one question to the next.
const healthPause = 250 * time.Millisecond

func (f *healthFlags) run(ctx context.Context, stdout io.Writer) error {
	if f.node == "" {
		var err error
		if f.node, err = f.ownAddress(os.Environ(), os.ReadFile); err != nil {
			return err
		}
		f.skipVerify = f.skipVerify || f.ca == ""
	}
	f.anonymous = true
	path, state := "/health/ready", "ready"
	if f.live {
		path, state = "/health/live", "live"
	}
	c, err := f.connect(f.node)
	if err != nil {
		return cannot(err)
	}
	defer c.Close()
	for until := time.Now().Add(f.wait); ; {
		err := c.healthy(ctx, path, state)
		if err == nil {
			_, err = fmt.Fprintf(stdout, "%s is %s\n", c.host, state)
			return err
		}
		if !time.Now().Add(healthPause).Before(until) || ctx.Err() != nil {
			return err
		}
		select {
		case <-ctx.Done():
		case <-time.After(healthPause):
		}
	}
}

// healthy returns why a node is not in a state.
func (c *nodeClient) healthy(ctx context.Context, path, state string) error {
	answer, err := c.send(ctx, client.Request{Method: http.MethodGet, Path: path, Stay: true})
	switch {
	case err != nil:
		return err
	case answer.Status == http.StatusNoContent || answer.Status == http.StatusOK:
		return nil
	case answer.Status != http.StatusServiceUnavailable:
		return fmt.Errorf("%s answers %s with status %d: is it a node?", c.host, path, answer.Status)
	}
	return fmt.Errorf("%s is not %s: %s", c.host, state, cmp.Or(visible(answer.Text()), "it may be starting or stopping"))
}

// ownAddress is where the node of this machine serves clients.
func (f *healthFlags) ownAddress(environ []string, readFile func(string) ([]byte, error)) (string, error) {
	var args []string
	if f.configFile != "" {
		args = []string{"--config", f.configFile}
	}
	c, err := config.Load(args, environ, readFile)
	if err != nil {
		return "", errors.Join(errors.New("the configuration of the node of this machine is wrong; name the node with --node, or correct it"), err)
	}
	ip := c.NodeIp
	if ip.IsUnspecified() {
		ip = netip.AddrFrom4([4]byte{127, 0, 0, 1})
		if c.NodeIp.Is6() {
			ip = netip.IPv6Loopback()
		}
	}
	scheme := "http://"
	if c.Secured() {
		scheme = "https://"
	}
	return scheme + net.JoinHostPort(ip.String(), strconv.Itoa(c.NodePort)), nil
}

const doctorPath = "/admin/doctor"

const doctorHelp = `Have a running node examine itself: clock, disk, certificates, replication, subscription
groups, projections, backups, damaged chunks, passwords and limits of the system.

Each check is one line: ok, or what is wrong and what to do about it. Ask each node of a
cluster. For groups and projections, ask the leader.

Exit codes: 0 all is well, 1 something is wrong, 2 the node could not be asked.`

func doctorCommand(stdout io.Writer) *cobra.Command {
	var f clusterFlags
	cmd := &cobra.Command{
		Use:     "doctor",
		Short:   "Say what is wrong with a node, and what to do",
		Long:    doctorHelp,
		Example: `  annals doctor --node https://node1.example.com:2113 --ca roots`,
		Args:    cobra.NoArgs,
		RunE: func(*cobra.Command, []string) error {
			return f.on(func(ctx context.Context, c *nodeClient) error { return c.doctor(ctx, stdout) })
		},
	}
	f.add(cmd.Flags(), "address of the node", "print JSON in place of text")
	return cmd
}

// diagnosis is what a node says of itself.
type diagnosis struct {
	OK       bool `json:"ok"`
	Findings int  `json:"findings"`
	Checks   []struct {
		Check  string `json:"check"`
		OK     bool   `json:"ok"`
		Text   string `json:"text"`
		Remedy string `json:"remedy"`
	} `json:"checks"`
}

// doctor prints what a node says of itself.
func (c *nodeClient) doctor(ctx context.Context, stdout io.Writer) error {
	body, err := c.ask(ctx, http.MethodGet, doctorPath, "application/json")
	if err != nil {
		return cannot(err)
	}
	var d diagnosis
	if err := json.Unmarshal(body, &d); err != nil || len(d.Checks) == 0 {
		return cannot(fmt.Errorf("%s answers without any check: is it a node of this version?", c.host))
	}
	if c.flags.json {
		err = printJSON(stdout, d)
	} else {
		err = d.print(stdout)
	}
	if err == nil && !d.OK {
		return &codedError{code: exitProblems}
	}
	return err
}

func (d *diagnosis) print(w io.Writer) error {
	for _, one := range d.Checks {
		line := fmt.Sprintf("ok    %s: %s\n", one.Check, visible(one.Text))
		if !one.OK {
			line = fmt.Sprintf("WRONG %s: %s\n      %s\n", one.Check, visible(one.Text), visible(one.Remedy))
		}
		if _, err := io.WriteString(w, line); err != nil {
			return err
		}
	}
	return nil
}
