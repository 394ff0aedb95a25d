package integration_test

import (
	"archive/tar"
	"bytes"
	"compress/gzip"
	"encoding/base64"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"io"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/kurrent-io/KurrentDB-Client-Go/kurrentdb"
	"google.golang.org/grpc/metadata"

	"github.com/annalsdb/annals/internal/check"
	"github.com/annalsdb/annals/internal/testkit"
)

// goldenData makes the data folders of a version; those that are there stay as they are.
var goldenData = flag.String("golden-data", "", "make the data folders of this version in testdata/formats")

const formatsDir = "testdata/formats"

// formatOptions are the ways to write data that differ in their files.
var formatOptions = map[string][]string{
	"segments": {"--raft-log-store=Wal"},
	"bolt":     {"--raft-log-store=BoltDB"},
}

// formatNode are the options of a node with little data that has files of all kinds.
var formatNode = []string{"--max-mem-table-size=8", "--stream-existence-filter-size=10000", "--run-projections=All", "--start-standard-projections"}

// formatPaths are what a new folder is asked for: streams of all kinds, users, groups, projections.
// One that is there is asked for what its golden.json answers.
var formatPaths = []string{
	"/streams/orders-1/0/forward/20?embed=tryharder", "/streams/binary/0/forward/20?embed=tryharder",
	"/streams/scavenged/0/forward/20?embed=tryharder", "/streams/linked/0/forward/20?embed=tryharder",
	"/streams/scavenged/metadata", "/streams/gone", "/streams/gone-for-good",
	"/users/ada", "/subscriptions/orders-1/readers/info",
	"/streams/described/metadata", "/streams/truncated/0/forward/20?embed=tryharder", "/streams/revived/0/forward/20?embed=tryharder",
	"/streams/%24settings/0/forward/20?embed=tryharder", "/streams/secret/0/forward/20?embed=tryharder", "/streams/%24redactions/0/forward/20?embed=tryharder",
	"/users/bob", parkedPath, "/streams/%24persistentsubscription-orders-1::readers-checkpoint/0/forward/20?embed=tryharder",
	"/subscriptions/%24all/all/info", "/projection/count/state?partition=0", "/projection/count/state?partition=1",
	"/streams/copied-1/0/forward/20?embed=tryharder", "/streams/%24ce-orders/0/forward/100?embed=tryharder",
}

const parkedPath = "/streams/%24persistentsubscription-orders-1::readers-parked/0/forward/20?embed=tryharder"

// backupArchive is the end of the name of an archive with backups, in place of a data folder.
const backupArchive = "-backup.tar.gz"

// TestFormats: the current version opens the data folders of all earlier ones, serves and extends
// them, with each kind of Raft log. It restores their backups, too.
func TestFormats(t *testing.T) {
	if *goldenData != "" {
		for name, options := range formatOptions {
			makeFormat(t, filepath.Join(formatsDir, *goldenData+"-"+name+".tar.gz"), options)
		}
	}
	archives, err := filepath.Glob(filepath.Join(formatsDir, "*.tar.gz"))
	if err != nil || len(archives) == 0 {
		t.Fatalf("%d archives, %v", len(archives), err)
	}
	for _, archive := range archives {
		for kind, options := range formatOptions {
			t.Run(strings.TrimSuffix(filepath.Base(archive), ".tar.gz")+" with "+kind, func(t *testing.T) {
				t.Parallel()
				dir := t.TempDir()
				unpack(t, archive, dir)
				golden := check.Value(os.ReadFile(filepath.Join(dir, "golden.json"))).Must(t)
				check.Must(t, os.Remove(filepath.Join(dir, "golden.json")))
				if strings.HasSuffix(archive, backupArchive) {
					dir = restored(t, dir)
				}
				opensFormat(t, dir, golden, options)
			})
		}
	}
}

// opensFormat starts a node on a folder twice: the second start has what the first one made of it.
func opensFormat(t *testing.T, dir string, golden []byte, options []string) {
	t.Helper()
	var want map[string]any
	check.Must(t, json.Unmarshal(golden, &want))
	for round := range 2 {
		node := testkit.StartNode(t, dir, slices.Concat(options, formatNode)...)
		s := &scavenged{t: t, dir: dir, Process: node}
		s.write("orders-1", 150, 1) // The id is known: it is there already.
		check.Slice(t, shownFormat(t, node.Client, slices.Collect(maps.Keys(want))), golden, "start", round, "shows")
		if _, parked := want[parkedPath]; parked {
			check.Equal(t, (&group{t, node.Client, "orders-1", "readers"}).info().Parked, 1, "parked messages")
		}
		s.write("more", 1000+3*round, 3)
		if all, err := s.ReadStream(t.Context(), "more", 0); err != nil || len(all) != 3*(round+1) {
			t.Errorf("start %d: %d events, %v", round, len(all), err)
		}
		node.Stop()
	}
	verifyClean(t, dir)
}

// restored makes a data folder of the newest backup, after all of them were checked.
func restored(t *testing.T, from string) (dir string) {
	t.Helper()
	dir = filepath.Join(t.TempDir(), "db")
	for _, args := range [][]string{{"verify", "--from", from, "--all"}, {"restore", "--from", from, "--db", dir}} {
		if p, code := testkit.Run(t, testkit.Command{Args: append([]string{"backup"}, args...), Quiet: true}); code != 0 {
			t.Fatalf("annals backup %s: exit code %d\n%s", strings.Join(args, " "), code, p.Output())
		}
	}
	return dir
}

// makeFormat makes an archive that is not there. One of the kinds makes that of the backups, too.
func makeFormat(t *testing.T, archive string, options []string) {
	t.Helper()
	if _, err := os.Stat(archive); err == nil {
		t.Fatalf("%s is there: the data of a version is made once", archive)
	}
	dir, backups := t.TempDir(), t.TempDir()
	options = slices.Concat(options, formatNode)
	s := &scavenged{t: t, dir: dir, Process: testkit.StartNode(t, dir, options...)}
	s.fillFormat(options)
	// Full, and then incremental.
	for range 2 {
		if p, code := testkit.Run(t, testkit.Command{Args: []string{"backup", "create", "--node", s.URL(), "--to", backups}, Env: []string{"ANNALS_PASSWORD=changeit"}, Quiet: true}); code != 0 {
			t.Fatalf("backup: exit code %d\n%s", code, p.Output())
		}
		s.write("orders-1", 150, 1)
	}
	shown := shownFormat(t, s.Client, formatPaths)
	s.Stop()
	verifyClean(t, dir)
	check.Must(t, os.WriteFile(filepath.Join(dir, "golden.json"), shown, 0o644))
	check.Must(t, os.MkdirAll(formatsDir, 0o755))
	pack(t, dir, archive)
	if options[0] == formatOptions["segments"][0] {
		check.Must(t, os.WriteFile(filepath.Join(backups, "golden.json"), shown, 0o644))
		pack(t, backups, filepath.Join(formatsDir, *goldenData+backupArchive))
	}
}

// fillFormat writes data of all kinds. In the end one chunk is scavenged, redacted and merged, one
// is complete as it was written, and one grows.
func (s *scavenged) fillFormat(options []string) {
	t := s.t
	t.Helper()
	asJSON := []string{"Content-Type", testkit.MediaJSON}
	s.do("POST", "/streams/orders-1", batchOf("OrderPlaced", `{"total":12,"name":"Zoë"}`, 1, 20), 201)
	s.do("POST", "/streams/binary", "\x00\x01\xff", 201, "Content-Type", "application/octet-stream", "ES-EventType", "Picture", "ES-EventId", uuidOf(100))
	s.describe("scavenged", `{"$maxCount":2,"custom":[1]}`, 101)
	s.write("scavenged", 110, 6)
	s.describe("described", `{"$acl":{"$r":["ada","$admins"],"$w":"ada"},"$maxAge":1000000000,"$cacheControl":10}`, 102)
	s.write("truncated", 160, 5)
	s.describe("truncated", `{"$tb":3}`, 103)
	s.do("POST", "/streams/%24settings", batchOf("settings", `{"$userStreamAcl":{"$r":"$all","$w":"$all","$d":"$all","$mr":"$all","$mw":"$all"}}`, 104, 1), 201)
	s.do("POST", "/streams/linked", batchOf("$>", `"19@orders-1"`, 120, 1), 201)
	s.write("gone", 130, 2)
	s.remove("gone", false)
	s.write("gone-for-good", 140, 2)
	s.remove("gone-for-good", true)
	s.write("revived", 170, 2)
	s.remove("revived", false)
	s.write("revived", 172, 2)
	s.write("secret", 180, 2)
	for _, name := range []string{"ada", "bob"} {
		s.do("POST", "/users/", `{"loginName":"`+name+`","fullName":"`+name+`","groups":["readers"],"password":"secret"}`, 201, asJSON...)
	}
	s.do("POST", "/users/bob/command/disable", "", 200)

	g := newGroup(t, s.Client, "orders-1", "readers", prompt(settings{"startFrom": 3, "resolveLinktos": true}))
	got := g.takeUntil(17)
	g.park(got.all[0].ID)
	for _, m := range got.all[1:6] {
		g.ack(m.ID)
	}
	g.awaitCheckpoint(8)
	s.followAll()
	q := &query{t: t, name: "count", do: atNode(t, s.Client)}
	q.create(`fromStream('orders-1').partitionBy(function(e) { return String(e.sequenceNumber % 2); }).when({
	$init: function() { return {n: 0}; },
	OrderPlaced: function(s, e) { s.n++; emit('copied-1', 'copied', {n: e.sequenceNumber}); return s; }
}).outputState()`, "&enabled=yes")
	testkit.Eventually(t, settleLimit, func() error {
		if n := len(rawEvents(t, s.Client, "copied-1")); n < 20 {
			return fmt.Errorf("the projection has emitted %d events", n)
		}
		return nil
	})

	s.history(s.scavenge("?threshold=-1", "Success"))
	s.do("POST", "/admin/redact", `{"events":["0@secret"],"reason":"for a test"}`, 200, asJSON...)
	s.write("late", 190, 20)
	s.history(s.scavenge("?threshold=-1", "Success"))
	s.Stop()
	s.Process = testkit.StartNode(t, s.dir, slices.Concat(options, []string{"--disable-scavenge-merging"})...)
	s.write("late", 210, 20)
	s.history(s.scavenge("?threshold=1000000000", "Success"))
	s.write("orders-1", 150, 1)
	if names := chunkNames(t, s.dir); len(names) != 3 {
		t.Errorf("chunks are %q", names)
	}
}

// followAll makes a group of the whole log, which takes gRPC.
func (s *scavenged) followAll() {
	s.t.Helper()
	config := check.Value(kurrentdb.ParseConnectionString("kurrentdb://" + s.Host() + "?tls=false")).Must(s.t)
	config.Logger = kurrentdb.NoopLogging()
	official := check.Value(kurrentdb.NewClient(config)).Must(s.t)
	admin := metadata.AppendToOutgoingContext(s.t.Context(), "authorization", "Basic "+base64.StdEncoding.EncodeToString([]byte("admin:changeit")))
	check.Must(s.t, official.CreatePersistentSubscriptionToAll(admin, "all", kurrentdb.PersistentAllSubscriptionOptions{
		Filter: &kurrentdb.SubscriptionFilter{Type: kurrentdb.StreamFilterType, Prefixes: []string{"orders-"}},
	}))
	check.Must(s.t, official.Close())
}

// shownFormat is what a node answers to the questions about a golden folder, without addresses.
func shownFormat(t *testing.T, c *testkit.Client, paths []string) []byte {
	t.Helper()
	all := map[string]any{}
	ask := atNode(t, c)
	for _, path := range paths {
		answer, err := ask(testkit.Request{Path: path, Header: map[string]string{"Accept": "application/json"}})
		check.Must(t, err)
		shown := map[string]any{"status": answer.Status}
		if answer.Status == 200 {
			var document any
			check.Must(t, json.Unmarshal(answer.Body, &document), path)
			shown["document"] = lasting(document)
		}
		all[path] = shown
	}
	text := check.Value(json.MarshalIndent(all, "", " ")).Must(t)
	return append(text, '\n')
}

// lastingFields are what a folder is compared by: what was written. Other fields name the node, its
// time, or how far it is, and documents may get more of them.
var lastingFields = []string{
	"entries", "eventId", "eventType", "eventNumber", "data", "metaData", "isJson", "updated", "streamId", "positionEventNumber", "positionStreamId", "title",
	"$maxCount", "$maxAge", "$tb", "$cacheControl", "$acl", "$r", "$w", "custom", "loginName", "fullName", "groups", "disabled", "config", "startFrom", "resolveLinktos", "eventStreamId", "groupName", "total", "name", "n",
}

func lasting(v any) any {
	switch v := v.(type) {
	case []any:
		for i := range v {
			v[i] = lasting(v[i])
		}
	case map[string]any:
		for key, value := range v {
			if slices.Contains(lastingFields, key) {
				v[key] = lasting(value)
			} else {
				delete(v, key)
			}
		}
	}
	return v
}

// sizeRecord is the size of a file whose zeros at the end are left out: chunks are made in their
// full size.
const sizeRecord = "ANNALS.size"

func pack(t *testing.T, dir, archive string) {
	t.Helper()
	var packed bytes.Buffer
	zipped, err := gzip.NewWriterLevel(&packed, gzip.BestCompression)
	check.Must(t, err)
	w := tar.NewWriter(zipped)
	err = fs.WalkDir(os.DirFS(dir), ".", func(name string, d fs.DirEntry, err error) error {
		if err != nil || !d.Type().IsRegular() {
			return err
		}
		text, err := os.ReadFile(filepath.Join(dir, name))
		if err != nil {
			return err
		}
		short := bytes.TrimRight(text, "\x00")
		info, err := d.Info()
		if err != nil {
			return err
		}
		header := &tar.Header{
			Name: name, Mode: int64(info.Mode().Perm()), Size: int64(len(short)), Format: tar.FormatPAX,
			PAXRecords: map[string]string{sizeRecord: fmt.Sprint(len(text))},
		}
		if err := w.WriteHeader(header); err != nil {
			return err
		}
		_, err = w.Write(short)
		return err
	})
	if err = errors.Join(err, w.Close(), zipped.Close()); err != nil {
		t.Fatal(err)
	}
	check.Must(t, os.WriteFile(archive, packed.Bytes(), 0o644))
}

func unpack(t *testing.T, archive, dir string) {
	t.Helper()
	packed := check.Value(os.ReadFile(archive)).Must(t)
	unzipped := check.Value(gzip.NewReader(bytes.NewReader(packed))).Must(t)
	for r := tar.NewReader(unzipped); ; {
		header, err := r.Next()
		if errors.Is(err, io.EOF) {
			return
		}
		check.Must(t, err)
		name := filepath.Join(dir, header.Name)
		size := check.Value(strconv.ParseInt(header.PAXRecords[sizeRecord], 10, 64)).Must(t)
		text := check.Value(io.ReadAll(r)).Must(t)
		check.Must(t, errors.Join(os.MkdirAll(filepath.Dir(name), 0o755), os.WriteFile(name, text, fs.FileMode(header.Mode)), os.Truncate(name, size)))
	}
}
