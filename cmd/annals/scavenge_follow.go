package main

import (
	"context"
	"fmt"
	"io"
	"time"

	"github.com/annalsdb/annals/admin/scavenge"
	"github.com/annalsdb/annals/client"
)

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
func (f *scavengeFollower) toEnd(ctx context.Context, stdout io.Writer, id string) error {
	run, err := f.follow(ctx, id)
	if err != nil {
		return err
	}
	return run.conclude(stdout, f.client.flags.json)
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
