package redact_test

import (
	"bytes"
	"context"
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/hashicorp/go-hclog"

	"github.com/annalsdb/annals/admin/chunklock"
	"github.com/annalsdb/annals/admin/redact"
	"github.com/annalsdb/annals/event"
	"github.com/annalsdb/annals/event/label"
	"github.com/annalsdb/annals/internal/check"
	"github.com/annalsdb/annals/internal/testkit/powercut"
	"github.com/annalsdb/annals/internal/vfs"
	eventlog "github.com/annalsdb/annals/log"
	"github.com/annalsdb/annals/log/chunkfile"
	"github.com/annalsdb/annals/log/index"
)

const dir = "/db"

var cluster = event.ID{7}

// node is what a node has: a log, a ledger and a service, and a database that takes records.
type node struct {
	t       testing.TB
	fs      vfs.FS
	log     *eventlog.Log
	lock    chunklock.Lock
	service *redact.Service
	ledger  *redact.Ledger
	logged  bytes.Buffer

	mu        sync.Mutex
	written   []*event.Write
	erased    []int64
	ended     int // how often backups were ended
	forgotten int // how often what is in memory was dropped
	failing   error
	noLeader  error                       // why the database takes nothing
	apply     func(*node, event.Proposed) // what becomes of a record; nil: nothing
	metadata  string                      // of the events of private
}

func open(t testing.TB, fsys vfs.FS) (*node, error) {
	n := &node{t: t, fs: fsys}
	ledger, err := redact.OpenLedger(fsys, dir)
	if err != nil {
		return nil, err
	}
	n.ledger = ledger
	n.log, err = eventlog.Open(eventlog.Options{
		Dir: dir, FS: fsys, ClusterID: cluster, SkipVerify: true, Index: index.Options{ExistenceFilterMax: 4096}, Redacted: ledger.Between,
	})
	if err != nil {
		return nil, err
	}
	n.service = redact.New(redact.Options{
		Log: func() (*eventlog.Log, error) { return n.log, nil }, FS: fsys, Dir: dir, Ledger: ledger, Lock: &n.lock,
		EndBackups: func() func() { n.ended++; return func() {} },
		Forget:     func() { n.forgotten++ },
		Erase: func(_ context.Context, position int64) error {
			n.mu.Lock()
			defer n.mu.Unlock()
			n.erased = append(n.erased, position)
			return n.failing
		},
		Records:  database{n},
		Endpoint: func() string { return "127.0.0.1:2113" },
		Now:      func() time.Time { return time.Unix(1, 0) },
		Logger:   hclog.New(&hclog.LoggerOptions{Output: &n.logged}),
	})
	return n, n.service.Resume()
}

// database keeps what is written, and says that it has nothing.
type database struct{ *node }

func (d database) WriteOwn(_ context.Context, w *event.Write) (event.Written, error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.noLeader != nil {
		return event.Written{}, d.noLeader
	}
	d.written = append(d.written, w)
	if d.apply != nil && w.Stream == redact.Stream {
		d.apply(d.node, w.Events[0])
	}
	return event.Written{}, nil
}

func (database) StreamInfo(context.Context, string) (event.StreamInfo, error) {
	return event.StreamInfo{Last: event.NoStream, MetaLast: event.NoStream}, nil
}

func (database) ReadEvent(context.Context, string, int64, event.LinkReader) (event.Resolved, error) {
	return event.Resolved{}, event.ErrStreamNotFound
}

func mustOpen(t testing.TB, fsys vfs.FS) *node {
	t.Helper()
	n := check.Value(open(t, fsys)).Must(t)
	t.Cleanup(n.close)
	return n
}

func (n *node) close() {
	n.service.Close()
	if err := n.log.Close(); err != nil && n.log.Failed() == nil {
		n.t.Error(err)
	}
}

// write appends a frame of events, all with the same data.
func (n *node) write(completes bool, typ, data string, streams ...string) {
	n.t.Helper()
	tail := n.log.Appended()
	events := make([]event.Proposed, len(streams))
	for i := range streams {
		e := &events[i]
		binary.LittleEndian.PutUint64(e.ID[:], tail.Index+1)
		e.ID[15] = byte(i + 1)
		e.Type, e.Data, e.Metadata = typ, []byte(data), []byte("kept")
		if streams[i] == "private" && n.metadata != "" {
			e.Metadata = []byte(n.metadata)
		}
	}
	n.writeEvents(completes, events, streams...)
}

func (n *node) writeEvents(completes bool, events []event.Proposed, streams ...string) {
	n.t.Helper()
	tail, size := n.log.Appended(), 0
	for i := range streams {
		size += chunkfile.RecordSize(streams[i], &events[i])
	}
	f := eventlog.Frame{First: chunkfile.Place(tail.End, size), Completes: completes, Index: tail.Index + 1, Term: 1}
	for i, s := range streams {
		info, err := n.log.Reads.StreamInfo(s)
		if err != nil && !errors.Is(err, event.ErrStreamNotFound) {
			n.t.Fatal(err)
		}
		number := info.Last + 1
		f.Records = chunkfile.AppendRecord(f.Records, f.First+int64(len(f.Records)), s, number, 1, 0, &events[i])
	}
	check.Must(n.t, errors.Join(n.log.Append(f), n.log.Commit()))
}

const secret = "4000 0012 3456 7899"

// fill writes two complete chunks and one that grows.
func (n *node) fill() {
	for i := range 2 {
		n.write(false, "t", secret, "private")
		n.write(false, "t", "plain", "open", "other")
		n.write(i < 2, "t", secret, "private", "open")
	}
	n.write(false, "t", secret, "private")
	n.write(false, event.TypeMetadata, "{}", "$$private")
	n.write(true, event.TypeLink, "0@private", "links")
	n.write(false, "t", secret, "active")
	check.Must(n.t, n.log.Sync())
}

func events(texts ...string) (all []redact.Event) {
	for _, text := range texts {
		e, err := redact.ParseEvent(text)
		if err != nil {
			panic(err)
		}
		all = append(all, e)
	}
	return all
}

// holding are the files with a text.
func holding(t testing.TB, fsys vfs.FS, folder, text string) (files []string) {
	t.Helper()
	names := check.Value(fsys.List(folder)).Must(t)
	for _, name := range names {
		path := filepath.Join(folder, name)
		info, err := fsys.Stat(path)
		if errors.Is(err, fs.ErrNotExist) {
			continue // The node, which is open, has removed it meanwhile.
		}
		check.Must(t, err)
		if info.IsDir() {
			files = append(files, holding(t, fsys, path, text)...)
			continue
		}
		b, err := vfs.ReadFile(fsys, path)
		if err != nil && !errors.Is(err, fs.ErrNotExist) {
			t.Fatal(err)
		}
		if bytes.Contains(b, []byte(text)) {
			files = append(files, path)
		}
	}
	return files
}

// content is all that the log holds, by position.
func (n *node) content() map[int64]string {
	n.t.Helper()
	all := map[int64]string{}
	err := n.log.Chunks.Scan(n.t.Context(), 0, n.log.Tail().End, func(r *eventlog.Stored) error {
		if string(r.Stream) == redact.Stream {
			return nil
		}
		all[r.Position] = fmt.Sprintf("%d@%s %s %s %x %q %q %d", r.Number, r.Stream, r.ID, r.Type, r.Flags, r.Data, r.Metadata, r.Time)
		return nil
	})
	check.Must(n.t, err)
	return all
}

func TestRedact(t *testing.T) {
	fsys := vfs.NewMem()
	n := mustOpen(t, fsys)
	n.fill()
	before, tail := n.content(), n.log.Tail()
	all := []string{"0@private", "1@private", "2@private", "3@private", "4@private", "1@open", "3@open"}
	dry, err := n.service.Redact(t.Context(), redact.Request{Events: events(all...), DryRun: true})
	if err != nil || len(dry) != len(all) || dry[0].Status != redact.StatusWould {
		t.Fatalf("%+v, %v", dry, err)
	}
	if !maps.Equal(n.content(), before) || len(n.written)+len(n.erased)+n.ended > 0 {
		t.Fatal("a dry run changed something")
	}
	got, err := n.service.Redact(t.Context(), redact.Request{Events: events(append(all, all[0])...), Reason: "because", User: "admin"})
	check.Must(t, err)
	redacted := map[int64]bool{}
	for i, o := range got {
		if o.Event != all[i] || o.Status != redact.StatusRedacted || !strings.HasPrefix(o.Chunk, "chunk-") {
			t.Errorf("%+v", o)
		}
		redacted[o.Position] = true
	}
	after := n.content()
	if len(after) != len(before) || n.log.Tail() != tail {
		t.Fatal("the log has changed its shape")
	}
	for position, was := range before {
		if !redacted[position] && after[position] != was {
			t.Errorf("%d is %s, was %s", position, after[position], was)
		}
		if want := strings.NewReplacer(fmt.Sprintf("%q", secret), fmt.Sprintf("%q", strings.Repeat("\xff", len(secret))), " t 0 ", " t 200 ").Replace(was); redacted[position] && after[position] != want {
			t.Errorf("%d is %s, want %s", position, after[position], want)
		}
	}
	if files := holding(t, fsys, dir, secret); len(files) != 1 || !strings.Contains(files[0], "chunk-000003.") {
		t.Errorf("the secret is in %v", files) // Of the event that was not named.
	}
	if n.ended != 1 || n.forgotten != 1 || !slices.Equal(n.erased, []int64{got[4].Position + 1}) {
		t.Errorf("backups were ended %d times, memory dropped %d times, the Raft log erased up to %v", n.ended, n.forgotten, n.erased)
	}
	n.recorded(len(all), "because", "admin")
	for i, o := range got { // One line names them all, as the record does.
		if line := n.logged.String(); strings.Count(line, "events redacted") != 1 || !strings.Contains(line, fmt.Sprintf("%s (position %d, id ", all[i], o.Position)) {
			t.Errorf("%s is not named in the log: %s", all[i], line)
		}
	}
	again, err := n.service.Redact(t.Context(), redact.Request{Events: events(all...)})
	if err != nil || again[0].Status != redact.StatusAlready || len(n.written) != 2 {
		t.Errorf("%+v, %v, %d writes", again, err, len(n.written))
	}
	if files := holding(t, fsys, dir, "because"); len(files) > 0 {
		t.Errorf("notes are left in %v", files)
	}
	// A lost list is rebuilt.
	n.close()
	want := check.Value(vfs.ReadFile(fsys, dir+"/redactions")).Must(t)
	check.Must(t, fsys.Remove(dir+"/redactions"))
	mustOpen(t, fsys)
	for {
		b, err := vfs.ReadFile(fsys, dir+"/redactions")
		if err == nil {
			check.Slice(t, b, want, "the list ..., was")
			break
		}
		select {
		case <-t.Context().Done():
			t.Fatal("no list")
		case <-time.After(time.Millisecond): // The rebuild has no one to tell.
		}
	}
}

// recorded checks the record in the database.
func (n *node) recorded(count int, reason, user string) {
	n.t.Helper()
	var data struct {
		NodeEndpoint, User, Reason, Time string
		Events                           []struct {
			Stream           string
			Number, Position int64
			EventID          string
		}
	}
	if len(n.written) != 2 || n.written[0].Stream != "$$$redactions" || n.written[1].Stream != "$redactions" || n.written[1].Events[0].Type != "$redacted" {
		n.t.Fatalf("written: %+v", n.written)
	}
	text := n.written[1].Events[0].Data
	check.Must(n.t, json.Unmarshal(text, &data))
	if data.NodeEndpoint != "127.0.0.1:2113" || data.User != user || data.Reason != reason || len(data.Events) != count || data.Events[0].Stream == "" || data.Events[0].EventID == "" || bytes.Contains(text, []byte(secret)) {
		n.t.Errorf("the record is %s", text)
	}
}

func TestRefusals(t *testing.T) {
	fsys := vfs.NewMem()
	n := mustOpen(t, fsys)
	n.fill()
	n.write(false, "t", secret, "$projections-p-checkpoint", "$user-jane", "$settings", "$projections-p-result", redact.Stream)
	n.write(true, event.TypeScavengePoint, "{}", "$scavengePoints")
	n.write(false, "t", "x", "y")
	before := n.content()
	for _, c := range []struct {
		name, want string
		events     []string
	}{
		{"active", "0@y: its chunk is still being written; a scavenge completes it", []string{"0@private", "0@y"}},
		{"none", "9@private: there is no such event", []string{"9@private"}},
		{"two", "9@private: there is no such event\n0@none@: there is no such event", []string{"9@private", "0@none@"}},
		{"link", "0@links: a link holds no data of its own, redact the event that it points to", []string{"0@links"}},
		{"metadata", "0@$$private: the server itself reads such events", []string{"0@$$private"}},
		{"checkpoint", "0@$projections-p-checkpoint: the server itself reads such events", []string{"0@$projections-p-checkpoint"}},
		{"user", "0@$user-jane: the server itself reads such events", []string{"0@$user-jane"}},
		{"settings", "0@$settings: the server itself reads such events", []string{"0@$settings"}},
		{"redaction", "0@$redactions: the server itself reads such events", []string{"0@$redactions"}},
		{"scavenge point", "0@$scavengePoints: the server itself reads such events", []string{"0@$scavengePoints"}},
	} {
		t.Run(c.name, func(t *testing.T) {
			_, err := n.service.Redact(t.Context(), redact.Request{Events: events(c.events...)})
			var refused *redact.Refused
			if !errors.As(err, &refused) || refused.Error() != c.want {
				t.Fatalf("%v, want %s", err, c.want)
			}
		})
	}
	check.Is(t, check.Err(n.service.Redact(t.Context(), redact.Request{})), redact.ErrNoEvents)
	check.Is(t, check.Err(n.service.Redact(t.Context(), redact.Request{Events: make([]redact.Event, redact.MaxEvents+1)})), redact.ErrTooMany)
	hold := check.Value(n.lock.TryLock()).Must(t)
	check.Is(t, check.Err(n.service.Redact(t.Context(), redact.Request{Events: events("0@private")})), redact.ErrLocked)
	hold.Unlock()
	if !maps.Equal(n.content(), before) || len(n.written)+len(n.erased)+n.ended > 0 {
		t.Error("a refusal changed something")
	}
	if _, err := n.service.Redact(t.Context(), redact.Request{Events: events("0@$projections-p-result")}); err != nil {
		t.Error(err) // Results are made of data.
	}
}

func TestParseEvent(t *testing.T) {
	for text, want := range map[string]redact.Event{"0@a": {Stream: "a"}, "12@a@b": {Stream: "a@b", Number: 12}, "9223372036854775807@$x": {Stream: "$x", Number: 1<<63 - 1}} {
		if got, err := redact.ParseEvent(text); err != nil || got != want || got.String() != text {
			t.Errorf("%s: %+v, %v", text, got, err)
		}
	}
	for _, text := range []string{"", "a", "@a", "1@", "-1@a", "1.0@a", "9223372036854775808@a"} {
		if got, err := redact.ParseEvent(text); err == nil {
			t.Errorf("%q: %+v", text, got)
		}
	}
}

// TestUnfinished: a step that fails after the point of no return is finished by a retry, or by the
// next start.
func TestUnfinished(t *testing.T) {
	for _, restart := range []bool{false, true} {
		t.Run(fmt.Sprintf("restart %v", restart), func(t *testing.T) {
			fsys := vfs.NewMem()
			n := mustOpen(t, fsys)
			n.fill()
			n.failing = errors.New("no quorum")
			var unfinished *redact.Unfinished
			if _, err := n.service.Redact(t.Context(), redact.Request{Events: events("0@private"), User: "admin", Reason: "r"}); !errors.As(err, &unfinished) {
				t.Fatal(err)
			}
			if restart {
				n.close()
				n = mustOpen(t, fsys)
			}
			n.mu.Lock()
			n.failing = nil
			n.mu.Unlock()
			got, err := n.service.Redact(t.Context(), redact.Request{Events: events("0@private")})
			if err != nil || got[0].Status != redact.StatusAlready || len(n.erased) == 0 {
				t.Fatalf("%+v, %v, erased %v", got, err, n.erased)
			}
			n.recorded(1, "r", "admin")
		})
	}
}

// TestAlreadyIsKept: an event that came blank from another node is kept blank from the time on at
// which this node says that it is.
func TestAlreadyIsKept(t *testing.T) {
	n := mustOpen(t, vfs.NewMem())
	n.fill()
	for range 2 {
		check.Value(n.service.Redact(t.Context(), redact.Request{Events: events("0@private")})).Must(t)
		listed := n.ledger.Between(0, 1<<62)
		check.MustEqual(t, len(listed), 1, "in the ledger")
		check.Equal(t, listed[0].Number, 0)
		check.Must(t, n.ledger.Cut(0)) // As if another node had blanked it.
	}
}

// TestUnfinishedOnDamage: a node whose chunk is damaged starts all the same, because only one that
// runs can get the chunk from another node. Then the redaction is finished.
func TestUnfinishedOnDamage(t *testing.T) {
	fsys := vfs.NewMem()
	n := mustOpen(t, fsys)
	n.fill()
	chunk := filepath.Join(dir, "chunk-000000.000000")
	flip := func() {
		b := check.Value(vfs.ReadFile(fsys, chunk)).Must(t)
		f := check.Value(fsys.OpenReadWrite(chunk)).Must(t)
		at := bytes.Index(b, []byte("lain"))
		check.Must(t, check.Err(f.WriteAt([]byte{b[at-1] ^ 1}, int64(at-1))))
		check.Must(t, f.Close())
	}
	flip()
	_, err := n.service.Redact(t.Context(), redact.Request{Events: events("0@private")})
	if unfinished, ok := errors.AsType[*redact.Unfinished](err); !ok || !event.IsCorruption(unfinished) {
		t.Fatal(err)
	}
	n.close()
	n = mustOpen(t, fsys)
	flip()
	got := check.Value(n.service.Redact(t.Context(), redact.Request{Events: events("0@private")})).Must(t)
	check.Equal(t, got[0].Status, redact.StatusAlready)
	check.Equal(t, len(n.ledger.Between(0, 1<<62)), 1, "in the ledger")
}

// said writes a record into the log, unless it is there.
func said(n *node, e event.Proposed) {
	if _, there, err := n.log.Reads.FindID(redact.Stream, e.ID); err != nil || there {
		check.Must(n.t, err)
		return
	}
	n.writeEvents(false, []event.Proposed{e}, redact.Stream)
	check.Must(n.t, n.log.Sync())
}

const labels = `{"$tags":["patient:7"],"$correlationId":"case 7"}`

// tagged are the numbers of the events that a query finds by what the metadata of private say.
func (n *node) tagged() (numbers []int64) {
	n.t.Helper()
	for _, i := range []event.QueryItem{{Tags: []string{"patient:7"}}, {Correlation: "case 7"}} {
		page := check.Value(n.log.Reads.ReadAll(event.AllRead{Query: &event.Query{Items: []event.QueryItem{i}}, Count: 100})).Must(n.t)
		for _, e := range page.Events {
			numbers = append(numbers, e.Number)
		}
	}
	return numbers
}

// TestMetadata: metadata are blanked, and the postings of what they said are gone, but only after
// the log says so.
func TestMetadata(t *testing.T) {
	fsys := vfs.NewMem()
	n := mustOpen(t, fsys)
	n.metadata = labels
	n.fill()
	first := check.Value(n.service.Redact(t.Context(), redact.Request{Events: events("1@private")})).Must(t)
	check.Slice(t, n.tagged(), []int64{0, 1, 2, 3, 4, 0, 1, 2, 3, 4}, "found when the data alone are redacted")
	before := n.content()
	r := redact.Request{Events: events("0@private", "1@private", "2@private", "3@private"), Metadata: true, DryRun: true}
	for _, o := range check.Value(n.service.Redact(t.Context(), r)).Must(t) {
		check.Equal(t, o.Status, redact.StatusWould, "a dry run")
	}
	r.DryRun = false
	n.noLeader = errors.New("no leader")
	var unfinished *redact.Unfinished
	if _, err := n.service.Redact(t.Context(), r); !errors.As(err, &unfinished) {
		t.Fatal(err)
	}
	n.close()
	n = mustOpen(t, fsys)
	if !maps.Equal(n.content(), before) || len(n.ledger.Between(0, 1<<62)) != 1 || len(n.tagged()) != 10 {
		t.Fatalf("changed before the log says so: %v", n.content())
	}
	n.mu.Lock()
	n.apply = func(n *node, e event.Proposed) {
		if len(holding(n.t, fsys, dir, "patient:7")) != 3 || len(n.ledger.Between(0, 1<<62)) != 1 {
			n.t.Error("blanked before the log says so")
		}
		said(n, e)
	}
	n.mu.Unlock()
	for _, o := range check.Value(n.service.Redact(t.Context(), r)).Must(t) { // After the first.
		check.Equal(t, o.Status, redact.StatusAlready, "done")
	}
	check.Slice(t, n.tagged(), []int64{4, 4}, "found afterwards")
	if files := holding(t, fsys, dir, "patient:7"); len(files) != 1 || !strings.Contains(files[0], "chunk-000002.") {
		t.Errorf("metadata are in %v", files)
	}
	blank := fmt.Sprintf("%q", strings.Repeat("\xff", len(labels)))
	gone := 0
	for position, was := range n.content() {
		if strings.Contains(was, blank) {
			lacking := check.Value(n.log.Postings().Lacking([]label.Label{{Kind: label.Tag, Key: "patient:7"}, {Kind: label.Correlation, Key: "case 7"}}, position)).Must(t)
			gone += len(lacking)
		}
	}
	check.Equal(t, gone, 8, "postings that are gone")
	ledger := check.Value(vfs.ReadFile(fsys, dir+"/redactions")).Must(t)
	check.Equal(t, bytes.Count(ledger, []byte(`"metadata":true`)), 4, "lines of the ledger")
	check.Equal(t, first[0].Status, redact.StatusRedacted, "data alone")
	// Lost, it is known again at once from what the log says.
	n.close()
	check.Must(t, fsys.Remove(dir+"/redactions"))
	n = mustOpen(t, fsys)
	for _, e := range n.ledger.Between(0, n.log.Tail().End) {
		check.Equal(t, e.Metadata, true, "metadata are known to be redacted")
	}
	check.Slice(t, n.tagged(), []int64{4, 4}, "found after a restart")
}

// TestPowerCuts cuts the power before every file operation: an event is whole or redacted, and a
// retry works.
func TestPowerCuts(t *testing.T) {
	for _, metadata := range []bool{false, true} {
		t.Run(fmt.Sprint("metadata ", metadata), func(t *testing.T) { powerCuts(t, metadata) })
	}
}

func powerCuts(t *testing.T, metadata bool) {
	d := powercut.New(powercut.Options[int]{Off: true})
	n := mustOpen(t, d)
	n.metadata, n.apply = labels, said
	n.fill()
	d.On()
	r := redact.Request{Events: events("0@private", "3@private", "4@private"), Metadata: metadata}
	names := r.Events
	check.Must(t, check.Err(n.service.Redact(t.Context(), r)))
	d.Off()
	begun := false
	for i, c := range d.Cuts() {
		fsys := c.FS
		after := check.Value(open(t, fsys)).Must(t, "cut", i)
		if begun = begun || len(holding(t, fsys, dir, secret)) < 4; begun {
			for _, e := range names {
				if p, err := after.service.Positions(e.Stream, e.Number); err != nil || !p[0].Redacted {
					t.Fatalf("cut %d: the redaction was begun, and %s is %+v, %v", i, e, p, err)
				}
			}
		}
		after.mu.Lock()
		after.apply = said
		after.mu.Unlock()
		if got, err := after.service.Redact(t.Context(), r); err != nil || len(got) != 3 {
			t.Fatalf("cut %d: %+v, %v", i, got, err)
		}
		if !maps.Equal(after.content(), n.content()) {
			t.Fatalf("cut %d: %v, want %v", i, after.content(), n.content())
		}
		after.close()
	}
	if !begun {
		t.Error("no cut after the beginning")
	}
}

func TestCutLedger(t *testing.T) {
	fsys := vfs.NewMem()
	n := mustOpen(t, fsys)
	n.fill()
	got, err := n.service.Redact(t.Context(), redact.Request{Events: events("0@private", "4@private")})
	check.Must(t, err)
	l := check.Value(redact.OpenLedger(fsys, dir)).Must(t)
	check.Must(t, l.Cut(got[1].Position))
	if l, err = redact.OpenLedger(fsys, dir); err != nil {
		t.Fatal(err)
	}
	if left := l.Between(0, 1<<62); len(left) != 1 || left[0].Position != got[0].Position {
		t.Fatalf("%+v", left)
	}
}

// TestRecall: when the list is lost, what the log records of redactions is blanked in what comes
// from other nodes, from before anything can come: flags in the files are read later, and are of no
// help where the file that comes has none.
func TestRecall(t *testing.T) {
	fsys := vfs.NewMem()
	n := mustOpen(t, fsys)
	n.fill()
	places := check.Value(n.service.Positions("private", 1)).Must(t)
	check.MustEqual(t, len(places), 1, places)
	record := fmt.Sprintf(`{"nodeEndpoint":"x:1","events":[{"stream":"private","number":1,"position":%d,"eventId":%q}],"time":"2026-01-02T03:04:05Z"}`, places[0].Position, places[0].ID)
	n.write(false, "t", "nothing that is understood", redact.Stream)
	n.write(false, "$redacted", record, redact.Stream)
	n.write(false, event.TypeMetadata, `{"$tb":9}`, "$$"+redact.Stream) // Hidden is not forgotten.
	n.close()
	check.Must(t, vfs.RemoveIfThere(fsys, dir+"/redactions"))
	again := mustOpen(t, fsys)
	want := []eventlog.Redaction{{Position: places[0].Position, Stream: chunkfile.HashStream("private"), Number: 1}}
	check.Slice(t, again.ledger.Between(0, again.log.Tail().End), want, "the ledger knows")
}
