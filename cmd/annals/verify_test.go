package main

import (
	"bytes"
	"encoding/json"
	"errors"
	"io"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/annalsdb/annals/admin/verify"
	"github.com/annalsdb/annals/internal/check"
)

// runVerify runs the command and returns its exit code.
func runVerify(args ...string) (code int, stdout, stderr string) {
	var out, complaints bytes.Buffer
	code = run(append([]string{"verify"}, args...), &out, &complaints, func([]string, io.Writer, io.Writer) error {
		return errors.New("a node was started")
	})
	return code, out.String(), complaints.String()
}

// emptyDatabase makes the smallest folder that can be verified: one without any event.
func emptyDatabase(t *testing.T) string {
	t.Helper()
	dir := t.TempDir()
	files := map[string][]byte{
		"annals.format": []byte(`{"format":1,"directoryId":"5b9a7c0e-3d0f-4c5e-9a39-9f5f4a3c1a01"}`),
		"annals.lock":   nil,
		"writer.chk":    make([]byte, 8),
	}
	for name, data := range files {
		check.Must(t, os.WriteFile(filepath.Join(dir, name), data, 0o600))
	}
	return dir
}

func TestVerifyExitCodes(t *testing.T) {
	clean := emptyDatabase(t)
	torn := emptyDatabase(t)
	check.Must(t, os.WriteFile(filepath.Join(torn, "x.tmp"), nil, 0o600))
	lost := emptyDatabase(t)
	check.Must(t, os.WriteFile(filepath.Join(lost, "writer.chk"), []byte{100, 0, 0, 0, 0, 0, 0, 0}, 0o600))
	newer := emptyDatabase(t)
	check.Must(t, os.WriteFile(filepath.Join(newer, "annals.format"), []byte(`{"format":99}`), 0o600))
	file := filepath.Join(clean, "writer.chk")
	cases := []struct {
		name           string
		args           []string
		code           int
		stdout, stderr string // parts
	}{
		{"clean", []string{"--db", clean}, 0, "no errors\n", ""},
		{"notice", []string{"--db", torn}, 0, "notice leftover " + torn, ""},
		{"errors", []string{"--db", lost}, 1, "error checkpoint " + lost + "/writer.chk position 0: the log ends at 0, but was durable up to 100\n", ""},
		{"quick", []string{"--db", lost, "--quick"}, 1, "\n1 errors", ""},
		{"no such folder", []string{"--db", clean + "/none"}, 2, "", "no such file"},
		{"a file", []string{"--db", file}, 2, "", "is not a folder"},
		{"no such index", []string{"--db", clean, "--index", clean + "/none"}, 2, "", "no such file"},
		{"index in the same folder", []string{"--db", clean, "--index", clean}, 2, "", "the index does not lie"},
		{"no data folder", []string{"--db", t.TempDir()}, 2, "", "not a data folder"},
		{"newer format", []string{"--db", newer}, 2, "", "newer than"},
		{"unknown option", []string{"--dbb", clean}, 2, "", "unknown flag"},
		{"too much", []string{"--db", clean, "x"}, 2, "", "unexpected argument"},
		{"help", []string{"--help"}, 0, "Exit codes", ""},
	}
	for _, c := range cases {
		t.Run(c.name, func(t *testing.T) {
			code, stdout, stderr := runVerify(c.args...)
			if code != c.code || !strings.Contains(stdout, c.stdout) || !strings.Contains(stderr, c.stderr) || c.stderr == "" && stderr != "" {
				t.Errorf("code %d\nstdout: %s\nstderr: %s", code, stdout, stderr)
			}
		})
	}
}

func TestVerifyJSON(t *testing.T) {
	dir := emptyDatabase(t)
	check.Must(t, os.WriteFile(filepath.Join(dir, "writer.chk"), []byte{1}, 0o600))
	code, stdout, stderr := runVerify("--db", dir, "--json")
	var report verify.Report
	if err := json.Unmarshal([]byte(stdout), &report); err != nil || code != 1 || stderr != "" {
		t.Fatal(code, err, stdout, stderr)
	}
	want := verify.Finding{Severity: "error", Kind: "checkpoint", File: filepath.Join(dir, "writer.chk"), Offset: -1, Position: -1, Detail: "1 bytes, need 8"}
	if report.Problems != 1 || len(report.Findings) != 1 || report.Findings[0] != want || report.Dir != dir {
		t.Errorf("%+v", report)
	}
}

// A folder that a node has open changes: the command refuses it without --force.
func TestVerifyOfLockedFolder(t *testing.T) {
	dir := emptyDatabase(t)
	lock := check.Value(os.OpenFile(filepath.Join(dir, "annals.lock"), os.O_RDWR, 0)).Must(t)
	defer func() { check.NoError(t, lock.Close()) }()
	check.Must(t, syscall.Flock(int(lock.Fd()), syscall.LOCK_EX|syscall.LOCK_NB))
	if code, _, stderr := runVerify("--db", dir); code != 2 || !strings.Contains(stderr, "--force") {
		t.Errorf("code %d, %s", code, stderr)
	}
	if code, stdout, stderr := runVerify("--db", dir, "--force"); code != 0 || !strings.Contains(stdout, "no errors") || !strings.Contains(stderr, "verifying anyway") {
		t.Errorf("code %d, %s, %s", code, stdout, stderr)
	}
}

// failingWriter is a pipe whose reader went away.
type failingWriter struct{}

func (failingWriter) Write([]byte) (int, error) { return 0, io.ErrClosedPipe }

func TestVerifyWithoutReader(t *testing.T) {
	var stderr bytes.Buffer
	if code := run([]string{"verify", "--db", emptyDatabase(t)}, failingWriter{}, &stderr, nil); code != 2 || !strings.Contains(stderr.String(), io.ErrClosedPipe.Error()) {
		t.Errorf("code %d, %s", code, &stderr)
	}
}

func TestProgressLines(t *testing.T) {
	var stderr bytes.Buffer
	now := time.Unix(0, 0)
	told := progressLines(&stderr, func() time.Time { return now })
	told(verify.Progress{Phase: "log", Done: 1, Total: 8})
	now = now.Add(progressLineEvery)
	told(verify.Progress{Phase: "log", Done: 2, Total: 8, Records: 5})
	now = now.Add(time.Millisecond)
	told(verify.Progress{Phase: "log", Done: 3, Total: 8})
	check.Equal(t, stderr.String(), "annals: verifying the log: 25.0 %, 5 records\n")
}
