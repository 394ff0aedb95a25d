package main

import (
	"bytes"
	"context"
	"encoding/json"
	"encoding/pem"
	"errors"
	"io"
	"net/http/httptest"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/hashicorp/go-hclog"

	"github.com/annalsdb/annals/internal/check"
)

func TestScavengeHelp(t *testing.T) {
	var all strings.Builder
	for _, line := range []string{"", "start --help", "stop --help", "status --help", "dry-run --help"} {
		code, stdout, stderr := runScavenge(strings.Fields(line)...)
		check.MustEqual(t, code, 0, line, "code")
		check.Equal(t, stderr, "", line)
		all.WriteString("$ annals " + strings.TrimSpace("scavenge "+line) + "\n" + stdout + "\n")
	}
	compareGolden(t, "scavenge_help.golden", all.String())
}

// compareGolden compares a text with a file of testdata.
func compareGolden(t *testing.T, name, got string) {
	t.Helper()
	file := filepath.Join("testdata", name)
	if *update {
		check.Must(t, os.WriteFile(file, []byte(got), 0o600))
	}
	want := check.Value(os.ReadFile(file)).Must(t)
	check.Equal(t, got, string(want), file, "differs (rewrite it with -update and review the diff)")
}

func TestScavengeArguments(t *testing.T) {
	t.Setenv(passwordVariable, "")
	n, address := scavenger(t, map[string][]string{postRun: {accepted}})
	for _, c := range []struct {
		args   string
		stderr string
	}{
		{"begin", `unknown command "begin", see annals scavenge --help`},
		{"start now", `unexpected argument "now"`},
		{"stop a b", "accepts at most 1 arg(s)"},
		{"start --threads 0", "--threads must be 1 or above"},
		{"start --throttle 0", "--throttle must be between 1 and 100"},
		{"start --throttle 101", "--throttle must be between 1 and 100"},
		{"start --throttle 50 --threads 2", "--throttle must be 100 with more than one thread"},
		{"start --threshold 4294967296", "invalid argument"},
		{"start --wait --detach", "[detach wait] were all set"},
		{"start --all --detach", "--all and --detach exclude each other"},
		{"start --interval 0s", "--interval must be above 0"},
		{"start --retry-for -1s", "--retry-for must not be below 0"},
		{"status --progress dots", `--progress "dots" is none of auto, bar, lines, none`},
		{"dry-run --top 0", "--top must be 1 or above"},
		{"status --node ftp://h", "is not of the form"},
		{"stop --ca /nowhere", "no such file"},
	} {
		t.Run(c.args, func(t *testing.T) {
			args := strings.Fields(c.args)
			if !strings.Contains(c.args, "--node") {
				args = append(args, "--node", address)
			}
			expect(t, args, 2, nil, []string{c.stderr})
		})
	}
	expect(t, []string{"stop", " ", "--node", address}, 2, nil, []string{"the id of the scavenge is empty"})
	if asked := n.asked(); len(asked) > 0 {
		t.Errorf("asked %q", asked)
	}
}

// TestScavengeRequests: what is given, and only that, reaches the node.
func TestScavengeRequests(t *testing.T) {
	for _, c := range []struct {
		args, env, asked string
	}{
		{"start --detach", "", "POST /admin/scavenge"},
		{"start --wait=false", "e", "e POST /admin/scavenge"},
		{"start --detach --threads 9 --threshold -1", "", "POST /admin/scavenge?threads=9&threshold=-1"},
		{"start --detach --throttle 20 --sync-only --password p", "e", "p POST /admin/scavenge?syncOnly=true&throttlePercent=20"},
		{"stop", "", "DELETE /admin/scavenge/current"},
		{"stop " + testRun, "", "DELETE /admin/scavenge/" + testRun},
		{"stop a/b?c", "", "DELETE /admin/scavenge/a%2Fb%3Fc"},
		{"dry-run", "", "POST /admin/scavenge?dryRun=true&threshold=0&top=10"},
		{"dry-run --threshold -5 --top 99", "", "POST /admin/scavenge?dryRun=true&threshold=-5&top=99"},
	} {
		t.Run(c.args, func(t *testing.T) {
			t.Setenv(passwordVariable, c.env)
			n, address := scavenger(t, nil)
			code, stdout, _ := runScavenge(append(strings.Fields(c.args), "--node", address)...)
			if asked := n.asked(); code != 1 || stdout != "" || len(asked) != 1 || asked[0] != c.asked {
				t.Errorf("code %d, asked %q, stdout %s", code, asked, stdout)
			}
		})
	}
}

// TestScavengeEnds: every way in which a run ends that is followed.
func TestScavengeEnds(t *testing.T) {
	t.Setenv(passwordVariable, "")
	half := running("Chunk execution Phase", 2, 4, "chunks")
	for _, c := range []struct {
		name          string
		current, last []string
		head          string
		code          int
		stdout        []string
		stderr        []string
	}{
		{
			name: "success", current: []string{half, half, noRun}, last: []string{ended(testRun, "Success", "")},
			stdout: []string{"result       Success\n", "time taken   1m1.5s\n", "removed      12345 events, 3.5 MiB\n", "3 rewritten, 2 left as they are, 4 merged\n"},
			stderr: []string{"scavenge " + testRun + " started on 127.0.0.1:1\n", "chunk execution, 2 of 4 chunks (50.0 %); 20 B saved\n"},
		},
		{
			name: "before the first look", current: []string{noRun}, last: []string{ended(testRun, "Success", "")},
			stdout: []string{"Success"}, stderr: []string{"started on"},
		},
		{
			name: "between the questions", current: []string{noRun}, last: []string{ended(testRun, "InProgress", ""), ended(testRun, "Success", "")},
			stdout: []string{"Success"}, stderr: []string{"started on"},
		},
		{
			name: "stopped", current: []string{half, noRun}, last: []string{ended(testRun, "Stopped", "")}, code: 3,
			stdout: []string{"result       Stopped\n"}, stderr: []string{"was stopped; the next start resumes it"},
		},
		{
			name: "errored", current: []string{half, noRun}, last: []string{ended(testRun, "Errored", "disk\tfull")}, code: 1,
			stdout: []string{"result       Errored\n", `error        "disk\tfull"`}, stderr: []string{testRun, `failed: disk\tfull`},
		},
		{
			name: "an unknown result", current: []string{noRun}, last: []string{ended(testRun, "Odd", "")}, code: 1,
			stdout: []string{"Odd"}, stderr: []string{"failed: Odd"},
		},
		{
			name: "interrupted by a restart, as history tells", current: []string{half, unheard, unheard, noRun}, last: []string{never},
			head: completed("Failed", "The node was restarted."), code: 1,
			stdout: []string{"result       Errored\n", "2.0 KiB"}, stderr: []string{"does not answer", "answers again", "failed: The node was restarted."},
		},
		{
			name: "completed before a restart", current: []string{half, noRun}, last: []string{never}, head: completed("Success", ""),
			stdout: []string{"Success"}, stderr: []string{"started on"},
		},
		{
			name: "interrupted, history is silent", current: []string{half, noRun}, last: []string{never}, head: `{"eventType":"$scavengeStarted","data":{}}`, code: 1,
			stderr: []string{"was restarted and did not resume scavenge " + testRun + ": annals scavenge start --node http://127.0.0.1:1 resumes it"},
		},
		{
			name: "followed by another", current: []string{half, strings.ReplaceAll(half, testRun, otherRun)}, last: []string{ended(otherRun, "InProgress", "")}, code: 1,
			stderr: []string{"has begun another scavenge since; the stream $scavenges-" + testRun + " says how scavenge " + testRun + " ended"},
		},
		{
			name: "followed by another, history tells", current: []string{half, strings.ReplaceAll(half, testRun, otherRun)}, last: []string{ended(otherRun, "InProgress", "")},
			head: completed("Stopped", ""), code: 3, stdout: []string{"Stopped"}, stderr: []string{"was stopped"},
		},
		{
			name: "a node without last", current: []string{half, noRun}, last: []string{"405 "}, head: completed("Success", ""),
			stdout: []string{"Success"}, stderr: []string{"started on"},
		},
		{
			name: "starting again", current: []string{half, "503 Server Is Not Ready", half, noRun}, last: []string{ended(testRun, "Success", "")},
			stdout: []string{"Success"}, stderr: []string{"is not ready: Server Is Not Ready; trying again for 400ms", "answers again"},
		},
		{
			name: "gone for good", current: []string{half, unheard}, last: []string{never}, code: 1,
			stderr: []string{"EOF; scavenge " + testRun + " may continue there: see annals scavenge status --watch --node http://127.0.0.1:1\n"},
		},
		{
			name: "no more permitted", current: []string{half, "401 "}, last: []string{never}, code: 1,
			stderr: []string{"asks for credentials: set ANNALS_PASSWORD"},
		},
		{
			name: "no JSON", current: []string{half, "<html>"}, last: []string{never}, code: 1, stderr: []string{"something other than JSON"},
		},
		{
			name: "an answer of another kind", current: []string{half, "[]"}, last: []string{never}, code: 1, stderr: []string{"read the answer of 127.0.0.1:1"},
		},
	} {
		t.Run(c.name, func(t *testing.T) {
			for _, progress := range []string{"lines", "bar"} {
				answers := map[string][]string{postRun: {accepted}, getCurrent: slices.Clone(c.current), getLast: slices.Clone(c.last)}
				if c.head != "" {
					answers[getHead] = []string{c.head}
				}
				n, address := scavenger(t, answers)
				stderr := slices.Clone(c.stderr)
				if progress == "bar" {
					stderr = slices.DeleteFunc(stderr, func(s string) bool { return strings.Contains(s, "of 4 chunks") })
				}
				expect(t, []string{"start", "--node", address, "--interval", "2ms", "--retry-for", "400ms", "--progress", progress}, c.code, c.stdout, stderr)
				if asked := n.asked(); asked[0] != postRun || strings.Contains(strings.Join(asked[1:], ""), "POST") {
					t.Errorf("asked %q", asked)
				}
			}
		})
	}
}

func TestScavengeStartRefused(t *testing.T) {
	for _, c := range []struct {
		name, answer, password, stderr string
	}{
		{"running", "400 Scavenge is already running", "", "a scavenge is running on 127.0.0.1:1: follow it with annals scavenge status --watch --node http://127.0.0.1:1\n"},
		{"locked", "400 Failed to acquire the chunk switch lock", "", "refuses: Failed to acquire the chunk switch lock (status 400)"},
		{"not ready", "503 The log is not open yet.", "", "127.0.0.1:1 is not ready: The log is not open yet."},
		{"not ready, no text", "503 ", "", "is not ready: it may be starting or stopping"},
		{"no credentials", "401 ", "", "asks for credentials: set ANNALS_PASSWORD to the password of admin"},
		{"wrong credentials", "401 ", "p", `does not accept user "admin" with this password (ANNALS_PASSWORD or --password)`},
		{"no admin", "404 ", "", "does not serve /admin/scavenge: it is not a node of this version, or DisableAdminUi is set"},
		{"redirect", "307 ", "", "refuses: Temporary Redirect (status 307)"},
		{"odd text", "500 a\x1bb", "", `refuses: "a\x1bb" (status 500)`},
		{"no id", "{}", "", "does not say which scavenge it started"},
		{"broken off", unheard, "", "does not answer: EOF; whether one was started is shown by annals scavenge status --node http://127.0.0.1:1\n"},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Setenv(passwordVariable, c.password)
			n, address := scavenger(t, map[string][]string{postRun: {c.answer}})
			expect(t, []string{"start", "--node", address}, 1, nil, []string{c.stderr})
			want := []string{c.password + " " + postRun}
			if c.password != "" { // It asks why it was refused.
				want = append(want, c.password+" GET /users/$current")
			} else {
				want[0] = strings.TrimSpace(want[0])
			}
			check.Slice(t, n.asked(), want, "asked")
		})
	}
	code, stdout, stderr := runScavenge("start", "--node", "127.0.0.1:1")
	if code != 1 || stdout != "" || stderr != "annals: 127.0.0.1:1 refuses the connection: no node listens there\n" {
		t.Errorf("code %d, %s%s", code, stdout, stderr)
	}
}

func TestScavengeDetach(t *testing.T) {
	_, address := scavenger(t, map[string][]string{postRun: {accepted}})
	if code, stdout, stderr := runScavenge("start", "--detach", "--node", address); code != 0 || stdout != testRun+"\n" || stderr != "" {
		t.Errorf("code %d, %s%s", code, stdout, stderr)
	}
	want := "{\n  \"node\": \"127.0.0.1:1\",\n  \"scavengeId\": \"" + testRun + "\"\n}\n"
	if code, stdout, stderr := runScavenge("start", "--detach", "--json", "--node", address); code != 0 || stdout != want || stderr != "" {
		t.Errorf("code %d, %s%s", code, stdout, stderr)
	}
}

// TestScavengeInterrupted: Ctrl-C ends the following, and nothing is stopped.
func TestScavengeInterrupted(t *testing.T) {
	for _, progress := range []string{"lines", "bar", "none"} {
		n, address := scavenger(t, map[string][]string{postRun: {accepted}, getCurrent: {running("Accumulation Phase", 1, 2, "bytes")}})
		ctx, cancel := context.WithCancel(t.Context())
		var stdout bytes.Buffer
		// The follower is interrupted by what it prints itself: that is when it follows.
		stderr := &interrupting{cancel: cancel, progress: progress}
		s := scavengeStart{
			scavengeFlags: &scavengeFlags{
				clusterFlags: clusterFlags{node: address, timeout: time.Minute},
				interval:     time.Millisecond, retryFor: time.Minute, progress: progress,
			},
			stdout: &stdout, stderr: stderr, threads: 1, throttle: 100,
		}
		c, err := s.connect(address)
		check.Must(t, err)
		defer c.Close()
		err = s.run(ctx, &scavengeClient{c, s.scavengeFlags})
		coded, ok := errors.AsType[*codedError](err)
		text := port.ReplaceAllString(stderr.printed.String(), "127.0.0.1:1")
		want := "annals: scavenge " + testRun + " continues on 127.0.0.1:1\n" +
			"annals: follow it again: annals scavenge status --watch --node http://127.0.0.1:1\n" +
			"annals: stop it: annals scavenge stop " + testRun + " --node http://127.0.0.1:1\n"
		if !ok || coded.code != 130 || coded.err != nil || stdout.Len() > 0 || !strings.HasSuffix(text, "\n"+want) {
			t.Errorf("%s: %v, stdout %s\nstderr %q", progress, err, &stdout, text)
		}
		if asked := strings.Join(n.asked(), " "); strings.Contains(asked, "DELETE") {
			t.Errorf("%s: asked %s", progress, asked)
		}
	}
}

// interrupting cancels when the progress is shown.
type interrupting struct {
	printed  bytes.Buffer
	cancel   context.CancelFunc
	progress string
}

func (w *interrupting) Write(b []byte) (int, error) {
	if w.progress == "none" || bytes.Contains(b, []byte("accumulation")) {
		w.cancel()
	}
	return w.printed.Write(b)
}

func TestScavengeStop(t *testing.T) {
	_, address := scavenger(t, map[string][]string{
		stopRun:                          {`"` + testRun + `"`},
		"DELETE /admin/scavenge/gone":    {"404 Scavenge Id does not exist"},
		"DELETE /admin/scavenge/strange": {`{}`},
		"DELETE /admin/scavenge/broken":  {unheard},
		"DELETE /admin/scavenge/slow":    {"408 Server was unable to handle request in time"},
	})
	expect(t, []string{"stop", "--node", address}, 0, []string{testRun + "\n"}, nil)
	expect(t, []string{"stop", "--node", address, "--json"}, 0, []string{`"scavengeId": "` + testRun + `"`}, nil)
	expect(t, []string{"stop", "gone", "--node", address}, 1, nil, []string{"annals: scavenge gone is not running on 127.0.0.1:1\n"})
	expect(t, []string{"stop", "strange", "--node", address}, 1, nil, []string{"read the answer"})
	expect(t, []string{"stop", "broken", "--node", address}, 1, nil, []string{"; whether it was stopped is shown by annals scavenge status"})
	expect(t, []string{"stop", "slow", "--node", address}, 1, nil, []string{"in time (status 408); whether it was stopped is shown by annals scavenge status"})
	_, address = scavenger(t, map[string][]string{stopRun: {"404 Scavenge Id does not exist"}})
	expect(t, []string{"stop", "--node", address}, 1, nil, []string{"annals: no scavenge is running on 127.0.0.1:1\n"})
}

func TestScavengeStatus(t *testing.T) {
	half := running("Index execution Phase", 1<<20, 4<<20, "bytes")
	for _, c := range []struct {
		name          string
		current, last string
		want          []string
	}{
		{"running", half, never, []string{
			"scavenge     " + testRun + "\n", "state        running: index execution, 1.0 MiB of 4.0 MiB (25.0 %)\n",
			"started      2026-01-02 03:04:05 UTC, resumes a run that was stopped\n", "time taken   ",
			"point        4@$scavengePoints at position 1000, of 2026-01-02 03:04:04 UTC, threshold 5\n", "threads      2, active 100 % of the time\n",
		}},
		{"starting", running("Idle", 0, 0, ""), never, []string{"state        running: starting\n"}},
		{"without a total", running("Calculation Phase", 5, 0, "streams"), never, []string{"running: calculation, 5 streams\n"}},
		{"of another make", accepted, never, []string{"running: starting\n"}},
		{"ended", noRun, ended(testRun, "Success", ""), []string{"result       Success\n", "ended        2026-01-02 03:05:06 UTC\n", "threads      1, active 50 % of the time\n"}},
		{"failed", noRun, ended(testRun, "Errored", "why"), []string{"result       Errored\n", "error        why\n"}},
		{"none", noRun, never, []string{"no scavenge is running on 127.0.0.1:1, and none has since it started; earlier ones are in the stream $scavenges\n"}},
		{"unknown last", noRun, "404 ", []string{"no scavenge is running"}},
	} {
		t.Run(c.name, func(t *testing.T) {
			_, address := scavenger(t, map[string][]string{getCurrent: {c.current}, getLast: {c.last}})
			expect(t, []string{"status", "--node", address}, 0, c.want, nil)
		})
	}
	_, address := scavenger(t, map[string][]string{getCurrent: {half}})
	code, stdout, stderr := runScavenge("status", "--json", "--node", address)
	var document map[string]any
	if err := json.Unmarshal([]byte(stdout), &document); err != nil || code != 0 || stderr != "" ||
		document["scavengeResult"] != "InProgress" || document["done"] != 1048576.0 || document["node"] != "127.0.0.1:1" {
		t.Errorf("code %d, %v\n%s%s", code, err, stdout, stderr)
	}
	_, address = scavenger(t, map[string][]string{getCurrent: {"503 Not yet."}})
	expect(t, []string{"status", "--node", address}, 1, nil, []string{"is not ready: Not yet."})
}

func TestScavengeWatch(t *testing.T) {
	half := running("Chunk merging Phase", 1, 3, "chunks")
	_, address := scavenger(t, map[string][]string{getCurrent: {half, half, noRun}, getLast: {ended(testRun, "Stopped", "")}})
	args := []string{"status", "--watch", "--node", address, "--interval", "2ms"}
	expect(t, args, 3, []string{"Stopped"}, []string{"chunk merging, 1 of 3 chunks (33.3 %)", "was stopped"})
	// The run was stopped before there was something to follow, which is not a failure of this
	// command.
	expect(t, args, 0, []string{"Stopped"}, nil)
	_, address = scavenger(t, map[string][]string{getCurrent: {half, noRun}, getLast: {ended(testRun, "Success", "")}})
	expect(t, []string{"status", "--watch", "--node", address, "--interval", "2ms", "--json", "--progress", "none"}, 0, []string{`"scavengeResult": "Success"`}, nil)
}

func TestScavengeTimeout(t *testing.T) {
	_, address := serveHanging(t)
	expect(t, []string{"status", "--node", address, "--timeout", "20ms"}, 1, nil, []string{"127.0.0.1:1 does not answer: nothing within 20ms"})
	expect(t, []string{"dry-run", "--node", address, "--timeout", "20ms"}, 1, nil, []string{"nothing within 20ms"})
	expect(t, []string{"stop", "--node", address, "--timeout", "20ms"}, 1, nil, []string{"; whether it was stopped is shown by"})
}

func TestScavengeOverTLS(t *testing.T) {
	s := httptest.NewUnstartedServer(&fakeScavenger{answers: map[string][]string{stopRun: {`"` + testRun + `"`}}})
	s.Config.ErrorLog = hclog.NewNullLogger().StandardLogger(nil)
	s.StartTLS()
	t.Cleanup(s.Close)
	dir := t.TempDir()
	certificate := pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: s.Certificate().Raw})
	check.Must(t, os.WriteFile(filepath.Join(dir, "ca.crt"), certificate, 0o600))
	expect(t, []string{"stop", "--node", s.URL}, 1, nil, []string{"the certificate of 127.0.0.1:1 is not trusted: tls: failed to verify certificate", "; see --ca"})
	expect(t, []string{"stop", "--node", s.URL, "--ca", dir}, 0, []string{testRun}, nil)
	expect(t, []string{"stop", "--node", s.URL, "--insecure-skip-verify"}, 0, []string{testRun}, nil)
}

func TestScavengeWithoutReader(t *testing.T) {
	_, address := scavenger(t, map[string][]string{
		postRun: {accepted}, getCurrent: {noRun}, getLast: {ended(testRun, "Success", "")}, stopRun: {`"x"`},
	})
	for _, command := range []string{"start", "start --json", "start --detach", "stop", "status", "status --json"} {
		var stderr bytes.Buffer
		args := append([]string{"scavenge"}, strings.Fields(command+" --node "+address)...)
		if code := run(args, failingWriter{}, &stderr, nil); code != 1 || !strings.Contains(stderr.String(), io.ErrClosedPipe.Error()) {
			t.Errorf("%s: code %d, %s", command, code, &stderr)
		}
	}
}
