package httpapi_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/annalsdb/annals/admin/backup"
	"github.com/annalsdb/annals/event"
	httpapi "github.com/annalsdb/annals/http"
	"github.com/annalsdb/annals/internal/check"
)

// memBackups has the sessions and files that a test sets.
type memBackups struct {
	fail  error
	open  []backup.Session
	files map[string]string
	calls []string
}

type pinned struct {
	*strings.Reader
	closed *int
}

func (c pinned) Close() error {
	*c.closed++
	return nil
}

func (b *memBackups) note(call string) error {
	b.calls = append(b.calls, call)
	return b.fail
}

func (b *memBackups) Begin(context.Context) (backup.Session, error) {
	if err := b.note("begin"); err != nil {
		return backup.Session{}, err
	}
	return b.open[0], nil
}

func (b *memBackups) Sessions() []backup.Session { return b.open }

func (b *memBackups) Stop(session string) error { return b.note("stop " + session) }

func (b *memBackups) File(session, name string) (backup.Content, error) {
	if err := b.note("file " + session + " " + name); err != nil {
		return nil, err
	}
	text, ok := b.files[name]
	if !ok {
		return nil, backup.ErrNoSuchFile
	}
	return pinned{strings.NewReader(text), new(int)}, nil
}

func someBackups() *memBackups {
	return &memBackups{
		files: map[string]string{"index/indexmap": "0123456789", "a%b": "x"},
		open: []backup.Session{{
			ID: "0f9fad5b-d9cb-469f-a165-70867728950e", Position: 4711, Chain: "00c0ffee", Time: time.Unix(1700000000, 5).UTC(),
			ClusterID: "c1", NodeID: "n1", Expires: time.Unix(1700000600, 0).UTC(),
			Files: []backup.File{{Name: "index/indexmap", Size: 10, Checksum: "beef"}, {Name: "chunk-000000.000000", Size: 1 << 28, Checksum: "f00d", Complete: true}},
		}},
	}
}

const backupsPath = "/admin/backup/sessions"

func TestBackupSessionBegins(t *testing.T) {
	b := someBackups()
	n := newOperator(t, func(o *httpapi.Options) { o.Backups = b })
	begun := n.do("POST", backupsPath, "", admin("Accept", appJSON)).has(t, "Content-Type", "application/json; charset=utf-8").has(t, "Cache-Control", "max-age=0, no-cache, must-revalidate")
	got := decode[backup.Session](t, begun)
	check.Equal(t, fmt.Sprint(got), fmt.Sprint(b.open[0]), "session")
	want, _ := json.MarshalIndent(b.open[0], "", "  ")
	check.Equal(t, begun.body, string(want), "body")

	text := n.do("POST", backupsPath, "", admin()).is(t, 200)
	check.Equal(t, text.body, "BackupId: 0f9fad5b-d9cb-469f-a165-70867728950e, Position: 4711, Chain: 00c0ffee, Time: 2023-11-14T22:13:20.000000005Z, "+
		"ClusterId: c1, NodeId: n1, Expires: 2023-11-14T22:23:20Z\n"+
		"Name: index/indexmap, Size: 10, Checksum: beef, Complete: false\nName: chunk-000000.000000, Size: 268435456, Checksum: f00d, Complete: true", "text")
	for _, accept := range []string{textXML, appXML} {
		doc := n.do("POST", backupsPath, "", admin("Accept", accept)).is(t, 200).has(t, "Content-Type", accept+"; charset=utf-8").body
		if !strings.Contains(doc, "<BackupSessionDto><BackupId>0f9fad5b-d9cb-469f-a165-70867728950e</BackupId><Position>4711</Position>") ||
			!strings.HasSuffix(doc, "<File><Name>chunk-000000.000000</Name><Size>268435456</Size><Checksum>f00d</Checksum><Complete>true</Complete></File></Files></BackupSessionDto>") {
			t.Errorf("as %s: %s", accept, doc)
		}
	}
	n.do("POST", backupsPath, "", admin("Accept", "image/png")).is(t, 406)
}

func TestBackupSessionsAreListed(t *testing.T) {
	b := someBackups()
	n := newOperator(t, func(o *httpapi.Options) { o.Backups = b })
	check.Equal(t, n.get(backupsPath, appJSON).is(t, 200).body, `{
  "sessions": [
    {
      "backupId": "0f9fad5b-d9cb-469f-a165-70867728950e",
      "position": 4711,
      "chain": "00c0ffee",
      "time": "2023-11-14T22:13:20.000000005Z",
      "clusterId": "c1",
      "nodeId": "n1",
      "expires": "2023-11-14T22:23:20Z"
    }
  ]
}`, "JSON")
	check.Equal(t, n.get(backupsPath, "").is(t, 200).body, "BackupId: 0f9fad5b-d9cb-469f-a165-70867728950e, Position: 4711, Chain: 00c0ffee, "+
		"Time: 2023-11-14T22:13:20.000000005Z, ClusterId: c1, NodeId: n1, Expires: 2023-11-14T22:23:20Z", "lines")
	check.Contains(t, n.get(backupsPath, textXML).is(t, 200).body, "<BackupSessionsDto><Session><BackupId>", "XML")
	b.open = nil
	check.Equal(t, n.get(backupsPath, appJSON).is(t, 200).body, "{\n  \"sessions\": []\n}", "none")
	check.Equal(t, n.get(backupsPath, "").is(t, 200).body, "", "no line")
}

func TestBackupSessionEnds(t *testing.T) {
	b := someBackups()
	n := newOperator(t, func(o *httpapi.Options) { o.Backups = b })
	check.Equal(t, n.do("DELETE", backupsPath+"/abc", "", admin()).is(t, 200).body, "BackupId: abc", "text")
	check.Equal(t, n.do("DELETE", backupsPath+"/abc", "", admin("Accept", appJSON)).is(t, 200).body, "{\n  \"backupId\": \"abc\"\n}", "JSON")
	check.Equal(t, strings.Join(b.calls, ", "), "stop abc, stop abc", "calls")
}

func TestBackupFile(t *testing.T) {
	b := someBackups()
	n := newOperator(t, func(o *httpapi.Options) { o.Backups = b })
	file := backupsPath + "/abc/files/index%2Findexmap"
	for name, c := range map[string]struct {
		path, ranges string
		status       int
		body         string
		content      string // Content-Range
	}{
		"whole":                {file, "", 200, "0123456789", ""},
		"with a slash":         {backupsPath + "/abc/files/index/indexmap", "", 200, "0123456789", ""},
		"with a sign":          {backupsPath + "/abc/files/a%25b", "", 200, "x", ""},
		"a part":               {file, "bytes=2-4", 206, "234", "bytes 2-4/10"},
		"from an offset on":    {file, "bytes=7-", 206, "789", "bytes 7-9/10"},
		"the end":              {file, "bytes=-2", 206, "89", "bytes 8-9/10"},
		"beyond":               {file, "bytes=10-", 416, "", "bytes */10"},
		"nonsense":             {file, "bytes=x", 416, "", ""},
		"a file of nobody":     {backupsPath + "/abc/files/annals.lock", "", 404, "Backup session has no such file", ""},
		"outside":              {backupsPath + "/abc/files/..%2Fkeys", "", 404, "Backup session has no such file", ""},
		"of no name":           {backupsPath + "/abc/files/", "", 404, "Backup session has no such file", ""},
		"what is accepted":     {file + "?format=json", "", 200, "0123456789", ""},
		"more than one part":   {file, "bytes=0-1,4-5", 206, "", ""},
		"of the whole at once": {file, "bytes=0-", 206, "0123456789", "bytes 0-9/10"},
	} {
		t.Run(name, func(t *testing.T) {
			h := admin("Accept", "image/png") // Bytes are what they are.
			if c.ranges != "" {
				h.Set("Range", c.ranges)
			}
			a := n.do("GET", c.path, "", h).is(t, c.status)
			if c.body != "" {
				check.Equal(t, a.body, c.body, "body")
			}
			if c.content != "" {
				a.has(t, "Content-Range", c.content)
			}
			if c.status == 200 {
				a.has(t, "Content-Type", "application/octet-stream").has(t, "Accept-Ranges", "bytes").has(t, "Content-Length", fmt.Sprint(len(c.body)))
			}
		})
	}
	check.Equal(t, n.do("HEAD", file, "", admin()).is(t, 200).has(t, "Content-Length", "10").body, "", "head")
}

func TestBackupSessionProblems(t *testing.T) {
	for _, c := range []struct {
		err    error
		status int
		text   string
	}{
		{backup.ErrTooManySessions, 503, "Too many backup sessions"},
		{backup.ErrInMemory, 400, "Backup is not supported on in-memory databases"},
		{backup.ErrSessionGone, 404, "Backup session does not exist"},
		{&backup.Ended{Reason: backup.EndedByRedaction}, 410, "The backup was ended by a redaction, begin it again"},
		{&backup.Ended{Reason: backup.EndedByFullDisk}, 410, "The backup was ended because the disk is nearly full, begin it again when there is space"},
		{backup.ErrSuspended, 503, "A redaction is running, begin the backup when it is done"},
		{event.ErrNotReady, 503, "Server Is Not Ready"},
		{event.ErrClosed, 503, "Server Is Not Ready"},
		{errors.New("disk broken"), 500, "Internal Server Error"},
	} {
		b := someBackups()
		b.fail = fmt.Errorf("begin: %w", c.err)
		n := newOperator(t, func(o *httpapi.Options) { o.Backups = b })
		for path, method := range map[string]string{backupsPath: "POST", backupsPath + "/abc": "DELETE", backupsPath + "/abc/files/index%2Findexmap": "GET"} {
			check.Equal(t, n.do(method, path, "", admin("Accept", appJSON)).is(t, c.status).says(t, c.text).body, c.text, method+" "+path)
		}
	}
}

func TestBackupSessionsAreNotThere(t *testing.T) {
	for _, change := range map[string]func(*httpapi.Options){
		"no source":  func(o *httpapi.Options) { o.Backups = nil },
		"no /admin/": func(o *httpapi.Options) { o.Backups, o.DisableAdminUI = someBackups(), true },
	} {
		n := newOperator(t, change)
		for path, method := range map[string]string{backupsPath: "POST", backupsPath + "/abc": "DELETE", backupsPath + "/abc/files/x": "GET"} {
			n.do(method, path, "", admin()).is(t, 404).bare(t)
		}
	}
}

// cutOff fails after its first bytes, like a file of a session that ends.
type cutOff struct{ pinned }

func (c cutOff) ReadAt(b []byte, offset int64) (int, error) {
	if offset > 1<<20 {
		return 0, &backup.Ended{Reason: backup.EndedByRedaction}
	}
	return c.pinned.ReadAt(b, offset)
}

type cutOffBackups struct{ *memBackups }

func (b cutOffBackups) File(session, name string) (backup.Content, error) {
	f, err := b.memBackups.File(session, name)
	if err != nil {
		return nil, err
	}
	return cutOff{f.(pinned)}, nil
}

// An answer that ends because the session does must not look like a whole one.
func TestBackupFileCutOff(t *testing.T) {
	b := cutOffBackups{someBackups()}
	b.files["chunk-000000.000000"] = strings.Repeat("x", 4<<20)
	n := newOperator(t, func(o *httpapi.Options) { o.Backups = b })
	server := httptest.NewServer(n.handler)
	defer server.Close()
	r, err := http.NewRequestWithContext(t.Context(), http.MethodGet, server.URL+backupsPath+"/abc/files/chunk-000000.000000", nil)
	check.Must(t, err)
	r.Header = admin()
	a := check.Value(server.Client().Do(r)).Must(t)
	got, err := io.Copy(io.Discard, a.Body)
	if a.StatusCode != http.StatusOK || !errors.Is(err, io.ErrUnexpectedEOF) || got >= 4<<20 {
		t.Errorf("%d, %d bytes, %v", a.StatusCode, got, err)
	}
	check.NoError(t, a.Body.Close())
}
