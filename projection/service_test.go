package projection_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/annalsdb/annals/event"
	"github.com/annalsdb/annals/internal/check"
	"github.com/annalsdb/annals/projection"
)

func TestFirstStart(t *testing.T) {
	test(t, func(b *bench) {
		var names []string
		for _, r := range b.store.All("$projections-$all") {
			names = append(names, r.Type+" "+string(r.Data))
		}
		b.is("list", fmt.Sprintf("%q", names), `["$ProjectionsInitialized " "$ProjectionCreated $streams" "$ProjectionCreated $stream_by_category" `+
			`"$ProjectionCreated $by_category" "$ProjectionCreated $by_event_type" "$ProjectionCreated $by_correlation_id"]`)
		list, err := b.List(projection.AllKinds)
		b.must(err)
		b.is("how many", len(list), 5)
		for _, s := range list {
			b.is(s.Name, row(s.Mode, s.Status, s.Version, s.Epoch), "Continuous Stopped 0 -1")
			err := b.Delete(b.ctx, s.Name, projection.DeleteOptions{}, admin)
			b.refused(err, "We currently don't allow for the deletion of System Projections.")
		}
		b.is("definition", string(b.store.All("$projections-$by_category")[0].Data), `{"handlerType":"native:EventStore.Projections.Core.Standard.CategorizeEventsByStreamPath",`+
			`"query":"first\r\n-","mode":"Continuous","enabled":false,"deleting":false,"deleted":false,"deleteEmittedStreams":false,"deleteCheckpointStream":false,`+
			`"deleteStateStream":false,"sourceDefinition":{"allEvents":true,"allStreams":true,"byStream":false,"byCustomPartitions":false,"categories":[],"events":[],"streams":[],`+
			`"limitingCommitPosition":null,"options":{"resultStreamName":null,"partitionResultStreamNamePattern":null,"reorderEvents":false,"processingLag":0,"isBiState":false,`+
			`"definesStateTransform":false,"producesResults":false,"definesFold":true,"handlesDeletedNotifications":false,"includeLinks":false}},"checkpointsDisabled":false,`+
			`"epoch":-1,"version":0,"runAs":{"name":"system","roles":["$admins"]},"emitEnabled":true,"trackEmittedStreams":false,"checkpointAfterMs":0,`+
			`"checkpointHandledThreshold":4000,"checkpointUnhandledBytesThreshold":10000000,"pendingEventsThreshold":5000,"maxWriteBatchLength":500,"maxAllowedWritesInFlight":0,`+
			`"projectionExecutionTimeout":null,"projectionSubsystemVersion":4}`)
		writes := b.store.Writes.Load()
		b.lead()
		b.is("writes of a second start", b.store.Writes.Load()-writes, 0)
		b.expect("$streams", "Stopped")
	})
}

// TestFirstStartCutShort fails each write of the first start once, before and after it took effect.
func TestFirstStartCutShort(t *testing.T) {
	for at := range 6 {
		for _, after := range []bool{false, true} {
			synctest.Test(t, func(t *testing.T) {
				b := newBench(t)
				n := 0
				hook := func(context.Context, *event.Write) error {
					if n++; n-1 == at {
						return event.ErrNotReady
					}
					return nil
				}
				if after {
					b.store.AfterWrite.Set(hook)
				} else {
					b.store.BeforeWrite.Set(hook)
				}
				b.begin()
				time.Sleep(time.Minute)
				b.lead()
				list, err := b.List(projection.AllKinds)
				b.must(err)
				b.is("how many", len(list), 5)
				for _, s := range list {
					b.expect(s.Name, "Stopped")
					b.command(s.Name, projection.Enable)
					b.expect(s.Name, "Running")
				}
				b.finish()
			})
		}
	}
}

func TestStartStandard(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBench(t)
		b.opts.StartStandard = true
		b.begin()
		b.expect("$by_category", "Running")
		b.expect("$streams", "Running")
		b.command("$streams", projection.Disable)
		b.must(b.Restart(b.ctx))
		synctest.Wait()
		b.expect("$streams", "Stopped")
		b.expect("$by_category", "Running")
		b.finish()
	})
}

func TestSystemOnly(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBench(t)
		b.opts.SystemOnly = true
		b.begin()
		b.create("p", "")
		b.expect("p", "Stopped (Enabled)")
		b.command("p", projection.Enable)
		b.expect("p", "Stopped (Enabled)")
		b.command("p", projection.Disable)
		b.expect("p", "Stopped")
		b.command("$streams", projection.Enable)
		b.expect("$streams", "Running")
		b.is("runs", b.runner.started, 1)
		b.finish()
	})
}

func TestCreate(t *testing.T) {
	test(t, func(b *bench) {
		create := func(c projection.Creation) error {
			_, err := b.Create(b.ctx, c)
			return err
		}
		b.refused(create(projection.Creation{Mode: projection.Continuous, Name: " ", By: admin}), "Projection name is required")
		b.refused(create(projection.Creation{Mode: projection.OneTime, Name: "o", Emit: true, By: admin}), "Emit requires checkpoints")
		b.is("not an operator", errors.Is(create(projection.Creation{Mode: projection.OneTime, By: somebody}), event.ErrNotAuthorized), true)
		b.must(create(projection.Creation{Mode: projection.OneTime, Name: "o", Emit: true, Checkpoints: true, By: admin}))
		b.refused(create(projection.Creation{Mode: projection.Transient, Name: "o", By: admin}), "Duplicate projection names : o")
		b.refused(create(projection.Creation{Mode: projection.Transient, Name: "$all", By: admin}), "Duplicate projection names : $all")
		b.refused(create(projection.Creation{Mode: projection.Continuous, Name: "o-result", By: admin}),
			"The stream of projection o-result is one of those that projection o writes : $projections-o-result")
		name, err := b.Create(b.ctx, projection.Creation{Mode: projection.Transient, By: somebody})
		b.must(err)
		b.is("length of a GUID", len(name), 36)
		b.create("bad", "bad")
		s, err := b.Statistics("bad")
		b.must(err)
		b.is("bad", row(s.Status, s.StateReason, s.Version, s.Epoch), "Faulted bad text -1 -1")
		b.create("faults", "faults")
		b.expect("faults", "Faulted (Enabled)")
		b.create("off", "", enabledNo)
		b.expect("off", "Stopped")
		b.create("T", "", transient, enabledNo)
		b.expect("T", "Stopped")
		b.is("streams of a transient one", len(b.store.All("$projections-T")), 0)
	})
}

// TestCreateCutShort cuts a creation between its two writes: nothing is left of it.
func TestCreateCutShort(t *testing.T) {
	test(t, func(b *bench) {
		b.store.BeforeWrite.Set(func(ctx context.Context, w *event.Write) error {
			if w.Stream == "$projections-p" {
				<-ctx.Done()
				return ctx.Err()
			}
			return nil
		})
		creation := projection.Creation{Name: "p", Mode: projection.Continuous, By: admin}
		result := b.later(func() error { _, err := b.Create(b.ctx, creation); return err })
		b.expect("p", "Creating")
		b.Stop()
		b.is("outcome", errors.Is(result(), event.ErrOutcomeUnknown), true)
		b.store.BeforeWrite.Set(nil)
		b.begin()
		_, err := b.Statistics("p")
		b.is("afterwards", err, projection.ErrNotFound)
		b.create("p", "")
		_, d := b.definition("p")
		b.is("version", d["version"], 0)

		b.store.BeforeWrite.Set(func(_ context.Context, w *event.Write) error {
			if w.Stream == "$projections-q" {
				return event.ErrDiskFull
			}
			return nil
		})
		creation.Name = "q"
		_, err = b.Create(b.ctx, creation)
		b.is("disk full", err, event.ErrDiskFull)
		synctest.Wait()
		b.store.BeforeWrite.Set(nil)
		b.create("q", "")
	})
}

// TestCommands goes through the tables of statuses.
func TestCommands(t *testing.T) {
	const version, epoch = "version", "epoch"
	enableIt, disableIt, resetIt, abortIt := projection.Enable, projection.Disable, projection.Reset, projection.Abort
	cases := []struct {
		name, text string
		mode       projection.Mode
		feed       []int64
		commands   []projection.Command
		status     string
		version    int
		epoch      int
	}{
		{"runs", "", "", nil, nil, "Running", 0, -1},
		{"enable running", "", "", nil, []projection.Command{enableIt}, "Running", 0, -1},
		{"disable", "", "", nil, []projection.Command{disableIt}, "Stopped", 1, -1},
		{"disable twice", "", "", nil, []projection.Command{disableIt, disableIt}, "Stopped", 1, -1},
		{"enable again", "", "", nil, []projection.Command{disableIt, enableIt}, "Running", 2, -1},
		{"abort", "", "", nil, []projection.Command{abortIt}, "Aborted/Stopped", 1, -1},
		{"abort and disable", "", "", nil, []projection.Command{abortIt, disableIt}, "Stopped", 1, -1},
		{"abort and enable", "", "", nil, []projection.Command{abortIt, enableIt}, "Running", 2, -1},
		{"abort stopped", "", "", nil, []projection.Command{disableIt, abortIt}, "Stopped", 1, -1},
		{"reset running", "", "", nil, []projection.Command{resetIt}, "Running", 1, 1},
		{"reset stopped", "", "", nil, []projection.Command{disableIt, resetIt}, "Stopped", 2, 2},
		{"reset aborted", "", "", nil, []projection.Command{abortIt, resetIt}, "Stopped", 2, 2},
		{"fault", "dies", "", []int64{1}, nil, "Faulted (Enabled)", 0, -1},
		{"fault and disable", "dies", "", []int64{1}, []projection.Command{disableIt}, "Stopped/Faulted", 1, -1},
		{"fault and abort", "dies", "", []int64{1}, []projection.Command{abortIt}, "Faulted", 1, -1},
		{"fault and enable", "dies", "", []int64{1}, []projection.Command{enableIt}, "Running", 0, -1},
		{"fault and reset", "dies", "", []int64{1}, []projection.Command{resetIt}, "Running", 1, 1},
		{"fault, disable and reset", "dies", "", []int64{1}, []projection.Command{disableIt, resetIt}, "Stopped", 2, 2},
		{"bad", "bad", "", nil, nil, "Faulted", 0, -1},
		{"bad and disable", "bad", "", nil, []projection.Command{disableIt}, "Faulted", 1, -1},
		{"bad and enable", "bad", "", nil, []projection.Command{enableIt}, "Faulted", 0, -1},
		{"completed", "", projection.OneTime, []int64{-1}, nil, "Completed/Stopped/Writing results", 0, -1},
		{"completed and disable", "", projection.OneTime, []int64{-1}, []projection.Command{disableIt}, "Stopped/Writing results", 1, -1},
		{"completed and enable", "", projection.OneTime, []int64{-1}, []projection.Command{enableIt}, "Running", 0, -1},
		{"completed and reset", "", projection.OneTime, []int64{-1}, []projection.Command{resetIt}, "Running", 1, 1},
		{"completed and abort", "", projection.OneTime, []int64{-1}, []projection.Command{abortIt}, "Completed/Stopped/Writing results", 1, -1},
		{"query", "", projection.Transient, []int64{-1}, nil, "Completed/Stopped/Writing results", 0, -1},
		{"query and disable", "", projection.Transient, nil, []projection.Command{disableIt}, "Stopped", 1, -1},
	}
	test(t, func(b *bench) {
		for _, c := range cases {
			b.create(c.name, c.text, func(n *projection.Creation) {
				if c.mode != "" {
					n.Mode = c.mode
				}
			})
			for _, n := range c.feed {
				b.feed(c.name, n)
			}
			for _, k := range c.commands {
				b.command(c.name, k)
			}
			b.expect(c.name, c.status)
			if c.mode != projection.Transient {
				_, d := b.definition(c.name)
				b.is(c.name+": version", d[version], c.version)
				b.is(c.name+": epoch", d[epoch], c.epoch)
			}
		}
	})
}

func TestStateThroughTheCommands(t *testing.T) {
	test(t, func(b *bench) {
		b.create("p", "")
		b.is("at first", b.state("p"), " at C:0/P:0")
		list, _, err := b.Partitions(b.ctx, "p", "x", "a", 7, admin)
		b.is("partitions of the run", fmt.Sprint(list, err), "[{xa7 0}] <nil>")
		_, _, err = b.Partitions(b.ctx, "none", "", "", 7, admin)
		b.is("partitions of none", errors.Is(err, projection.ErrNotFound), true)
		b.feed("p", 3)
		b.is("fed", b.state("p"), `{"n":3} at C:3/P:3`)
		b.command("p", projection.Disable)
		b.is("stopped", b.state("p"), `{"n":3} at C:3/P:3`)
		b.lead()
		b.expect("p", "Stopped")
		b.is("loaded", b.state("p"), `{"n":3} at C:3/P:3`)
		b.command("p", projection.Enable)
		b.feed("p", 1)
		b.command("p", projection.Abort)
		b.is("aborted", b.state("p"), `{"n":4} at C:4/P:4`)
		b.command("p", projection.Enable)
		b.is("without a checkpoint", b.state("p"), `{"n":3} at C:3/P:3`)
		b.must(b.UpdateQuery(b.ctx, "p", projection.Update{Query: "other"}, admin))
		b.is("another text", b.state("p"), `{"n":3} at C:3/P:3`)
		b.command("p", projection.Reset)
		b.is("reset", b.state("p"), " at C:0/P:0")
		b.command("p", projection.Disable)
		b.command("p", projection.Reset)
		b.is("reset and stopped", b.state("p"), " at C:0/P:-1")
		b.create("q", "", transient)
		b.feed("q", 2)
		b.feed("q", -1)
		b.is("completed", b.state("q"), `{"n":2} at nowhere`)
		b.create("bad", "bad")
		b.is("bad", b.state("bad"), " at nowhere")
	})
}

func TestPropertiesAndEngineVersion(t *testing.T) {
	test(t, func(b *bench) {
		create := func(name, engine string, properties json.RawMessage) error {
			_, err := b.Create(b.ctx, projection.Creation{Name: name, Mode: projection.Continuous, Query: "one", EngineVersion: engine, Properties: properties, By: admin})
			return err
		}
		b.refused(create("p", "2", nil), "Projection engine version 2 is not supported by this server.")
		b.must(create("p", "0", []byte(`{"a":1}`)))
		b.must(create("q", "1", nil))
		is := func(name, want string) {
			c, err := b.Config(name)
			b.must(err)
			b.is("properties", string(c.Properties), want)
		}
		is("p", `{"a":1}`)
		is("q", `{}`)
		b.must(b.Command(b.ctx, "p", projection.Enable, admin))
		b.must(b.UpdateQuery(b.ctx, "p", projection.Update{Query: "two"}, admin))
		is("p", `{"a":1}`)
		b.must(b.UpdateQuery(b.ctx, "p", projection.Update{Query: "two", Properties: []byte(`{"b":2}`)}, admin))
		b.Stop()
		b.begin()
		is("p", `{"b":2}`)
		is("q", `{}`)
	})
}

func TestUpdateQuery(t *testing.T) {
	test(t, func(b *bench) {
		b.create("p", "one")
		b.must(b.UpdateQuery(b.ctx, "p", projection.Update{Query: "bad"}, admin))
		b.expect("p", "Faulted")
		q, err := b.Query("p")
		b.must(err)
		b.is("query", row(q.Text, q.Definition == nil, q.ResultStream), "bad true $projections-p-result")
		yes, no := true, false
		b.must(b.UpdateQuery(b.ctx, "p", projection.Update{Query: "named", Emit: &yes}, admin))
		b.expect("p", "Running")
		q, err = b.Query("p")
		b.must(err)
		b.is("query", row(q.Text, q.EmitEnabled, q.CheckpointsEnabled, q.ResultStream), "named true true named-results")
		_, d := b.definition("p")
		b.is("stored", row(d["query"], d["emitEnabled"], d["version"], d["sourceDefinition"] != nil), "named true 2 true")
		b.must(b.UpdateQuery(b.ctx, "p", projection.Update{Query: "named", Emit: &no}, admin))
		_, d = b.definition("p")
		b.is("stored", row(d["emitEnabled"], d["version"]), "false 3")

		b.create("o", "", func(c *projection.Creation) { c.Mode = projection.OneTime })
		b.refused(b.UpdateQuery(b.ctx, "o", projection.Update{Emit: &yes}, admin), "Emit requires checkpoints")
		b.feed("o", -1)
		b.must(b.UpdateQuery(b.ctx, "o", projection.Update{Query: "new"}, admin))
		b.expect("o", "Running")
		_, d = b.definition("o")
		b.is("epoch of a completed one", d["epoch"], 1)

		b.create("t", "one", func(c *projection.Creation) { c.Mode, c.Enabled, c.By = projection.Transient, false, somebody })
		for range 2 { // As the console does.
			b.must(b.UpdateQuery(b.ctx, "t", projection.Update{Emit: &no}, somebody))
			b.must(b.Command(b.ctx, "t", projection.Enable, somebody))
			b.expect("t", "Running")
			b.feed("t", -1)
			b.expect("t", "Completed/Stopped/Writing results")
		}
		b.is("permission", errors.Is(b.UpdateQuery(b.ctx, "p", projection.Update{}, somebody), event.ErrNotAuthorized), true)
		b.is("permission", errors.Is(b.Command(b.ctx, "p", projection.Enable, somebody), event.ErrNotAuthorized), true)
	})
}

func TestConfig(t *testing.T) {
	test(t, func(b *bench) {
		b.create("p", "")
		settings, err := b.Config("p")
		b.must(err)
		c := settings.Config
		b.is("default", c, projection.DefaultConfig())
		c.CheckpointAfterMs = 7
		b.refused(b.SetConfig(b.ctx, "p", c, admin), "Cannot update the config of a projection that hasn't been stopped or faulted.")
		b.command("p", projection.Disable)
		b.must(b.SetConfig(b.ctx, "p", c, admin))
		b.lead()
		settings, err = b.Config("p")
		b.must(err)
		b.is("set", settings.CheckpointAfterMs, 7)
		_, d := b.definition("p")
		b.is("stored", row(d["checkpointAfterMs"], d["version"]), "7 2")
		b.command("p", projection.Abort)
		b.expect("p", "Stopped")
		b.create("t", "", transient)
		b.must(b.SetConfig(b.ctx, "t", c, admin))
	})
}

func TestParseConfig(t *testing.T) {
	for text, want := range map[string]string{
		`{"CHECKPOINTHANDLEDTHRESHOLD":1,"checkpointUnhandledBytesThreshold":1}`: "",
		`{}`: "checkpointHandledThreshold should be at least 1. Found : 0",
		`{"checkpointHandledThreshold":2,"checkpointUnhandledBytesThreshold":1}`:                          "checkpointUnhandledBytesThreshold should be at least checkpointHandledThreshold. Found : 1",
		`{"projectionExecutionTimeout":0}`:                                                                "projectionExecutionTimeout should be positive. Found : 0",
		`{"checkpointHandledThreshold":1,"checkpointUnhandledBytesThreshold":1,"maxWriteBatchLength":-1}`: "maxWriteBatchLength should be at least 0. Found : -1",
		`{"emitEnabled":1}`: "Failed to parse the projection config",
		`null`:              "Failed to parse the projection config",
		``:                  "Failed to parse the projection config",
	} {
		got := ""
		if _, err := projection.ParseConfig([]byte(text)); err != nil {
			got = err.Error()
		}
		check.Equal(t, got, want, text)
	}
}

func TestDelete(t *testing.T) {
	test(t, func(b *bench) {
		b.create("p", "")
		b.refused(b.Delete(b.ctx, "p", projection.DeleteOptions{}, admin), "Cannot delete a projection that hasn't been stopped or faulted.")
		b.command("p", projection.Abort)
		b.refused(b.Delete(b.ctx, "p", projection.DeleteOptions{}, admin), "Cannot delete a projection that hasn't been stopped or faulted.")
		b.command("p", projection.Disable)
		b.must(b.Delete(b.ctx, "p", projection.DeleteOptions{EmittedStreams: true}, admin))
		_, err := b.Statistics("p")
		b.is("deleted", err, projection.ErrNotFound)
		_, d := b.definition("p")
		b.is("definition", row(d["deleting"], d["deleted"], d["deleteEmittedStreams"], d["version"]), "true true true 3")
		all := b.store.All("$projections-$all")
		b.is("list", all[len(all)-1].Type+string(all[len(all)-1].Data), "$ProjectionDeletedp")
		b.create("p", "")
		_, d = b.definition("p")
		b.is("definition", row(d["deleting"], d["version"]), "false 4")
		b.is("id", b.runOf("p").o.Version, "8:-1:4:4")
		b.create("t", "", transient, func(c *projection.Creation) { c.By = somebody })
		b.must(b.Delete(b.ctx, "t", projection.DeleteOptions{}, somebody))
		_, err = b.Statistics("t")
		b.is("deleted", err, projection.ErrNotFound)
	})
}

// TestDeleteCutShort cuts a deletion before each of its writes. Once it is stored it is done in the
// end.
func TestDeleteCutShort(t *testing.T) {
	for at := range 3 {
		test(t, func(b *bench) {
			b.create("p", "", enabledNo)
			n := 0
			b.store.BeforeWrite.Set(func(ctx context.Context, w *event.Write) error {
				if n++; n-1 < at {
					return nil
				}
				<-ctx.Done()
				return ctx.Err()
			})
			result := b.later(func() error { return b.Delete(b.ctx, "p", projection.DeleteOptions{}, admin) })
			if at > 0 {
				b.expect("p", "Deleting/Stopped")
				time.Sleep(6 * time.Second)
				b.must(result())
				_, err := b.Statistics("p")
				b.is("deleted", err, projection.ErrNotFound)
				_, err = b.Create(b.ctx, projection.Creation{Name: "p", Mode: projection.Continuous, By: admin})
				b.refused(err, "Duplicate projection names : p")
			}
			b.Stop()
			if at == 0 {
				b.is("outcome", errors.Is(result(), event.ErrOutcomeUnknown), true)
			}
			b.store.BeforeWrite.Set(nil)
			b.begin()
			_, err := b.Statistics("p")
			b.is("exists", err == nil, at == 0)
			if at > 0 {
				b.create("p", "")
			}
		})
	}
}

// TestRepliesWait looks at what those who wait are answered.
func TestRepliesWait(t *testing.T) {
	test(t, func(b *bench) {
		creation := projection.Creation{Name: "p", Mode: projection.Continuous, Query: "slow hangs", Enabled: true, By: admin}
		created := b.later(func() error { _, err := b.Create(b.ctx, creation); return err })
		b.expect("p", "Starting/LoadStateRequested")
		// Changes nothing, so no caller is cut off.
		b.must(b.Command(b.ctx, "p", projection.Enable, admin))
		close(b.runOf("p").let)
		b.must(created())
		b.expect("p", "Running")

		disabled := b.later(func() error { return b.Command(b.ctx, "p", projection.Disable, admin) })
		b.expect("p", "Stopping")
		b.refused(b.Delete(b.ctx, "p", projection.DeleteOptions{}, admin), "Cannot delete a projection that hasn't been stopped or faulted.")
		b.command("p", projection.Abort)
		b.refused(disabled(), "Aborted by subsequent operation")
		b.expect("p", "Aborted/Stopped")

		enabled := b.later(func() error { return b.Command(b.ctx, "p", projection.Enable, admin) })
		b.command("p", projection.Disable)
		b.refused(enabled(), "Aborted by subsequent operation")
		b.expect("p", "Stopped")

		// Who does not wait any more leaves the deed.
		ctx, cancel := context.WithTimeout(b.ctx, time.Second)
		defer cancel()
		b.is("in time", b.Command(ctx, "p", projection.Enable, admin), context.DeadlineExceeded)
		close(b.runOf("p").let)
		synctest.Wait()
		b.expect("p", "Running")

		disabled = b.later(func() error { return b.Command(b.ctx, "p", projection.Disable, admin) })
		enabled = b.later(func() error { return b.Command(b.ctx, "p", projection.Enable, admin) })
		b.refused(disabled(), "Aborted by subsequent operation")
		b.expect("p", "Stopping")
		b.runOf("p").Abort()
		synctest.Wait()
		close(b.runOf("p").let)
		b.must(enabled())
		b.expect("p", "Running")
	})
}

// TestDefinitionFirst lets the store hang: nothing happens before the definition is stored.
func TestDefinitionFirst(t *testing.T) {
	test(t, func(b *bench) {
		b.create("p", "")
		let := make(chan struct{})
		b.store.BeforeWrite.Set(func(context.Context, *event.Write) error { <-let; return nil })
		disabled := b.later(func() error { return b.Command(b.ctx, "p", projection.Disable, admin) })
		b.expect("p", "Running")
		aborted := b.later(func() error { return b.Command(b.ctx, "p", projection.Abort, admin) })
		reset := b.later(func() error { return b.Command(b.ctx, "p", projection.Reset, admin) })
		b.refused(aborted(), "Aborted by subsequent operation")
		close(let)
		b.refused(disabled(), "Aborted by subsequent operation")
		b.must(reset())
		b.expect("p", "Stopped")
		_, d := b.definition("p")
		b.is("definition", row(d["enabled"], d["version"], d["epoch"]), "false 2 2")
	})
}

// TestUnknownOutcomes loses the answers of writes: they are asked for again.
func TestUnknownOutcomes(t *testing.T) {
	test(t, func(b *bench) {
		n := 0
		b.store.AfterWrite.Set(func(context.Context, *event.Write) error {
			if n++; n%2 == 1 {
				return errInjected
			}
			return nil
		})
		b.create("p", "")
		for range 3 {
			b.command("p", projection.Reset)
			b.command("p", projection.Disable)
			b.command("p", projection.Enable)
		}
		b.store.AfterWrite.Set(nil)
		_, d := b.definition("p")
		b.is("definitions", row(len(b.store.All("$projections-p")), d["version"], d["epoch"]), "10 9 7")
		b.store.BeforeWrite.Set(func(context.Context, *event.Write) error { return event.ErrDiskFull })
		b.is("refused by the store", b.Command(b.ctx, "p", projection.Disable, admin), event.ErrDiskFull)
		b.expect("p", "Running")
		b.store.BeforeWrite.Set(nil)
		// An event of another client comes in between.
		b.store.Append("$projections-p", "x", "", "")
		b.command("p", projection.Reset)
		_, d = b.definition("p")
		b.is("definition", row(d["version"], d["epoch"]), "11 11")
		b.store.Append("$projections-p", "x", "", "")
		b.lead()
		b.expect("p", "Running")
		b.is("version", b.runOf("p").o.Version, "6:11:11:4")
	})
}

func TestExpiry(t *testing.T) {
	test(t, func(b *bench) {
		b.create("t", "", transient)
		b.create("u", "", transient)
		b.create("p", "")
		for range 6 {
			time.Sleep(time.Minute)
			b.state("u")
			synctest.Wait()
			// Asking for statistics does not count as access.
			if _, err := b.Statistics("t"); err != nil {
				break
			}
		}
		_, err := b.Statistics("t")
		b.is("unused", err, projection.ErrNotFound)
		b.expect("u", "Running")
		b.expect("p", "Running")
		b.must(b.Restart(b.ctx))
		synctest.Wait()
		_, err = b.Statistics("u")
		b.is("after a restart", err, projection.ErrNotFound)
		b.expect("p", "Running")
	})
}

func TestRestart(t *testing.T) {
	test(t, func(b *bench) {
		b.create("p", "hangs")
		b.feed("p", 2)
		b.create("q", "", enabledNo)
		b.must(b.Restart(b.ctx))
		synctest.Wait()
		b.is("running", b.Running(), true)
		b.is("no checkpoint", b.state("p"), " at C:0/P:0")
		b.expect("q", "Stopped")
		b.store.BeforeRead.Set(func(context.Context, event.StreamRead) error { return event.ErrNotReady })
		b.must(b.Restart(b.ctx))
		b.is("running", b.Running(), false)
		var bad *projection.BadInput
		b.is("again", errors.As(b.Restart(b.ctx), &bad), true)
		_, err := b.List(projection.AllKinds)
		b.is("not ready", err, event.ErrNotReady)
		b.store.BeforeRead.Set(nil)
		time.Sleep(10 * time.Second)
		b.expect("p", "Running")
		b.Stop()
		b.is("stopped", errors.As(b.Restart(b.ctx), &bad), true)
		b.Start(b.ctx)
		synctest.Wait()
		b.expect("p", "Running")
	})
}

func TestLists(t *testing.T) {
	test(t, func(b *bench) {
		b.create("t", "", transient)
		b.create("o", "", func(c *projection.Creation) { c.Mode = projection.OneTime })
		b.create("c", "")
		for kinds, want := range map[projection.Kinds][]string{
			projection.NonTransient:      {"o", "c"},
			projection.Transient.Only():  {"t"},
			projection.OneTime.Only():    {"o"},
			projection.Continuous.Only(): {"c"},
			projection.AllKinds:          {"t", "o", "c"},
		} {
			list, err := b.List(kinds)
			b.must(err)
			var names []string
			for _, s := range list {
				if s.Name[0] != '$' {
					names = append(names, s.Name)
				}
			}
			b.is(string(kinds), slices.Clone(names), want)
		}
	})
}

// TestUnreadable has a definition that makes no sense: it can be seen, and goes.
func TestUnreadable(t *testing.T) {
	test(t, func(b *bench) {
		b.create("p", "")
		b.store.Append("$projections-p", "$ProjectionUpdated", `{"mode":1}`, "")
		b.lead()
		b.expect("p", "Faulted")
		b.must(b.Delete(b.ctx, "p", projection.DeleteOptions{}, admin))
		_, err := b.Statistics("p")
		b.is("deleted", err, projection.ErrNotFound)
	})
}
