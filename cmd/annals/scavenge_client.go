package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"syscall"
	"time"

	"github.com/annalsdb/annals/admin/scavenge"
	"github.com/annalsdb/annals/client"
	"github.com/annalsdb/annals/event"
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

// alreadyScavenging is the answer of a node to the start of a second run.
const alreadyScavenging = "Scavenge is already running"

// scavengeStart is annals scavenge start.
type scavengeStart struct {
	*scavengeFlags
	stdout, stderr io.Writer

	threads, throttle     int
	threshold             int32
	syncOnly, all, detach bool
	query                 url.Values // what of these was given
}

// check finds mistakes that a node would refuse, before the first of several is asked.
func (s *scavengeStart) check() error {
	switch {
	case s.threads < 1:
		return cannot(errors.New("--threads must be 1 or above"))
	case s.throttle < 1 || s.throttle > 100:
		return cannot(errors.New("--throttle must be between 1 and 100"))
	case s.throttle != 100 && s.threads > 1:
		return cannot(errors.New("--throttle must be 100 with more than one thread"))
	case s.all && s.detach:
		return cannot(errors.New("--all and --detach exclude each other: the next node begins when the one before has ended"))
	}
	return s.checkFollowing()
}

func (s *scavengeStart) run(ctx context.Context, c *scavengeClient) error {
	if s.all {
		return s.runAll(ctx, c)
	}
	_, err := s.runOn(ctx, c)
	return err
}

// runOn scavenges one node. The run that it returns is empty if it is not followed to its end.
func (s *scavengeStart) runOn(ctx context.Context, c *scavengeClient) (run scavengeRun, err error) {
	id, err := c.start(ctx, s.query)
	if refused, ok := errors.AsType[*client.Error](err); ok && refused.Status == http.StatusBadRequest && strings.Contains(refused.Text, alreadyScavenging) {
		return run, fmt.Errorf("a scavenge is running on %s: follow it with annals scavenge status --watch%s", c.host, c.nodeFlag())
	}
	if err != nil {
		return run, c.uncertain(ctx, err, "whether one was started")
	}
	if s.detach {
		return run, namedScavenge{Node: c.host, ID: id}.print(s.stdout, s.json)
	}
	follower := c.follower(s.stderr)
	follower.say("scavenge %s started on %s", visible(id), c.host)
	return follower.toEnd(ctx, s.stdout, id)
}

// runsToPoint bounds how often one node scavenges: one resumed, one up to a point that another node
// made before, one up to a new point, and one more if the end of one is not known.
const runsToPoint = 4

// runPast scavenges one node, up to a point that does not lie before a position. The first run of a
// node may be up to one that another node made earlier, or resume one that was stopped.
func (s *scavengeStart) runPast(ctx context.Context, c *scavengeClient, position int64) error {
	unknown := 0
	for range runsToPoint {
		run, err := s.runOn(ctx, c)
		switch {
		case err != nil || s.syncOnly:
			return err
		case run.Point == nil:
			// The history of a run does not say it. A node of an earlier version never does.
			if unknown++; unknown > 1 {
				return nil
			}
		case run.Point.Position >= position:
			return nil
		}
	}
	return fmt.Errorf("%s has scavenged %d times, and not up to a point after the begin of this command: what was hidden since may be there", c.host, runsToPoint)
}

// logEnd asks the leader how far its log reaches.
func (c *scavengeClient) logEnd(ctx context.Context, view []client.Member) (int64, error) {
	at := slices.IndexFunc(view, func(m client.Member) bool { return event.NodeState(m.State) == event.StateLeader })
	if at < 0 {
		return 0, errNoLeader
	}
	leader, err := c.member(&view[at])
	if err != nil {
		return 0, err
	}
	defer leader.Close()
	body, err := leader.ask(ctx, http.MethodGet, "/gossip", "application/json")
	if err != nil {
		return 0, err
	}
	var own struct {
		Members []struct {
			State event.NodeState `json:"state"`
			End   int64           `json:"writerCheckpoint"`
		} `json:"members"`
	}
	if err := json.Unmarshal(body, &own); err != nil {
		return 0, err
	}
	for _, m := range own.Members {
		if m.State == event.StateLeader && m.End >= 0 {
			return m.End, nil
		}
	}
	return 0, errNoLeader
}

var errNoLeader = errors.New("no leader is known: a scavenge of all nodes needs one; nothing was started")

// runAll scavenges the nodes of a cluster, one after the other, each up to a point that is newer
// than this command: what was hidden before it goes everywhere. It asks for the leader before each:
// leadership may have moved in the hours that a node takes.
func (s *scavengeStart) runAll(ctx context.Context, c *scavengeClient) error {
	view, err := c.nodes(ctx)
	if err != nil {
		return c.uncertain(ctx, err, "")
	}
	// Rather than scavenge half of a cluster, nothing is begun.
	if err := c.allAnswer(ctx, view, s.stderr); err != nil {
		return fmt.Errorf("%w; nothing was started", err)
	}
	end := int64(0)
	if !s.syncOnly {
		if end, err = c.logEnd(ctx, view); err != nil {
			return c.uncertain(ctx, err, "")
		}
	}
	done := map[string]bool{}
	for {
		next, left := nextNode(view, done)
		if next == nil {
			return nil
		}
		done[next.Address()] = true
		one, err := c.member(next)
		if err != nil {
			return err
		}
		err = s.runPast(ctx, &scavengeClient{one, s.scavengeFlags}, end)
		one.Close()
		if err != nil {
			return s.unfinished(err, left-1)
		}
		// If the node does not answer now, its earlier view is good enough.
		if newer, err := c.nodes(ctx); err == nil {
			view = newer
		}
	}
}

// unfinished adds to the error of one node how many were not begun.
func (s *scavengeStart) unfinished(err error, left int) error {
	if left > 0 {
		complain(s.stderr, errors.New("not scavenged: "+counted(left, "more node")))
	}
	return err
}

// recordedWithin is how long the end of a run is looked for in its history after
// the node has forgotten the run. A node that was restarted completes the history
// of a run it was interrupted in as soon as it knows who leads.
const recordedWithin = 15 * time.Second

// scavengeFollower follows a run on one node.
type scavengeFollower struct {
	client   *scavengeClient
	progress scavengeProgress
	stderr   io.Writer

	awaySince time.Time // zero while the node answers
	lostSince time.Time // zero while the node knows the run
	restarted bool      // the node knows of no run at all
}

func (c *scavengeClient) follower(stderr io.Writer) *scavengeFollower {
	return &scavengeFollower{client: c, progress: c.flags.newProgress(c, stderr), stderr: stderr}
}

// toEnd follows a run and prints how it has ended.
func (f *scavengeFollower) toEnd(ctx context.Context, stdout io.Writer, id string) (scavengeRun, error) {
	run, err := f.follow(ctx, id)
	if err != nil {
		return run, err
	}
	return run, run.conclude(stdout, f.client.flags.json)
}

// follow shows the progress of a run until it has ended.
func (f *scavengeFollower) follow(ctx context.Context, id string) (scavengeRun, error) {
	ticker := time.NewTicker(f.client.flags.interval)
	defer ticker.Stop()
	for {
		run, err := f.look(ctx, id)
		switch {
		case ctx.Err() != nil:
			f.progress.end(false)
			return run, f.detached(id)
		case err == nil && run.Result == scavenge.ResultInProgress:
			f.progress.show(&run)
		case err == nil && run.ID != "":
			f.progress.end(run.Result == scavenge.ResultSuccess)
			return run, nil
		case err == nil:
			err = f.lost(id)
		case client.IsAway(err):
			err = f.away(err, id)
		}
		if err != nil {
			f.progress.end(false)
			return run, err
		}
		select {
		case <-ctx.Done():
			f.progress.end(false)
			return run, f.detached(id)
		case <-ticker.C:
		}
	}
}

// look asks for a run. The id of the answer is empty when the node does not know of
// it any more, and its history does not say how it ended.
func (f *scavengeFollower) look(ctx context.Context, id string) (scavengeRun, error) {
	run, err := f.client.current(ctx)
	if err != nil {
		return run, err
	}
	if run.ID != id {
		// It has ended, maybe before it was asked for the first time.
		if run, err = f.client.last(ctx); err != nil {
			return run, err
		}
	}
	f.back()
	if run.ID == id {
		return run, nil
	}
	f.restarted = run.ID == ""
	return f.client.recorded(ctx, id)
}

// away tolerates that the node does not answer, for a while.
func (f *scavengeFollower) away(err error, id string) error {
	patience := f.client.flags.retryFor
	switch {
	case f.awaySince.IsZero():
		f.awaySince = time.Now()
		if patience > 0 {
			f.say("%v; trying again for %v", err, patience)
			return nil
		}
	case time.Since(f.awaySince) < patience:
		return nil
	}
	return fmt.Errorf("%w; scavenge %s may continue there: see annals scavenge status --watch%s", err, visible(id), f.client.nodeFlag())
}

// back notes that the node answers.
func (f *scavengeFollower) back() {
	if !f.awaySince.IsZero() {
		f.awaySince = time.Time{}
		f.say("%s answers again", f.client.host)
	}
}

// lost tolerates for a while that no node knows how the run ended.
func (f *scavengeFollower) lost(id string) error {
	if f.lostSince.IsZero() {
		f.lostSince = time.Now()
	}
	if time.Since(f.lostSince) < min(recordedWithin, f.client.flags.retryFor) {
		return nil
	}
	if f.restarted {
		return fmt.Errorf("%s was restarted and did not resume scavenge %s: annals scavenge start%s resumes it", f.client.host, visible(id), f.client.nodeFlag())
	}
	return fmt.Errorf("%s has begun another scavenge since; the stream $scavenges-%[2]s says how scavenge %[2]s ended", f.client.host, visible(id))
}

// detached says how to follow a run again that is not followed any more.
func (f *scavengeFollower) detached(id string) error {
	node := f.client.nodeFlag()
	f.say("scavenge %s continues on %s", visible(id), f.client.host)
	f.say("follow it again: annals scavenge status --watch%s", node)
	f.say("stop it: annals scavenge stop %s%s", visible(id), node)
	return &codedError{code: exitDetached}
}

// say prints a line below what is shown of the progress.
func (f *scavengeFollower) say(format string, args ...any) {
	f.progress.pause()
	complain(f.stderr, fmt.Errorf(format, args...))
}
