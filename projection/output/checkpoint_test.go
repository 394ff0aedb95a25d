package output_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"

	"github.com/annalsdb/annals/event"
	"github.com/annalsdb/annals/internal/check"
	"github.com/annalsdb/annals/internal/testkit/memdb"
	"github.com/annalsdb/annals/projection/handler"
	"github.com/annalsdb/annals/projection/output"
	"github.com/annalsdb/annals/projection/position"
)

func checkpoints(s *memdb.DB, v position.Version) *output.Checkpoints {
	return output.NewCheckpoints(output.CheckpointOptions{Store: s, Name: "p", Version: v})
}

func load(t testing.TB, c *output.Checkpoints) output.Checkpoint {
	t.Helper()
	p := check.Value(c.Load(t.Context())).Must(t)
	return p
}

func partition(t testing.TB, c *output.Checkpoints, name string) string {
	t.Helper()
	p, found, err := c.LoadPartition(t.Context(), name)
	check.Must(t, err)
	if !found && (p.State != nil || p.Result != nil) {
		t.Errorf("%s is not found, and has %s, %s", name, p.State, p.Result)
	}
	return string(p.State) + "/" + string(p.Result)
}

func save(t testing.TB, c *output.Checkpoints, n int64, root string, states ...string) {
	t.Helper()
	check.Must(t, trySave(c, n, root, states...))
}

func trySave(c *output.Checkpoints, n int64, root string, states ...string) error {
	var changed []output.PartitionState
	for i := 0; i < len(states); i += 2 {
		changed = append(changed, output.PartitionState{Partition: states[i], State: []byte(states[i+1])})
	}
	p := output.Checkpoint{At: at(n)}
	if root != "" {
		p.State = []byte(root)
	}
	return c.Save(context.Background(), changed, p)
}

func TestCheckpointStreams(t *testing.T) {
	s := memdb.Open(t, memdb.Options{})
	c := checkpoints(s, ours)
	if p := load(t, c); p.Found {
		t.Errorf("found %+v", p)
	}
	save(t, c, 1, `{"n":1}`)
	save(t, c, 2, "", "a", "1", "b", "2")
	save(t, c, 3, "", "a", "3")
	const metadata = `{"$maxCount":2,"$acl":{"$r":"$admins","$w":"$admins","$d":"$admins","$mr":"$all","$mw":"$admins"}}`
	for _, stream := range []string{"$projections-p-checkpoint", "$projections-p-a-checkpoint"} {
		same(t, stream, s.Metadata(stream), metadata)
	}
	same(t, "root", s.Lines("$projections-p-checkpoint"), []string{"1 $ProjectionCheckpoint []", "2 $ProjectionCheckpoint []"})
	same(t, "a", s.Lines("$projections-p-a-checkpoint"), []string{"0 $Checkpoint [1]", "1 $Checkpoint [3]"})
	same(t, "position", string(s.Seen("$projections-p-a-checkpoint")[0].Metadata), metadataAt(2))
	c = checkpoints(s, ours)
	if p := load(t, c); !p.Found || p.At.Commit != 3 || p.State != nil || p.Version != ours {
		t.Errorf("found %+v", p)
	}
	same(t, "partitions", []string{partition(t, c, "a"), partition(t, c, "b"), partition(t, c, "c")}, []string{"3/", "2/", "/"})

	// After a reset, or of another projection of the name, there are none.
	for _, v := range []position.Version{{Projection: 7, Epoch: 5, Version: 5}, {Projection: 8, Epoch: -1, Version: 9}} {
		c := checkpoints(s, v)
		if p := load(t, c); p.Found || partition(t, c, "a") != "/" {
			t.Errorf("%v found %+v", v, p)
		}
	}
	c = checkpoints(s, position.Version{Projection: 7, Epoch: 5, Version: 5})
	load(t, c)
	save(t, c, 0, "", "b", "9")
	same(t, "after a reset", []string{partition(t, c, "a"), partition(t, c, "b")}, []string{"/", "9/"})
}

func TestCheckpointBodies(t *testing.T) {
	text := func(s string) []byte {
		if s == "" {
			return nil
		}
		return []byte(s)
	}
	cases := []struct {
		biState               bool
		state, result, shared string
		body                  string
	}{
		{false, "", "", "", `[]`},
		{false, `{"a":[1]}`, "", "", `[{"a":[1]}]`},
		{false, `1`, `2`, "", `[1,2]`},
		{false, "", `2`, "", `[null,2]`},
		{false, `not "JSON"`, `]}`, "", `[{"$raw":["not \"JSON\""]},{"$raw":["]}"]}]`},
		{true, "", "", `{"s":1}`, `[{"s":1}]`},
		{true, `1`, `2`, `3`, `[1,2,3]`},
		{true, `1`, "", `3`, `[1,null,3]`},
	}
	for _, c := range cases {
		s := memdb.Open(t, memdb.Options{})
		o := output.CheckpointOptions{Store: s, Name: "p", Version: ours, BiState: c.biState}
		all := output.NewCheckpoints(o)
		load(t, all)
		want := output.Checkpoint{State: text(c.state), Result: text(c.result), Shared: text(c.shared), At: at(1), Version: ours, Found: true}
		check.Must(t, all.Save(t.Context(), nil, want))
		same(t, "body", string(s.Seen("$projections-p-checkpoint")[0].Data), c.body)
		same(t, c.body, load(t, output.NewCheckpoints(o)), want)
	}
}

// States of partitions that are ahead of the root's checkpoint are passed over,
// however often the root could not be written.
func TestPartitionsAhead(t *testing.T) {
	s := memdb.Open(t, memdb.Options{})
	c := checkpoints(s, ours)
	load(t, c)
	save(t, c, 1, "", "a", "1", "b", "1")
	for i := range 4 {
		s.SetFault(func(_ int64, w *event.Write) (before, after error) {
			if w.Stream == "$projections-p-checkpoint" {
				return event.ErrClosed, nil
			}
			return nil, nil
		})
		check.MustBe(t, trySave(c, int64(2+i), "", "a", fmt.Sprint(2+i), "new", "2"), event.ErrClosed)
		s.SetFault(nil)
		c = checkpoints(s, ours)
		load(t, c)
		same(t, "partitions", []string{partition(t, c, "a"), partition(t, c, "b"), partition(t, c, "new")}, []string{"1/", "1/", "/"})
	}
	save(t, c, 9, "", "a", "9", "new", "3")
	same(t, "at last", []string{partition(t, c, "a"), partition(t, c, "b"), partition(t, c, "new")}, []string{"9/", "1/", "3/"})
	save(t, c, 10, "", "a", "10")
	same(t, "a", s.Lines("$projections-p-a-checkpoint")[1], "10 $Checkpoint [10]")
}

func TestForeignCheckpoint(t *testing.T) {
	s := memdb.Open(t, memdb.Options{})
	c := checkpoints(s, ours)
	load(t, c)
	save(t, c, 1, "1")
	s.Append("$projections-p-checkpoint", "X", "", "")
	err := trySave(c, 2, "2")
	var fault *handler.Fault
	if !errors.As(err, &fault) || fault.Message != "Checkpoint stream `$projections-p-checkpoint` has been written to from the outside" {
		t.Error(err)
	}
	c = checkpoints(s, ours)
	if p := load(t, c); string(p.State) != "1" {
		t.Errorf("loaded %+v", p)
	}
	// A checkpoint of a run before, which arrives late.
	s.Append("$projections-p-checkpoint", "$ProjectionCheckpoint", "[5]", metadataAt(5))
	check.Is(t, trySave(c, 2, "2"), output.ErrRestart)
	c = checkpoints(s, ours)
	load(t, c)
	save(t, c, 6, "6")
	// One whose body was made unreadable.
	s.Append("$projections-p-checkpoint", "$ProjectionCheckpoint", "\xff\xff", metadataAt(7))
	if _, err := checkpoints(s, ours).Load(t.Context()); !errors.As(err, &fault) {
		t.Error(err)
	}
}

func TestDelete(t *testing.T) {
	s := memdb.Open(t, memdb.Options{})
	o := options(s)
	o.Track = true
	r := start(t, o)
	for i := range 600 {
		r.emit(1, fmt.Sprintf("s%d T 1", i))
	}
	r.Result(at(2), nil, "a", []byte("1"), true)
	r.emit(2, "$projections-p-order T 1", "other T 1").flush()
	c := checkpoints(s, ours)
	load(t, c)
	save(t, c, 3, "1", "a", "1", "b", "2", "x", "3")
	// The root's checkpoint of a projection "p-x" has the name of that of our partition "x".
	s.Append("$projections-p-x-checkpoint", "$ProjectionCheckpoint", "[]", `{"$v":"9:-1:0:4","$c":1,"$p":1}`)
	s.Append("foreign", "T", "", "")
	d := output.Deletion{Store: s, Streams: output.Streams{Projection: "p", Named: "foreign"}, Version: ours, Results: true}
	remove := func() {
		t.Helper()
		check.Must(t, output.DeleteStreams(t.Context(), d))
	}
	there := func() (all []string) {
		for stream, events := range s.Dump() {
			if len(events) > 0 && !strings.HasPrefix(stream, "s") {
				all = append(all, stream)
			}
		}
		return all
	}
	remove()
	if len(s.Lines("foreign")) != 1 || len(s.Lines("$projections-p-a-result")) != 0 {
		t.Error("deleted a result stream that is not ours, or not one that is")
	}
	d.Streams.Named = ""
	remove()

	// It breaks off in the middle of the streams emitted to, and is called again.
	d.Emitted, d.Checkpoints = true, true
	n := 0
	s.SetFault(func(_ int64, w *event.Write) (before, after error) {
		if n++; n > 400 {
			return event.ErrClosed, nil
		}
		return nil, nil
	})
	check.MustBe(t, output.DeleteStreams(t.Context(), d), event.ErrClosed)
	same(t, "progress", s.Lines("$projections-p-emittedstreams-checkpoint"), []string{"0 $Checkpoint 256"})
	s.SetFault(nil)
	remove()
	for i := range 600 {
		if s.Lines(fmt.Sprint("s", i)) != nil {
			t.Errorf("s%d is there", i)
		}
	}
	same(t, "there", fmt.Sprint(len(there())), "2")
	same(t, "of another projection", len(s.Lines("$projections-p-x-checkpoint")), 2)
	remove()
}
