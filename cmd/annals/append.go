package main

import (
	"context"
	"fmt"
	"io"
	"math"
	"net/http"
	"os"

	"github.com/spf13/cobra"

	"github.com/annalsdb/annals/client"
)

const appendHelp = `Append events to one stream or several, all or none, with checks on streams. The file, or standard
input, has a JSON object as POST /streams takes it:

  {"checks": [{"stream": "closed-books", "expectedVersion": "none"}],
   "events": [{"stream": "account-7", "eventId": "...", "eventType": "Debited", "data": {"amount": 5}},
              {"stream": "account-8", "eventId": "...", "eventType": "Credited", "data": {"amount": 5}}]}

Conditions are possible too: the append fails if events that match a query came after a position,
that of annals query for example:

  {"conditions": [{"failIfEventsMatch": {"items": [{"types": ["SeatTaken"], "tags": ["seat:12"]}]}, "after": 8812}],
   "events": [{"stream": "show-7", "eventId": "...", "eventType": "SeatTaken", "data": {}, "tags": ["seat:12"]}]}

The answer of the node goes to standard output: where the events are, or which checks do not hold
and which events conflict. The ids of the events make it safe to run the command again: what is
written already is not written twice. With --repeat the command does so itself, at all nodes of the
cluster, until the outcome is known.

The exit code is 0 if the events are written, now or by an earlier run, 1 if checks or conditions do
not hold, and 2 if nothing was tried or the outcome is not known.`

// maxAppend is how large a body nodes take.
const maxAppend = 30_000_000

func appendCommand(stdin io.Reader, stdout, stderr io.Writer) *cobra.Command {
	var f clusterFlags
	repeat := false
	cmd := &cobra.Command{
		Use:   "append [FILE|-]",
		Short: "Append events to one stream or several, all or none",
		Long:  appendHelp,
		Example: `  annals append transfer.json --node http://127.0.0.1:2113
  generate-events | annals append --repeat`,
		Args: cobra.MaximumNArgs(1),
	}
	f.addNode(cmd.Flags(), "address of a node")
	cmd.Flags().BoolVar(&repeat, "repeat", false, "send again, with the same ids, until the outcome is known")
	cmd.RunE = func(_ *cobra.Command, args []string) error {
		body, err := readAppend(stdin, args)
		if err != nil {
			return cannot(err)
		}
		if repeat {
			f.retryFor = math.MaxInt64
		}
		return f.on(func(ctx context.Context, c *nodeClient) error {
			if repeat {
				if err := c.Discover(ctx); err != nil {
					complain(stderr, fmt.Errorf("the other nodes are not known: %w", c.explain(err)))
				}
			}
			return c.append(ctx, stdout, body)
		})
	}
	return cmd
}

// readAppend reads the file that is named, or standard input.
func readAppend(stdin io.Reader, args []string) ([]byte, error) {
	if len(args) > 0 && args[0] != "-" {
		file, err := os.Open(args[0])
		if err != nil {
			return nil, err
		}
		defer file.Close()
		stdin = file
	}
	body, err := io.ReadAll(io.LimitReader(stdin, maxAppend+1))
	if err != nil {
		return nil, fmt.Errorf("read the events: %w", err)
	}
	if len(body) > maxAppend {
		return nil, fmt.Errorf("the events take more than %d bytes", maxAppend)
	}
	return body, nil
}

func (c *nodeClient) append(ctx context.Context, stdout io.Writer, body []byte) error {
	a, err := c.Repeat(ctx, client.ManyRequest(body))
	violated := client.HasStatus(err, http.StatusConflict)
	if err != nil && !violated {
		return cannot(c.explain(err))
	}
	if _, err := fmt.Fprintf(stdout, "%s\n", a.Body); err != nil {
		return err
	}
	if violated {
		return &codedError{code: 1}
	}
	return nil
}
