package main

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"

	"github.com/spf13/cobra"
)

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
