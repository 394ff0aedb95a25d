package main

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"

	"github.com/spf13/cobra"

	"github.com/annalsdb/annals/client"
)

const indexHelp = `Show the index of categories, types, correlations and tags of one node: whether it is whole, and
what it has. The keys of tags and correlations are an upper bound, as the index has only hashes.`

const indexRebuildHelp = `Have the node build the index again from its log, while it serves. Until the index is whole the
node answers reads of indexes and queries with 503. A damaged index is built again by itself.`

func indexCommand(stdout io.Writer) *cobra.Command {
	var f clusterFlags
	cmd := &cobra.Command{
		Use: "index", Short: "Show the index of categories, types and tags, or build it again", Long: indexHelp,
		Args: cobra.NoArgs,
		RunE: func(*cobra.Command, []string) error {
			return f.on(func(ctx context.Context, c *nodeClient) error { return c.printIndex(ctx, stdout, f.json) })
		},
	}
	f.add(cmd.PersistentFlags(), "address of the node", "print JSON in place of text")
	cmd.AddCommand(&cobra.Command{
		Use: "rebuild", Short: "Build the index again from the log", Long: indexRebuildHelp,
		Args: cobra.NoArgs,
		RunE: func(*cobra.Command, []string) error {
			return f.on(func(ctx context.Context, c *nodeClient) error {
				answer, err := c.Do(ctx, client.Request{Method: http.MethodPost, Path: "/admin/index/rebuild", Stay: true})
				if err == nil {
					err = answer.Err()
				}
				if err != nil {
					return c.explain(err)
				}
				if f.json {
					return printJSON(stdout, map[string]string{"node": c.host})
				}
				_, err = fmt.Fprintf(stdout, "%s builds its index again\n", c.host)
				return err
			})
		},
	})
	return cmd
}

// indexState is what a node says of its index.
type indexState struct {
	State                      string
	Position, LogEnd           int64
	Tables, Bytes, MemoryBytes int64
	Kinds                      map[string]struct{ Keys, Postings int64 }
	MalformedTags              int64
}

func (c *nodeClient) printIndex(ctx context.Context, stdout io.Writer, asJSON bool) error {
	body, err := c.ask(ctx, http.MethodGet, "/index", client.MediaJSON)
	if err != nil {
		return err
	}
	if asJSON {
		return printJSON(stdout, json.RawMessage(body))
	}
	var s indexState
	if err := json.Unmarshal(body, &s); err != nil {
		return fmt.Errorf("%s: read its answer: %w", c.host, err)
	}
	text := fmt.Sprintf("%s: %d of %d bytes of log\n%d tables, %d bytes, %d bytes in memory\n", s.State, s.Position, s.LogEnd, s.Tables, s.Bytes, s.MemoryBytes)
	for _, kind := range []string{"category", "type", "correlation", "tag"} {
		text += fmt.Sprintf("%-11s  %d keys, %d postings\n", kind, s.Kinds[kind].Keys, s.Kinds[kind].Postings)
	}
	_, err = fmt.Fprintf(stdout, "%smalformed tags: %d events\n", text, s.MalformedTags)
	return err
}
