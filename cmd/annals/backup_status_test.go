package main

import (
	"bytes"
	"errors"
	"fmt"
	"net/url"
	"strings"
	"testing"
	"time"

	"github.com/annalsdb/annals/internal/check"
)

func TestBackupStatus(t *testing.T) {
	t.Setenv(passwordVariable, "")
	const lastPath, currentPath = "GET /admin/backup/last", "GET /admin/backup/current"
	const none, never = `{"backupId":""}`, `{"backupId":"","result":"Unknown"}`
	last := func(result, problem string) string {
		return fmt.Sprintf(`{"backupId":"a","result":%q,"error":%s,"kind":"full","position":4711,"time":null,"bytes":3145728,"bytesCopied":1048576,`+
			`"seconds":1.5,"checked":true,"started":"2026-01-02T03:04:05Z","ended":"2026-01-02T03:04:06.5Z"}`, result, problem)
	}
	for _, c := range []struct {
		name    string
		answers map[string][]string
		code    int
		want    []string
	}{
		{"none yet", map[string][]string{currentPath: {none}, lastPath: {never}}, 0, []string{"None", "no backup has been made yet"}},
		{"well", map[string][]string{currentPath: {none}, lastPath: {last("Success", "null")}}, 0, []string{"Success", "2026-01-02T03:04:06.5Z", "3.0 MiB", "1.0 MiB", "yes"}},
		{"well, and one runs", map[string][]string{currentPath: {`{"backupId":"b","phase":"Copying","done":1024,"total":4096}`}, lastPath: {last("Success", "null")}}, 0,
			[]string{"Success", "copying, 1.0 KiB of 4.0 KiB (25 %)"}},
		{"failed", map[string][]string{currentPath: {none}, lastPath: {last("Failed", `"no space left"`)}}, 1, []string{"Failed", "no space left"}},
		{"not configured", map[string][]string{currentPath: {"400 Backup is not configured: BackupTo"}}, 0, []string{"does not back itself up: BackupTo is not set"}},
		{"not permitted", map[string][]string{currentPath: {"401 "}}, 1, []string{"asks for credentials"}},
	} {
		t.Run(c.name, func(t *testing.T) {
			_, address := scavenger(t, c.answers)
			u := check.Value(url.Parse(address)).Must(t)
			c.answers[getGossip] = []string{fmt.Sprintf(`{"members":[{"state":"Leader","isAlive":true,"httpEndPointIp":%q,"httpEndPointPort":%s},`+
				`{"state":"Follower","isAlive":false,"httpEndPointIp":"gone.example","httpEndPointPort":2113}]}`, u.Hostname(), u.Port())}
			var out, complaints bytes.Buffer
			// The other member is dead, and the output always says so.
			if code := run([]string{"backup", "status", "--node", address}, &out, &complaints, nil); code != 1 {
				t.Errorf("code %d: %s", code, complaints.String())
			}
			for _, want := range append(c.want, "Leader", "gone.example:2113", "not alive as") {
				check.Contains(t, out.String(), want, "lacks")
			}
			c.answers[getGossip] = []string{"404 "}
			out.Reset()
			if code := run([]string{"backup", "status", "--json", "--node", address}, &out, &complaints, nil); code != c.code {
				t.Errorf("alone: code %d, expected %d: %s %s", code, c.code, out.String(), complaints.String())
			}
		})
	}
	var out, complaints bytes.Buffer
	for _, args := range []string{"backup status --node 127.0.0.1:1", "backup status x", "backup status --nope"} {
		if code := run(strings.Fields(args), &out, &complaints, nil); code != 2 || out.Len() > 0 {
			t.Errorf("%s: code %d: %s", args, code, out.String())
		}
	}
}

func TestBackupStatusTable(t *testing.T) {
	ended, problem := "2026-01-02T03:04:06Z", "write /backups: no space left on device"
	nodes := []backupNode{
		{Node: "a:2113", State: "Leader", Backs: true, Last: &backupLast{Result: "Success", Ended: &ended, Bytes: 3 << 30, Copied: 5 << 20, Checked: true}},
		{Node: "b:2113", State: "Follower", Backs: true, Last: &backupLast{Result: "Failed", Ended: &ended, Error: &problem}},
		{Node: "c:2113", State: "ReadOnlyReplica"},
	}
	var out bytes.Buffer
	err := printBackupStatus(&out, nodes, false, time.Date(2026, 1, 3, 4, 5, 6, 0, time.UTC))
	if coded, ok := errors.AsType[*codedError](err); !ok || coded.code != exitProblems {
		t.Errorf("error %v", err)
	}
	const want = `NODE    STATE            RESULT   ENDED                 AGE    BYTES    COPIED   CHECKED  NOTE
a:2113  Leader           Success  2026-01-02T03:04:06Z  25h1m  3.0 GiB  5.0 MiB  yes      -
b:2113  Follower         Failed   2026-01-02T03:04:06Z  25h1m  -        -        -        write /backups: no space left on device
c:2113  ReadOnlyReplica  -        -                     -      -        -        -        does not back itself up: BackupTo is not set
`
	check.Equal(t, out.String(), want)
}
