package integration_test

import (
	"archive/tar"
	"bytes"
	"compress/gzip"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"

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

// formatPaths are what a folder is asked for: streams of all kinds, a user, a group.
var formatPaths = []string{
	"/streams/orders-1/0/forward/20?embed=tryharder", "/streams/binary/0/forward/20?embed=tryharder",
	"/streams/scavenged/0/forward/20?embed=tryharder", "/streams/linked/0/forward/20?embed=tryharder",
	"/streams/scavenged/metadata", "/streams/gone", "/streams/gone-for-good",
	"/users/ada", "/subscriptions/orders-1/readers/info",
}

// TestFormats: the current version opens the data folders of all earlier ones, serves and extends
// them, with each kind of Raft log.
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
				want := check.Value(os.ReadFile(filepath.Join(dir, "golden.json"))).Must(t)
				check.Must(t, os.Remove(filepath.Join(dir, "golden.json")))
				for round := range 2 { // The second start has what the first one made of it.
					node := testkit.StartNode(t, dir, options...)
					check.Slice(t, shownFormat(t, node.Client), want, "start", round, "shows")
					s := &scavenged{t: t, dir: dir, Process: node}
					s.write("more", 1000+3*round, 3)
					if all, err := s.ReadStream(t.Context(), "more", 0); err != nil || len(all) != 3*(round+1) {
						t.Errorf("start %d: %d events, %v", round, len(all), err)
					}
					node.Stop()
				}
				verifyClean(t, dir)
			})
		}
	}
}

// makeFormat makes an archive that is not there.
func makeFormat(t *testing.T, archive string, options []string) {
	t.Helper()
	if _, err := os.Stat(archive); err == nil {
		t.Fatalf("%s is there: the data of a version is made once", archive)
	}
	dir := t.TempDir()
	s := &scavenged{t: t, dir: dir, Process: testkit.StartNode(t, dir, options...)}
	s.do("POST", "/streams/orders-1", batchOf("OrderPlaced", `{"total":12,"name":"Zoë"}`, 1, 20), 201)
	s.do("POST", "/streams/binary", "\x00\x01\xff", 201, "Content-Type", "application/octet-stream", "ES-EventType", "Picture", "ES-EventId", uuidOf(100))
	s.describe("scavenged", `{"$maxCount":2,"custom":[1]}`, 101)
	s.write("scavenged", 110, 6)
	s.do("POST", "/streams/linked", batchOf("$>", `"19@orders-1"`, 120, 1), 201)
	s.write("gone", 130, 2)
	s.remove("gone", false)
	s.write("gone-for-good", 140, 2)
	s.remove("gone-for-good", true)
	s.do("POST", "/users/", `{"loginName":"ada","fullName":"Ada","groups":["readers"],"password":"secret"}`, 201, "Content-Type", testkit.MediaJSON)
	s.do("PUT", "/subscriptions/orders-1/readers", `{"startFrom":3,"resolveLinktos":true}`, 200, "Content-Type", testkit.MediaJSON)
	s.history(s.scavenge("", "Success"))
	s.write("orders-1", 150, 1)
	shown := shownFormat(t, s.Client)
	s.Stop()
	verifyClean(t, dir)
	check.Must(t, os.WriteFile(filepath.Join(dir, "golden.json"), shown, 0o644))
	check.Must(t, os.MkdirAll(formatsDir, 0o755))
	pack(t, dir, archive)
}

// shownFormat is what a node answers to the questions about a golden folder, without addresses.
func shownFormat(t *testing.T, c *testkit.Client) []byte {
	t.Helper()
	all := map[string]any{}
	for _, path := range formatPaths {
		answer, err := c.Do(t.Context(), testkit.Request{Path: path, Admin: true, Header: map[string]string{"Accept": "application/json"}})
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
	"$maxCount", "custom", "loginName", "fullName", "groups", "disabled", "config", "startFrom", "resolveLinktos", "eventStreamId", "groupName", "total", "name",
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
