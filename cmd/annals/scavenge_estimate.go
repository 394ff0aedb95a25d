package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"text/tabwriter"
	"time"

	"github.com/annalsdb/annals/admin/scavenge"
)

// scavengeEstimate is what a run would do, as a node estimates it.
type scavengeEstimate struct {
	Node string `json:"node"`
	scavenge.Estimate
	TookMs int64 `json:"tookMs"`
}

// dryRun asks for an estimate and prints it.
func (c *scavengeClient) dryRun(ctx context.Context, stdout io.Writer, query url.Values) error {
	body, err := c.ask(ctx, http.MethodPost, scavengePath+"?"+query.Encode(), "application/json")
	if err != nil {
		return c.uncertain(ctx, err, "")
	}
	var started namedScavenge
	if err := json.Unmarshal(body, &started); err == nil && started.ID != "" {
		return c.takeBack(ctx, started.ID)
	}
	e := scavengeEstimate{}
	if err := json.Unmarshal(body, &e); err != nil {
		return fmt.Errorf("read the answer of %s: %w", c.host, err)
	}
	if e.Chunks == nil {
		return errors.New(c.host + " answers something other than an estimate")
	}
	e.Node = c.host
	if c.flags.json {
		return printJSON(stdout, &e)
	}
	return e.print(stdout)
}

// takeBack stops a scavenge that a node has started in place of an estimate: servers
// of other products do not know estimates.
func (c *scavengeClient) takeBack(ctx context.Context, id string) error {
	if _, err := c.stop(context.WithoutCancel(ctx), id); err != nil {
		return fmt.Errorf("%s knows no estimates and has started scavenge %s in place of one, which could not be stopped: %w", c.host, visible(id), err)
	}
	return fmt.Errorf("%s knows no estimates and had started scavenge %s in place of one; it was stopped", c.host, visible(id))
}

// print prints the estimate as a summary with tables.
func (e *scavengeEstimate) print(w io.Writer) error {
	t := tabwriter.NewWriter(w, 0, 0, 2, ' ', tabwriter.AlignRight)
	// An error of the writer shows when it is flushed.
	line := func(format string, args ...any) { _, _ = fmt.Fprintf(t, format+"\n", args...) }

	var executed, left int
	var now int64
	for i := range e.Chunks {
		switch c := &e.Chunks[i]; {
		case c.Executed:
			executed++
			now += c.Bytes
		case c.Bytes > 0:
			left++
		}
	}
	line("A scavenge of %s up to position %d would remove %d events, %s.", e.Node, e.End, e.Events, humanBytes(e.Bytes))
	line("With threshold %d it would rewrite %d of %d chunk files and free %s of that now.", e.Threshold, executed, len(e.Chunks), humanBytes(now))
	if left > 0 {
		line("The rest is in %s that no run rewrites yet: below the threshold, or still being written.", counted(left, "more file"))
	}
	line("Estimated in %v.", (time.Duration(e.TookMs) * time.Millisecond).String())
	e.printChunks(line)
	printStreams(line, "Streams that would lose most", e.Streams)
	printStreams(line, "Largest streams that would lose nothing", e.Kept)
	return t.Flush()
}

// printChunks prints the files from which something would go.
func (e *scavengeEstimate) printChunks(line func(string, ...any)) {
	line("\nChunk files to gain from")
	shown := 0
	for i := range e.Chunks {
		c := &e.Chunks[i]
		if c.Bytes == 0 && !c.Executed {
			continue
		}
		if shown == 0 {
			line("chunks\tsize\tto gain\t\tevents\tweight\trewritten\t  file")
		}
		shown++
		chunks := fmt.Sprint(c.First)
		if c.Last != c.First {
			chunks = fmt.Sprintf("%d-%d", c.First, c.Last)
		}
		line("%s\t%s\t%s\t%s\t%d\t%d\t%s\t  %s", chunks, humanBytes(c.FileBytes), humanBytes(c.Bytes), share(c.Bytes, c.FileBytes),
			c.Events, c.Weight, map[bool]string{true: "yes", false: "no"}[c.Executed], visible(c.File))
	}
	switch rest := len(e.Chunks) - shown; {
	case shown == 0:
		line("none")
	case rest > 0:
		line("nothing to gain from %s", counted(rest, "more file"))
	}
}

// printStreams prints a table of streams with the reason for each.
func printStreams(line func(string, ...any), title string, streams []scavenge.StreamEstimate) {
	line("\n%s", title)
	if len(streams) == 0 {
		line("none")
		return
	}
	line("events\tsize\t  stream (why)")
	for i := range streams {
		s := &streams[i]
		line("%d\t%s\t  %s (%s)", s.Events, humanBytes(s.Bytes), visible(s.Stream), visible(s.Why))
	}
}

// counted is a number of things.
func counted(n int, thing string) string {
	if n == 1 {
		return "1 " + thing
	}
	return fmt.Sprintf("%d %ss", n, thing)
}

// share is a part in percent.
func share(part, whole int64) string {
	if whole <= 0 {
		return ""
	}
	return fmt.Sprintf("%.1f %%", 100*float64(part)/float64(whole))
}
