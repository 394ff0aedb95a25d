package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"strings"
	"syscall"

	"github.com/annalsdb/annals/admin/scavenge"
	"github.com/annalsdb/annals/client"
)

const (
	scavengePath = "/admin/scavenge"

	// noSuchScavenge is the answer of a node when the run to stop is not running.
	noSuchScavenge = "Scavenge Id does not exist"
)

// scavengeClient asks one node about its scavenges.
type scavengeClient struct {
	*nodeClient
	flags *scavengeFlags
}

// on runs what a command does with the node.
func (f *scavengeFlags) on(do func(ctx context.Context, c *scavengeClient) error) error {
	return f.clusterFlags.on(func(ctx context.Context, c *nodeClient) error { return do(ctx, &scavengeClient{c, f}) })
}

// uncertain explains an error of a request that the node may have carried out.
func (c *scavengeClient) uncertain(ctx context.Context, err error, what string) error {
	if what != "" {
		what = "; " + what + " is shown by annals scavenge status" + c.nodeFlag()
	}
	if ctx.Err() != nil {
		return &codedError{code: exitDetached, err: errors.New("interrupted" + what)}
	}
	_, broken := errors.AsType[*client.UnreachableError](err)
	if broken && !errors.Is(err, syscall.ECONNREFUSED) || client.HasStatus(err, http.StatusRequestTimeout) {
		return fmt.Errorf("%w%s", err, what)
	}
	return err
}

// get reads a run.
func (c *scavengeClient) get(ctx context.Context, which string) (scavengeRun, error) {
	body, err := c.ask(ctx, http.MethodGet, scavengePath+"/"+which, "application/json")
	if err != nil {
		return scavengeRun{}, err
	}
	run := scavengeRun{}
	if err := json.Unmarshal(body, &run); err != nil {
		return scavengeRun{}, fmt.Errorf("read the answer of %s: %w", c.host, err)
	}
	run.Node = c.host
	return run, nil
}

// current returns the run in progress; its id is empty when there is none.
func (c *scavengeClient) current(ctx context.Context) (scavengeRun, error) {
	run, err := c.get(ctx, "current")
	if run.ID != "" {
		run.Result = scavenge.ResultInProgress
	}
	return run, err
}

// last returns the last run since the node has started; its id is empty when there
// is none, and with nodes that do not say.
func (c *scavengeClient) last(ctx context.Context) (scavengeRun, error) {
	run, err := c.get(ctx, "last")
	if client.HasStatus(err, http.StatusNotFound, http.StatusMethodNotAllowed) {
		run, err = scavengeRun{Node: c.host, Result: scavenge.ResultUnknown}, nil
	}
	if strings.Trim(run.ID, "0-") == "" {
		run.ID = ""
	}
	return run, err
}

// newest returns the run in progress, else the last one.
func (c *scavengeClient) newest(ctx context.Context) (scavengeRun, error) {
	run, err := c.current(ctx)
	if err != nil || run.ID != "" {
		return run, err
	}
	return c.last(ctx)
}

// recorded looks for the end of a run in its history, which outlives a restart. Its
// id is empty when there is none.
func (c *scavengeClient) recorded(ctx context.Context, id string) (scavengeRun, error) {
	body, err := c.ask(ctx, http.MethodGet, "/streams/"+url.PathEscape("$scavenges-"+id)+"/head", "application/vnd.eventstore.event+json")
	switch {
	case client.IsAway(err):
		return scavengeRun{}, err
	case err != nil:
		// Written as well as it can be, and readable to whom its ACL allows.
		return scavengeRun{}, nil
	}
	var e struct {
		Type string `json:"eventType"`
		Data struct {
			Result scavenge.Result `json:"result"`
			Error  string          `json:"error"`
			Saved  int64           `json:"spaceSaved"`
		} `json:"data"`
	}
	if err := json.Unmarshal(body, &e); err != nil || e.Type != "$scavengeCompleted" {
		return scavengeRun{}, nil
	}
	run := scavengeRun{Node: c.host, ID: id, Result: e.Data.Result, Error: e.Data.Error, Saved: e.Data.Saved}
	switch run.Result {
	case scavenge.ResultSuccess, scavenge.ResultStopped:
	default: // Failed, or Interrupted, as history calls it.
		run.Result = scavenge.ResultErrored
	}
	return run, nil
}

// start starts a run and returns its id.
func (c *scavengeClient) start(ctx context.Context, query url.Values) (id string, err error) {
	path := scavengePath
	if len(query) > 0 {
		path += "?" + query.Encode()
	}
	body, err := c.ask(ctx, http.MethodPost, path, "application/json")
	if err != nil {
		return "", err
	}
	var answer struct {
		ID string `json:"scavengeId"`
	}
	if err := json.Unmarshal(body, &answer); err != nil || answer.ID == "" {
		return "", fmt.Errorf("%s does not say which scavenge it started: is it a node?", c.host)
	}
	return answer.ID, nil
}

// stop stops a run, or the current one, and returns its id.
func (c *scavengeClient) stop(ctx context.Context, id string) (stopped string, err error) {
	body, err := c.ask(ctx, http.MethodDelete, scavengePath+"/"+url.PathEscape(id), "application/json")
	if refused, ok := errors.AsType[*client.Error](err); ok && refused.Status == http.StatusNotFound && strings.Contains(refused.Text, noSuchScavenge) {
		if id == "current" {
			return "", fmt.Errorf("no scavenge is running on %s", c.host)
		}
		return "", fmt.Errorf("scavenge %s is not running on %s", visible(id), c.host)
	}
	if err != nil {
		return "", err
	}
	if err := json.Unmarshal(body, &stopped); err != nil {
		return "", fmt.Errorf("read the answer of %s: %w", c.host, err)
	}
	return stopped, nil
}

// namedScavenge is a run of which no more than its id is known.
type namedScavenge struct {
	Node string `json:"node"`
	ID   string `json:"scavengeId"`
}

// print prints the id, for scripts.
func (n namedScavenge) print(w io.Writer, asJSON bool) error {
	if asJSON {
		return printJSON(w, n)
	}
	_, err := fmt.Fprintln(w, visible(n.ID))
	return err
}
