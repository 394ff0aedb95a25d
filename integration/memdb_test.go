package integration_test

import (
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/annalsdb/annals/internal/check"
	"github.com/annalsdb/annals/internal/testkit"
)

// TestBasics runs the same story against every way of keeping data.
func TestBasics(t *testing.T) {
	for _, c := range []struct {
		name    string
		options []string
	}{
		{"BoltDB", []string{"--raft-log-store", "BoltDB"}},
		{"Wal", []string{"--raft-log-store", "Wal"}},
		{"index elsewhere", []string{"--index", "apart"}},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			dir := filepath.Join(t.TempDir(), "made", "by", "the", "node")
			node := testkit.StartNode(t, dir, c.options...)
			basics(t, node)
			node.Stop()
		})
	}
}

// TestMemDb: a database in memory does the same and leaves no files.
func TestMemDb(t *testing.T) {
	t.Parallel()
	work := t.TempDir()
	dir := filepath.Join(work, "data")
	node := testkit.Launch(t, testkit.Command{Args: []string{"node", "--mem-db", "--db", dir, "--node-port", "0", "--max-mem-table-size", "100"}, Dir: work})
	node.AwaitServing()
	fill(t, node, 60, 10).checkNode(t, node)
	basics(t, node)
	empty := func(when string) {
		left := check.Value(os.ReadDir(work)).Must(t)
		for _, entry := range left {
			t.Errorf("%s there is %s", when, entry.Name())
		}
	}
	empty("while it runs")
	node.Stop()
	empty("after its end")
}

// basics is what every client does first: append, repeat, conflict, read, wait, describe, delete.
func basics(t *testing.T, node *testkit.Process) {
	t.Helper()
	ctx := t.Context()
	events := mustAppend(t, node, "basics", -1, 3)
	expect := func(what string, r testkit.Request, status int) testkit.Response {
		t.Helper()
		return must(t, node, r, status)
	}
	again, err := node.Append(ctx, "basics", -1, false, events...)
	if err != nil || again.Status != http.StatusCreated {
		t.Fatalf("the same append again: %s, %v", again, err)
	}
	if number, err := again.FirstNumber("basics"); err != nil || number != 0 {
		t.Errorf("the same append again: number %d, %v", number, err)
	}
	conflict := expect("conflict", testkit.Request{
		Path: "/streams/basics", Body: []byte(`{"a":1}`),
		Header: map[string]string{
			"Content-Type": testkit.MediaJSON, testkit.HeaderEventType: "T", testkit.HeaderExpectedVersion: "0",
			testkit.HeaderEventID: "0d5a2f50-6d43-4f8c-a4d9-5a7a2f0c9a11",
		},
	}, http.StatusBadRequest)
	check.Equal(t, conflict.Header.Get(testkit.HeaderCurrentVersion), "2", "current version")
	entries, err := node.ReadStream(ctx, "basics", 0)
	if err != nil || len(entries) != 3 || entries[2].ID != events[2].ID || entries[2].Data != string(events[2].Data) {
		t.Fatalf("read back: %+v, %v", entries, err)
	}
	one := expect("one event", testkit.Request{Path: "/streams/basics/1", Header: map[string]string{"Accept": testkit.MediaJSON}}, http.StatusOK)
	check.Equal(t, string(one.Body), string(events[1].Data), "one event")
	expect("all events without a login", testkit.Request{Path: "/streams/%24all"}, http.StatusUnauthorized)
	m := newMirror()
	if err := m.advance(ctx, node.Client); err != nil || m.places[events[0].ID] != (place{"basics", 0}) {
		t.Errorf("all events: %v, %v", m.places[events[0].ID], err)
	}

	poll := startLongPollAt(t, node, "basics", 3, 30)
	next := mustAppend(t, node, "basics", 2, 1)
	if a := poll.answer(t, settleLimit); a.err != nil || !strings.Contains(a.feed, next[0].ID) {
		t.Errorf("long poll: %d %v %.200s", a.status, a.err, a.feed)
	}

	expect("metadata", testkit.Request{
		Path: "/streams/basics/metadata", Body: []byte(`{"$maxCount":2}`),
		Header: map[string]string{"Content-Type": testkit.MediaJSON, testkit.HeaderEventID: "0d5a2f50-6d43-4f8c-a4d9-5a7a2f0c9a12"},
	}, http.StatusCreated)
	if entries, err = node.ReadStream(ctx, "basics", 0); err != nil || len(entries) != 2 {
		t.Errorf("with $maxCount 2 there are %d, %v", len(entries), err)
	}
	remove := testkit.Request{Method: http.MethodDelete, Path: "/streams/basics"}
	expect("delete", remove, http.StatusNoContent)
	expect("read what is deleted", testkit.Request{Path: "/streams/basics"}, http.StatusNotFound)
	remove.Header = map[string]string{testkit.HeaderHardDelete: "true"}
	expect("delete for ever", remove, http.StatusNoContent)
	expect("read what is gone", testkit.Request{Path: "/streams/basics"}, http.StatusGone)
}
