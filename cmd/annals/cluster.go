package main

import (
	"cmp"
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"os"
	"os/signal"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
)

const clusterHelp = `Show and change which nodes belong to a cluster, by asking one of its nodes.

A change is made by the leader: whichever node is asked, the request follows its
redirect there. The caller must be an administrator or operator of the cluster
unless the cluster runs without authentication. The password is better given in
the environment variable ANNALS_PASSWORD than on the command line, which other
users of the machine can read.

A NODE is the id of a node, as list shows it, or the host:port at which other
nodes reach it for replication.`

const (
	membersPath      = "/admin/cluster/members"
	passwordVariable = "ANNALS_PASSWORD"
)

// clusterFlags are what all commands below cluster have in common.
type clusterFlags struct {
	node, user, password string
	ca                   string
	skipVerify, json     bool
	timeout              time.Duration
}

func clusterCommand(stdout, stderr io.Writer) *cobra.Command {
	var f clusterFlags
	cluster := &cobra.Command{
		Use:   "cluster",
		Short: "Show and change the members of a cluster",
		Long:  clusterHelp,
		Args:  cobra.ArbitraryArgs,
		RunE: func(cmd *cobra.Command, args []string) error {
			if len(args) > 0 {
				return fmt.Errorf("unknown command %q, see annals cluster --help", args[0])
			}
			return cmd.Help()
		},
	}
	f.add(cluster.PersistentFlags(), "address of a node of the cluster", "print the members as JSON")

	run := func(method string, path func(node string) string) func(*cobra.Command, []string) error {
		return func(_ *cobra.Command, args []string) error {
			ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGINT, syscall.SIGTERM)
			defer stop()
			node := ""
			if len(args) > 0 {
				if node = strings.TrimSpace(args[0]); node == "" {
					return errors.New("the name of the node is empty")
				}
			}
			return f.run(ctx, stdout, method, path(node))
		}
	}
	cluster.AddCommand(
		recoverCommand(stdout, stderr),
		&cobra.Command{
			Use:   "list",
			Short: "List the members as the node that is asked knows them",
			Args:  cobra.NoArgs,
			RunE:  run(http.MethodGet, func(string) string { return membersPath }),
		},
		&cobra.Command{
			Use:   "add NODE",
			Short: "Make a node a member, and list the members",
			Args:  cobra.ExactArgs(1),
			RunE:  run(http.MethodPost, func(node string) string { return membersPath + "?node=" + url.QueryEscape(node) }),
		},
		&cobra.Command{
			Use:   "remove NODE",
			Short: "Make a node no member any more, and list the members",
			Args:  cobra.ExactArgs(1),
			RunE:  run(http.MethodDelete, func(node string) string { return membersPath + "/" + url.PathEscape(node) }),
		},
	)
	return cluster
}

// add adds the flags to those of a command.
func (f *clusterFlags) add(flags *pflag.FlagSet, node, json string) {
	flags.StringVar(&f.node, "node", "http://127.0.0.1:2113", node)
	flags.StringVar(&f.user, "user", "admin", "who asks, if there is a password")
	flags.StringVar(&f.password, "password", "", "password (default $"+passwordVariable+"); none: ask without credentials")
	flags.BoolVar(&f.skipVerify, "insecure-skip-verify", false, "believe any certificate")
	flags.StringVar(&f.ca, "ca", "", "folder with the certificates of the authorities to believe (default those of the system)")
	flags.BoolVar(&f.json, "json", false, json)
	flags.DurationVar(&f.timeout, "timeout", 30*time.Second, "how long to wait for the answer")
}

// run sends one request and prints the members that it is answered with.
func (f *clusterFlags) run(ctx context.Context, stdout io.Writer, method, path string) error {
	c, err := f.connect(f.node)
	if err != nil {
		return err
	}
	defer c.close()
	accept := "text/plain"
	if f.json {
		accept = "application/json"
	}
	answer, err := c.send(ctx, &nodeRequest{method: method, path: path, accept: accept, follow: true})
	switch {
	case err != nil:
		return f.explain(ctx, err)
	case answer.status != http.StatusOK:
		return f.refused(answer)
	case !strings.HasPrefix(answer.header.Get("Content-Type"), accept):
		return fmt.Errorf("%s answered something that is no list of members: is it a node of a cluster?", answer.host)
	}
	body := answer.body
	if len(body) > 0 && body[len(body)-1] != '\n' {
		body = append(body, '\n')
	}
	_, err = stdout.Write(body)
	return err
}

// nodeAddress is the address of a node as a prefix of what is asked for.
func nodeAddress(text string) (string, error) {
	if !strings.Contains(text, "://") {
		text = "http://" + text
	}
	u, err := url.Parse(text)
	if err != nil {
		return "", fmt.Errorf("address of the node: %w", err)
	}
	if u.Scheme != "http" && u.Scheme != "https" || u.Hostname() == "" || u.RawQuery != "" || u.Fragment != "" || u.User != nil {
		return "", fmt.Errorf("address of the node %q is not of the form http://host:port or https://host:port", u.Redacted())
	}
	return strings.TrimRight(u.String(), "/"), nil
}

// redirect reads where to ask instead. The password does not leave TLS once it was sent by it.
func (f *clusterFlags) redirect(from *url.URL, resp *http.Response) (string, error) {
	to, err := resp.Location()
	if err != nil {
		return "", fmt.Errorf("%s redirects to nowhere: %w", from.Host, err)
	}
	switch {
	case to.Scheme != "http" && to.Scheme != "https":
		return "", fmt.Errorf("%s redirects to %s, which is not followed", from.Host, to.Redacted())
	case f.password != "" && from.Scheme == "https" && to.Scheme != "https":
		return "", fmt.Errorf("%s redirects to %s: the password is not sent there without TLS", from.Host, to.Redacted())
	}
	return to.String(), nil
}

// explain turns the end of the time that was allowed into words.
func (f *clusterFlags) explain(ctx context.Context, err error) error {
	switch {
	case ctx.Err() != nil:
		return errors.New("interrupted; whether anything was changed is shown by annals cluster list")
	case errors.Is(err, context.DeadlineExceeded):
		return fmt.Errorf("no answer within %v: whether anything was changed is shown by annals cluster list: %w", f.timeout, err)
	}
	return err
}

// refused says why a node did not do what it was asked for.
func (f *clusterFlags) refused(a *nodeAnswer) error {
	switch a.status {
	case http.StatusUnauthorized:
		if f.password == "" {
			return fmt.Errorf("%s asks for credentials: see --user and --password, or set %s", a.host, passwordVariable)
		}
		return fmt.Errorf("%s does not accept user %q with this password, or the user may not operate the cluster", a.host, f.user)
	case http.StatusNotFound:
		return fmt.Errorf("%s does not serve %s: it has no cluster to show, or DisableAdminUi is set", a.host, membersPath)
	case http.StatusRequestTimeout:
		return fmt.Errorf("%s could not finish in time: whether anything was changed is shown by annals cluster list", a.host)
	}
	return fmt.Errorf("%s refuses: %s (status %d)", a.host, cmp.Or(a.text(), http.StatusText(a.status)), a.status)
}

// tls returns the configuration for nodes that use TLS.
func (f *clusterFlags) tls() (*tls.Config, error) {
	c := &tls.Config{MinVersion: tls.VersionTLS12, InsecureSkipVerify: f.skipVerify}
	if f.ca == "" {
		return c, nil
	}
	if f.skipVerify {
		return nil, errors.New("--ca and --insecure-skip-verify exclude each other")
	}
	files, err := os.ReadDir(f.ca)
	if err != nil {
		return nil, fmt.Errorf("read certificates of authorities: %w", err)
	}
	c.RootCAs = x509.NewCertPool()
	found := false
	for _, file := range files {
		if file.IsDir() || !slices.Contains(certificateFiles, strings.ToLower(filepath.Ext(file.Name()))) {
			continue
		}
		name := filepath.Join(f.ca, file.Name())
		data, err := os.ReadFile(name)
		if err != nil {
			return nil, fmt.Errorf("read certificates of authorities: %w", err)
		}
		if !c.RootCAs.AppendCertsFromPEM(data) {
			certificate, err := x509.ParseCertificate(data)
			if err != nil {
				return nil, fmt.Errorf("%s holds no certificate: %w", name, err)
			}
			c.RootCAs.AddCert(certificate)
		}
		found = true
	}
	if !found {
		return nil, fmt.Errorf("%s holds no certificate of an authority", f.ca)
	}
	return c, nil
}

// certificateFiles are the endings by which nodes find certificates of authorities.
var certificateFiles = []string{".crt", ".cert", ".cer", ".pem", ".der"}
