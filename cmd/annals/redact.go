package main

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"time"

	"github.com/spf13/cobra"

	"github.com/annalsdb/annals/admin/redact"
	"github.com/annalsdb/annals/client"
	"github.com/annalsdb/annals/node"
)

const redactHelp = `Blank the data of single events on one node, while it serves. It cannot be undone.

Positions, numbers, ids, types, metadata and sizes stay. The disk of the node keeps
nothing of the data: neither its chunk files nor its Raft log. The node refuses events
whose chunk is still being written, links, metadata and events that the server itself
reads. Then it redacts nothing at all.

With --metadata the metadata of the events go as well, and with them their tags and
correlation ids: from then on no query and no condition finds the events by these, on
any node, whether or not the other nodes have redacted.

With --db the command asks the node that has this data folder open over its local socket,
which the option EnableUnixSocket offers. Only its user and root may. With --node it asks
over HTTP, as an administrator. With --all-nodes it asks every node of the cluster, the
followers first and the leader last: each node redacts only its own files.

Events are number@stream, separated by commas.

Exit codes: 0 all events are redacted and their data are gone from the node, 1 at least
one was refused, or the work is not finished, 2 nothing could be tried.`

// socketPatience bounds a redaction over the local socket: the node answers within a minute and a
// half after it has copied the files.
const socketPatience = time.Hour

const redactPath = "/admin/redact"

// redactFlags are the flags of annals redact.
type redactFlags struct {
	clusterFlags
	db, events, reason string
	dryRun, allNodes   bool
	metadata           bool
	stderr             io.Writer
	confirm            confirmation
}

func redactCommand(stdout, stderr io.Writer) *cobra.Command {
	f := redactFlags{stderr: stderr, confirm: atTerminal(stderr)}
	cmd := &cobra.Command{
		Use:   "redact {--db folder | --node URL} --events n@stream,…",
		Short: "Blank the data of events on one node",
		Long:  redactHelp,
		Args:  cobra.NoArgs,
		RunE:  untilInterrupted(func(ctx context.Context) error { return f.run(ctx, stdout) }),
	}
	flags := cmd.Flags()
	flags.StringVar(&f.db, "db", "", "data folder of a running node on this machine")
	flags.StringVar(&f.node, "node", "", "address of a node")
	flags.StringVar(&f.events, "events", "", "the events, as number@stream, separated by commas")
	flags.StringVar(&f.reason, "reason", "", "reason, for the record in the stream $redactions")
	flags.BoolVar(&f.dryRun, "dry-run", false, "say what would be redacted, and redact nothing")
	flags.BoolVar(&f.metadata, "metadata", false, "redact the metadata, too")
	flags.BoolVar(&f.allNodes, "all-nodes", false, "redact on every node of the cluster of --node, followers first")
	flags.BoolVar(&f.json, "json", false, "print the result as JSON")
	f.confirm.add(flags)
	f.addCredentials(flags)
	return cmd
}

// redactedNode is what one node did.
type redactedNode struct {
	Node   string           `json:"node,omitempty"` // empty: the one at the socket
	Events []redact.Outcome `json:"events"`
}

func (f *redactFlags) run(ctx context.Context, stdout io.Writer) error {
	switch {
	case f.events == "":
		return cannot(errors.New("--events is missing: the events to redact, as number@stream"))
	case f.db == "" && f.node == "":
		return cannot(errors.New("--db or --node is missing: the node that redacts"))
	case f.db != "" && (f.node != "" || f.allNodes):
		return cannot(errors.New("--db is one node on this machine: give it without --node and --all-nodes"))
	}
	if !f.dryRun {
		where, what := cmp.Or(f.node, f.db), "the data"
		if f.metadata {
			what = "the data and the metadata"
		}
		if f.allNodes {
			where = "every node of the cluster of " + where
		}
		if err := f.confirm.given(fmt.Sprintf("This blanks %s of %s on %s, for ever", what, visible(f.events), visible(where))); err != nil {
			return err
		}
	}
	var done []redactedNode
	var err error
	if f.db != "" {
		done, err = f.overSocket(ctx)
	} else {
		done, err = f.overHTTP(ctx)
	}
	if e := f.print(stdout, done); err == nil {
		err = e
	}
	return err
}

// print shows what each node did, up to the first that failed.
func (f *redactFlags) print(w io.Writer, done []redactedNode) error {
	if len(done) == 0 {
		return nil
	}
	if f.json {
		if f.allNodes {
			return printJSON(w, map[string]any{"nodes": done})
		}
		return printJSON(w, &done[0])
	}
	var b bytes.Buffer
	for _, n := range done {
		for _, e := range n.Events {
			status := map[string]string{
				redact.StatusRedacted: "redacted", redact.StatusAlready: "was redacted before", redact.StatusWould: "would be redacted",
			}[e.Status]
			if n.Node != "" {
				fmt.Fprintf(&b, "%s: ", n.Node)
			}
			fmt.Fprintf(&b, "%s: %s (position %d, %s)\n", visible(e.Event), status, e.Position, visible(e.Chunk))
		}
	}
	if !f.dryRun {
		fmt.Fprintln(&b, "Older backups still have the data: make a new backup, then remove the older ones.")
	}
	_, err := w.Write(b.Bytes())
	return err
}

// overSocket asks the node that has the data folder open.
func (f *redactFlags) overSocket(ctx context.Context) ([]redactedNode, error) {
	if info, err := os.Stat(f.db); err != nil || !info.IsDir() {
		return nil, cannot(fmt.Errorf("there is no folder %s", f.db))
	}
	path := filepath.Join(f.db, node.SocketFile)
	c, err := client.New(client.Options{Nodes: []string{"socket"}, Timeout: socketPatience, Transport: &http.Transport{
		DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) {
			return new(net.Dialer).DialContext(ctx, "unix", path)
		},
	}})
	if err != nil {
		return nil, cannot(fmt.Errorf("%w", err))
	}
	defer c.Close()
	a, err := c.Do(ctx, f.request(f.dryRun))
	away, ok := errors.AsType[*client.UnreachableError](err)
	if ok {
		err = away.Err
	}
	switch {
	case ok && away.Sent:
		return nil, fmt.Errorf("the node at %s broke off: %w; ask again, redacted events stay redacted", path, err)
	case errors.Is(err, fs.ErrNotExist):
		return nil, cannot(fmt.Errorf("%s has no socket %s: start the node on it with EnableUnixSocket, or ask it with --node", f.db, node.SocketFile))
	case errors.Is(err, syscall.ECONNREFUSED):
		return nil, cannot(fmt.Errorf("no node runs on %s: the socket there is left over", f.db))
	case errors.Is(err, fs.ErrPermission):
		return nil, cannot(fmt.Errorf("only the user of the node and root may use %s", path))
	case err != nil:
		return nil, cannot(fmt.Errorf("ask the node at %s: %w", path, err))
	case a.Status != http.StatusOK:
		return nil, redactionRefused(a, errors.New(strings.TrimSpace(string(a.Body))))
	}
	n, err := decodeRedaction("", a.Body)
	if err != nil {
		return nil, err
	}
	return []redactedNode{n}, nil
}

// request is for the node that gets it, leader or not.
func (f *redactFlags) request(dryRun bool) client.Request {
	// JSON of texts never fails.
	body, _ := json.Marshal(map[string]any{"events": strings.Split(f.events, ","), "reason": f.reason, "dryRun": dryRun, "metadata": f.metadata})
	return client.Request{
		Method: http.MethodPost, Path: redactPath, Body: body, Stay: true,
		Header: map[string]string{"Accept": client.MediaJSON, "Content-Type": client.MediaJSON},
	}
}

// overHTTP asks one node, or all of its cluster.
func (f *redactFlags) overHTTP(ctx context.Context) ([]redactedNode, error) {
	c, err := f.connect(f.node)
	if err != nil {
		return nil, cannot(err)
	}
	defer c.Close()
	addresses := []string{c.address}
	if f.allNodes {
		if addresses, err = followersFirst(ctx, c, f.stderr); err != nil {
			return nil, cannot(err)
		}
		// If one node refuses, none should redact: every node judges before the first one redacts.
		if !f.dryRun {
			for _, address := range addresses {
				if _, err := f.ask(ctx, address, true); err != nil {
					return nil, err
				}
			}
		}
	}
	var done []redactedNode
	for _, address := range addresses {
		n, err := f.ask(ctx, address, f.dryRun)
		if err != nil {
			return done, err
		}
		if !f.allNodes {
			n.Node = ""
		}
		done = append(done, n)
	}
	return done, nil
}

// followersFirst lists the addresses of the nodes of a cluster, that of the leader last.
func followersFirst(ctx context.Context, c *nodeClient, stderr io.Writer) (addresses []string, err error) {
	view, err := c.nodes(ctx)
	if err != nil {
		return nil, err
	}
	if err := c.allAnswer(ctx, view, stderr); err != nil {
		return nil, fmt.Errorf("%w; nothing was redacted", err)
	}
	scheme, _, _ := strings.Cut(c.address, "://")
	done := map[string]bool{}
	for next, _ := nextNode(view, done); next != nil; next, _ = nextNode(view, done) {
		done[next.Address()] = true
		addresses = append(addresses, scheme+"://"+next.Address())
	}
	return addresses, nil
}

// ask has one node redact.
func (f *redactFlags) ask(ctx context.Context, address string, dryRun bool) (redactedNode, error) {
	c, err := f.connect(address)
	if err != nil {
		return redactedNode{}, cannot(err)
	}
	defer c.Close()
	answer, err := c.send(ctx, f.request(dryRun))
	if err != nil {
		return redactedNode{}, cannot(err)
	}
	if answer.Status != http.StatusOK {
		text := strings.TrimSpace(strings.ToValidUTF8(string(answer.Body), ""))
		if answer.Status != http.StatusBadRequest && answer.Status != http.StatusInternalServerError || text == "" {
			return redactedNode{}, redactionRefused(answer, c.explain(answer.Err()))
		}
		if f.allNodes {
			text = c.host + ": " + strings.ReplaceAll(text, "\n", "\n"+c.host+": ")
		}
		return redactedNode{}, redactionRefused(answer, errors.New(text))
	}
	return decodeRedaction(c.host, answer.Body)
}

// redactionRefused gives the answer of a node its exit code: the node has judged the events, or
// nothing was tried.
func redactionRefused(a client.Response, err error) error {
	switch a.Status {
	case http.StatusBadRequest, http.StatusInternalServerError, http.StatusRequestTimeout:
		if strings.HasPrefix(string(a.Body), "Redaction is not supported") || strings.Contains(string(a.Body), "is not of the form number@stream") {
			break
		}
		return err
	}
	return cannot(err)
}

func decodeRedaction(host string, body []byte) (redactedNode, error) {
	n := redactedNode{Node: host}
	if err := json.Unmarshal(body, &n); err != nil {
		return n, fmt.Errorf("%s answers something other than a result of a redaction: is it a node?", host)
	}
	return n, nil
}
