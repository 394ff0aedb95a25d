package integration_test

import (
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/annalsdb/annals/internal/check"
	"github.com/annalsdb/annals/internal/testkit"
)

// The release before this version, and the commit that it was built of where the tag is missing.
const (
	releaseBefore = "v0.9.0"
	commitBefore  = "5ab1ab95e4ca9eab602e60c89705fd69eab8a9a2"
)

// binaryBefore builds the release before this version out of the history. A checkout that lacks
// what this takes skips the test.
func binaryBefore(t *testing.T) (path string) {
	t.Helper()
	testkit.NeedTool(t, "git")
	dir, root := t.TempDir(), check.Value(testkit.Root()).Must(t)
	source := filepath.Join(dir, "source")
	check.Must(t, os.Mkdir(source, 0o755))
	run := func(in, name string, args ...string) error {
		command := exec.CommandContext(t.Context(), name, args...)
		command.Dir, command.Env = in, append(os.Environ(), "CGO_ENABLED=0")
		out, err := command.CombinedOutput()
		if err != nil {
			err = fmt.Errorf("%s %s: %w\n%s", name, strings.Join(args, " "), err, out)
		}
		return err
	}
	commit := releaseBefore
	if run(root, "git", "cat-file", "-e", commit+"^{commit}") != nil {
		commit = commitBefore
	}
	if err := run(root, "git", "cat-file", "-e", commit+"^{commit}"); err != nil {
		t.Skipf("the history here does not reach back to %s; git fetch --unshallow fetches it: %v", releaseBefore, err)
	}
	archive := filepath.Join(dir, "source.tar")
	check.Must(t, run(root, "git", "archive", "--output", archive, commit))
	check.Must(t, run(source, "tar", "-xf", archive))
	if err := run(source, testkit.Go(), "list", "-deps", "./cmd/annals"); err != nil {
		t.Skipf("a dependency of %s is not in the module cache, and cannot be fetched: %v", releaseBefore, err)
	}
	path = filepath.Join(dir, "annals")
	check.Must(t, run(source, testkit.Go(), "build", "-trimpath", "-ldflags", "-X main.version="+releaseBefore, "-o", path, "./cmd/annals"))
	return path
}

// followed is the stream that the group and the projections read.
const followed = "in-1"

// twoVersions is a cluster under load whose nodes change their version.
type twoVersions struct {
	*cluster
	before   string // binary of the release before
	load     *load
	group    *group
	counter  *query
	in       int64         // events of the stream followed
	handed   map[int64]int // how often the group handed out each of them
	many     int           // writes to several streams
	priority int
}

// TestLongClusterVersions changes the nodes of a cluster from the release before to this version,
// back, and again to this version, one after the other and under load. In between both versions
// lead, and this one writes to several streams.
func TestLongClusterVersions(t *testing.T) {
	before := binaryBefore(t)
	c := newCluster(t, clusterOptions{options: slices.Concat(patientWrites, withProjections, []string{"--start-standard-projections"})})
	v := &twoVersions{cluster: c, before: before, handed: map[int64]int{}}
	c.members[0].options = []string{"--follower-writes", "Forward"}
	for _, m := range c.members {
		m.binary = before
		m.start()
	}
	leader, _ := c.settled()
	v.load = c.startLoad(seed(t), 8, loadPatience)
	v.append(leader)
	testkit.Eventually(t, settleLimit, func() error { _, _, err := listGroups(t.Context(), leader.Client); return err })
	v.group = newGroup(t, leader.Client, followed, "g", prompt(nil))
	v.counter = &query{t: t, name: "count", do: c.atLeader}
	v.counter.create(`fromStream('`+followed+`').when({$init: function() { return {n: 0}; }, $any: function(s) { s.n++; return s; }})`, "&enabled=yes")
	v.park()
	v.works("all nodes are "+releaseBefore, leader)

	v.change(c.members[0], "")
	v.leads(c.members[0])
	v.writeToMany(c.members[0])
	v.leads(c.members[1])
	v.refusesMany()
	v.change(c.members[1], "")
	v.change(c.members[2], "")
	v.writeToMany(c.members[0])
	v.indexed()

	v.change(c.members[2], before)
	v.leads(c.members[2])
	v.refusesMany()
	v.leads(c.members[1])
	v.writeToMany(c.members[1])
	v.change(c.members[1], before)
	v.change(c.members[0], before)

	for _, m := range c.members {
		v.change(m, "")
	}
	v.writeToMany(c.members[0])
	v.works("all nodes are of this version again", c.members[0])

	v.load.finish(t)
	t.Logf("answers: %s", v.load.told())
	all := c.identical()
	check.Must(t, v.load.ledger.check(all))
	v.indexed()
	v.linked(all)
	v.unpark()
	c.finish()
}

// change restarts a node with another binary; the one that it ran finds nothing wrong with its
// files, and neither does the other one.
func (v *twoVersions) change(m *member, binary string) {
	v.t.Helper()
	begun := time.Now()
	m.stop()
	for _, path := range []string{v.before, ""} {
		if p, code := testkit.Run(v.t, testkit.Command{Path: path, Args: []string{"verify", "--db", m.db()}, Quiet: true}); code != 0 {
			v.t.Fatalf("%s verify --db %s: exit code %d\n%s", path, m.db(), code, p.Output())
		}
	}
	m.binary = binary
	m.start()
	v.settled()
	v.works(fmt.Sprintf("%s has changed", m), m)
	version := "this version"
	if binary != "" {
		version = releaseBefore
	}
	v.t.Logf("%s works as %s after %s", m, version, time.Since(begun).Round(time.Millisecond))
}

// leads has a node lead.
func (v *twoVersions) leads(m *member) {
	v.t.Helper()
	v.priority++
	v.lead(m, v.priority)
	v.works(fmt.Sprintf("%s leads", m), m)
}

// append writes ten events to the stream that the group and the projection read.
func (v *twoVersions) append(through *member) {
	v.t.Helper()
	one := &write{stream: followed, expected: -2, events: v.small(10)}
	v.load.ledger.begin(one)
	through.append(followed, one.events...)
	v.load.ledger.ack(one, v.in)
	v.in += 10
}

// works demands that the writers get on, and that all nodes, the group and the projection have each
// event once.
func (v *twoVersions) works(when string, through *member) {
	t := v.t
	t.Helper()
	v.load.more(t, 50)
	v.append(through)
	for _, m := range v.members {
		testkit.Eventually(t, settleLimit, func() error {
			all, err := m.ReadStream(t.Context(), followed, 0)
			if err == nil && int64(len(all)) != v.in {
				err = fmt.Errorf("%s: %s has %d events of %d", when, m, len(all), v.in)
			}
			return err
		})
	}
	leader, _ := v.settled()
	v.group.node = leader.Client
	testkit.Eventually(t, settleLimit, func() error { _, _, err := listGroups(t.Context(), leader.Client); return err })
	testkit.Eventually(t, settleLimit, func() error {
		if got := v.group.take(100); len(got.all) > 0 {
			for _, one := range got.all {
				v.handed[one.Number]++
			}
			v.group.ack(got.ids()...)
		}
		if int64(len(v.handed)) < v.in {
			return fmt.Errorf("%s: the group handed out %d events of %d", when, len(v.handed), v.in)
		}
		return nil
	})
	v.group.awaitCheckpoint(v.in - 1)
	for n := range v.in {
		if v.handed[n] != 1 {
			t.Errorf("%s: the group handed out event %d %d times", when, n, v.handed[n])
		}
	}
	v.counter.awaitState(fmt.Sprintf(`{"n":%d}`, v.in))
}

// park parks the first event of the stream, and unpark has it handed out again.
func (v *twoVersions) park() {
	v.t.Helper()
	var first messages
	testkit.Eventually(v.t, settleLimit, func() error {
		if first = v.group.take(1); len(first.all) == 0 {
			return errors.New("the group has nothing")
		}
		return nil
	})
	v.handed[first.all[0].Number]++
	v.group.park(first.ids()...)
	v.group.await("1 parked", func(i *groupInfo) bool { return i.Parked == 1 })
}

func (v *twoVersions) unpark() {
	v.t.Helper()
	if parked := v.group.parked(); len(parked) != 1 || parked[0].Number != 0 {
		v.t.Errorf("parked are %v", parked)
	}
	v.group.must(http.MethodPost, nil, "replayParked")
	testkit.Eventually(v.t, settleLimit, func() error {
		if again := v.group.take(10); len(again.all) != 1 || again.all[0].Number != 0 {
			return fmt.Errorf("handed out again are %v", again.all)
		}
		return nil
	})
}

// writeTo sends a write to several streams, and returns it as one write to each of them.
func (v *twoVersions) writeTo(m *member) (parts []*write, answer testkit.Response) {
	v.t.Helper()
	v.many++
	var events []map[string]any
	for _, stream := range []string{"moved-from", followed, fmt.Sprintf("moved-to-%d", v.many)} {
		one := &write{stream: stream, expected: -2, events: v.small(1)}
		v.load.ledger.begin(one)
		parts = append(parts, one)
		e := one.events[0]
		events = append(events, map[string]any{"stream": stream, "eventId": e.ID, "eventType": e.Type, "data": json.RawMessage(e.Data)})
	}
	body := check.Value(json.Marshal(map[string]any{"events": events})).Must(v.t)
	answer = check.Value(m.Do(v.t.Context(), testkit.Request{Method: http.MethodPost, Path: "/streams", Body: body, Header: map[string]string{"Content-Type": testkit.MediaJSON}})).Must(v.t)
	return parts, answer
}

// writeToMany writes to several streams through a node of this version, when one leads.
func (v *twoVersions) writeToMany(m *member) {
	v.t.Helper()
	v.lead(m, v.priority)
	parts, answer := v.writeTo(m)
	var done struct {
		Streams []struct{ First int64 }
	}
	if answer.Status != http.StatusCreated || json.Unmarshal(answer.Body, &done) != nil || len(done.Streams) != len(parts) {
		v.t.Fatalf("a write to several streams: %s %s", answer, answer.Body)
	}
	for i, part := range parts {
		v.load.ledger.ack(part, done.Streams[i].First)
	}
	v.in++
	v.works("several streams were written", m)
}

// refusesMany: while the release before leads, a write to several streams is refused, by the leader
// and by the node of this version that forwards it there.
func (v *twoVersions) refusesMany() {
	v.t.Helper()
	for through, want := range map[*member]int{v.members[0]: http.StatusServiceUnavailable, v.leader(): http.StatusNotFound} {
		parts, answer := v.writeTo(through)
		if answer.Status != want || strings.Contains(answer.Reason, "earlier version") != (want == http.StatusServiceUnavailable) {
			v.t.Errorf("a write to several streams while %s leads, through %s: %s, want %d", releaseBefore, through, answer, want)
		}
		for _, part := range parts {
			v.load.ledger.refuse(part)
		}
	}
}

// indexed demands of each node that its index of categories has all events.
func (v *twoVersions) indexed() {
	v.t.Helper()
	for _, m := range v.members {
		testkit.Eventually(v.t, settleLimit, func() error {
			answer, err := m.ask(testkit.Request{Path: "/streams/$idx-ce-in/head/backward/1", Admin: true, Header: map[string]string{"Accept": testkit.MediaJSON}})
			if err == nil && answer.Status != http.StatusOK {
				err = fmt.Errorf("index of %s: %s", m, answer)
			}
			return err
		})
		all, err := m.ReadStream(v.t.Context(), "$idx-ce-in", 0)
		check.Must(v.t, err)
		for i, e := range all {
			if e.Stream != followed || e.Number != int64(i) {
				v.t.Fatalf("%s: entry %d of the index is %d@%s", m, i, e.Number, e.Stream)
			}
		}
		check.MustEqual(v.t, int64(len(all)), v.in, m, "index of the category")
	}
}

// linked demands that the projection of categories linked each event once and in order.
func (v *twoVersions) linked(all *mirror) {
	v.t.Helper()
	leader, _ := v.settled()
	var links []testkit.Entry
	testkit.Eventually(v.t, settleLimit, func() error {
		if links = rawEvents(v.t, leader.Client, "$ce-in"); int64(len(links)) < v.in {
			return fmt.Errorf("$ce-in has %d links of %d", len(links), v.in)
		}
		return nil
	})
	for i, l := range links {
		check.MustEqual(v.t, l.Data, fmt.Sprintf("%d@%s", i, followed), "link", i)
	}
	want := 0
	for stream, ids := range all.streams {
		if strings.HasPrefix(stream, "load-") {
			want += len(ids)
		}
	}
	testkit.Eventually(v.t, settleLimit, func() error {
		links = rawEvents(v.t, leader.Client, "$ce-load")
		if len(links) < want {
			return fmt.Errorf("$ce-load has %d links of %d", len(links), want)
		}
		return nil
	})
	next := map[string]int{}
	for _, l := range links {
		number, stream, _ := strings.Cut(l.Data, "@")
		check.MustEqual(v.t, number, fmt.Sprint(next[stream]), "link to", stream)
		next[stream]++
	}
	check.Equal(v.t, len(links), want, "links to the events of the load")
}
