package main

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/annalsdb/annals/client"
)

const backupStatusHelp = `Show for each member of a cluster how its last backup of itself ended, and the progress
of one that runs. A node backs itself up when BackupTo is set. It knows nothing of backups
that annals backup create made.

Exit codes: 0 each member has answered and no last backup has failed, 1 one has failed or
a member gives no answer, 2 the node that is asked gives no answer.`

// notConfigured is the answer of a node without BackupTo.
const notConfigured = "Backup is not configured"

// backupNode is what one member knows of its backups.
type backupNode struct {
	Node    string         `json:"node"`
	Backs   bool           `json:"configured"` // the node backs itself up
	State   string         `json:"state"`
	Current *backupCurrent `json:"current"` // nil: none runs
	Last    *backupLast    `json:"last"`    // nil: there was none
	Error   *string        `json:"error"`   // why nothing is known; nil: it is known
}

type backupCurrent struct {
	ID      string  `json:"backupId"`
	Phase   string  `json:"phase"`
	Done    int64   `json:"done"`
	Total   int64   `json:"total"`
	Started string  `json:"started"`
	Seconds float64 `json:"seconds"`
}

type backupLast struct {
	ID       string  `json:"backupId"`
	Result   string  `json:"result"`
	Error    *string `json:"error"`
	Kind     string  `json:"kind"`
	Position int64   `json:"position"`
	Time     *string `json:"time"`
	Bytes    int64   `json:"bytes"`
	Copied   int64   `json:"bytesCopied"`
	Seconds  float64 `json:"seconds"`
	Checked  bool    `json:"checked"`
	Started  string  `json:"started"`
	Ended    *string `json:"ended"`
}

func backupStatusCommand(stdout io.Writer) *cobra.Command {
	var f clusterFlags
	cmd := &cobra.Command{
		Use:     "status",
		Short:   "Show the last backup of each member of a cluster",
		Long:    backupStatusHelp,
		Example: `  annals backup status --node https://node1.example.com:2113 --ca roots`,
		Args:    cobra.NoArgs,
		RunE: func(*cobra.Command, []string) error {
			return f.on(func(ctx context.Context, c *nodeClient) error {
				nodes, err := c.backupStatus(ctx)
				if err != nil {
					return cannot(err)
				}
				return printBackupStatus(stdout, nodes, f.json, time.Now())
			})
		},
	}
	f.add(cmd.Flags(), "address of a node of the cluster", "print JSON in place of text")
	return cmd
}

// backupStatus asks all members of the cluster of a node.
func (c *nodeClient) backupStatus(ctx context.Context) ([]backupNode, error) {
	members, err := c.nodes(ctx)
	if client.HasStatus(err, http.StatusNotFound) { // DisableGossipOnHttp.
		n := c.backups(ctx)
		n.State = "-"
		return []backupNode{n}, nil
	}
	if err != nil {
		return nil, err
	}
	var all []backupNode
	for i := range members {
		m := &members[i]
		n := backupNode{Node: m.Address(), State: m.State}
		if m.Alive {
			one, err := c.member(m)
			if err != nil {
				return nil, err
			}
			n = one.backups(ctx)
			n.State = m.State
			one.Close()
		} else {
			dead := "not alive as " + c.host + " sees it"
			n.Error = &dead
		}
		all = append(all, n)
	}
	return all, nil
}

// backups asks one member. The reason why it cannot say is part of the answer.
func (c *nodeClient) backups(ctx context.Context) backupNode {
	n := backupNode{Node: c.host, Backs: true}
	get := func(which string, value any) error {
		body, err := c.ask(ctx, http.MethodGet, "/admin/backup/"+which, "application/json")
		if err == nil {
			err = json.Unmarshal(body, value)
		}
		return err
	}
	var current backupCurrent
	var last backupLast
	err := get("current", &current)
	if err == nil {
		err = get("last", &last)
	}
	if refused, ok := errors.AsType[*client.Error](err); ok && strings.Contains(refused.Text, notConfigured) {
		n.Backs = false
		return n
	}
	if err != nil {
		text := err.Error()
		n.Error = &text
		return n
	}
	if current.ID != "" {
		n.Current = &current
	}
	if last.ID != "" {
		n.Last = &last
	}
	return n
}

// printBackupStatus prints what is known, and returns an error when a backup failed or a member
// does not answer.
func printBackupStatus(w io.Writer, nodes []backupNode, asJSON bool, now time.Time) error {
	bad := false
	for i := range nodes {
		n := &nodes[i]
		bad = bad || n.Error != nil || n.Last != nil && n.Last.Result == "Failed"
	}
	var err error
	if asJSON {
		err = printJSON(w, map[string]any{"nodes": nodes})
	} else {
		var t table
		t.row("NODE\tSTATE\tRESULT\tENDED\tAGE\tBYTES\tCOPIED\tCHECKED\tNOTE")
		for i := range nodes {
			t.row("%s", nodes[i].row(now))
		}
		err = t.print(w)
	}
	if err == nil && bad {
		return &codedError{code: exitProblems}
	}
	return err
}

// row is a line of the table.
func (n *backupNode) row(now time.Time) string {
	note := ""
	if c := n.Current; c != nil {
		note = strings.ToLower(c.Phase)
		if c.Total > 0 {
			note += fmt.Sprintf(", %s of %s (%.0f %%)", humanBytes(c.Done), humanBytes(c.Total), 100*float64(c.Done)/float64(c.Total))
		}
	}
	cells := []string{n.Node, n.State, "-", "-", "-", "-", "-", "-"}
	switch l := n.Last; {
	case n.Error != nil:
		note = *n.Error
	case !n.Backs:
		note = "does not back itself up: BackupTo is not set"
	case l == nil:
		cells[2], note = "None", cmp.Or(note, "no backup has been made yet")
	default:
		cells[2] = l.Result
		if l.Ended != nil {
			cells[3] = *l.Ended
			if at, err := time.Parse(time.RFC3339, *l.Ended); err == nil {
				cells[4] = now.Sub(at).Round(time.Minute).String()
				cells[4] = strings.TrimSuffix(cells[4], "0s")
			}
		}
		if l.Result == "Success" {
			cells[5], cells[6], cells[7] = humanBytes(l.Bytes), humanBytes(l.Copied), "no"
			if l.Checked {
				cells[7] = "yes"
			}
		}
		if l.Error != nil && note == "" {
			note = *l.Error
		}
	}
	return strings.Join(append(cells, cmp.Or(visible(note), "-")), "\t")
}
