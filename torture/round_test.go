package torture

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"net/url"
	"os"
	"path/filepath"
	"runtime"
	"strconv"
	"strings"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/annalsdb/annals/client"
	"github.com/annalsdb/annals/internal/check"
	"github.com/annalsdb/annals/internal/testkit"
)

// torture runs the command against nodes of the built binary and returns what it prints.
func torture(t *testing.T, args ...string) (s Summary, err error) {
	t.Helper()
	if runtime.GOOS != "linux" {
		t.Skip("the laboratory needs Linux")
	}
	others := goleak.IgnoreCurrent()
	t.Cleanup(func() { goleak.VerifyNone(t, others) })
	keep := filepath.Join(t.TempDir(), "keep")
	cmd := Command()
	var stdout, stderr bytes.Buffer
	cmd.SetOut(&stdout)
	cmd.SetErr(&stderr)
	cmd.SilenceErrors = true
	cmd.SetArgs(append([]string{"--json", "--keep", keep, "--progress", "1s"}, args...))
	err = cmd.ExecuteContext(t.Context())
	t.Logf("%s", &stderr)
	if err != nil && !errors.Is(err, ErrViolated) {
		return s, err
	}
	check.Must(t, json.Unmarshal(stdout.Bytes(), &s), &stdout)
	t.Logf("%s", s.Text())
	if _, missing := os.Stat(keep); (missing == nil) != (len(s.Violations) > 0) {
		t.Errorf("%d violations, and the folder for them: %v", len(s.Violations), missing)
	}
	return s, err
}

// TestOneNode torments a cluster of one node on a loopback address.
func TestOneNode(t *testing.T) {
	if s := oneNode(t, "kill,terminate,pause", 5); len(s.Outages) == 0 {
		t.Error("no fault struck")
	}
}

// TestLongOneNode is a round without faults.
func TestLongOneNode(t *testing.T) { oneNode(t, "none", 2) }

// oneNode runs a round that says something, for so many seconds or longer.
func oneNode(t *testing.T, faults string, seconds int) Summary {
	t.Helper()
	isPoor := func(s *Summary) bool {
		for _, n := range []int64{
			s.Writes[written[done]], s.Writes["sentAgain"], s.Writes["deletes"], s.Reads["leader"], s.Reads["pages"],
			s.Scavenges["started"], s.Scavenges["eventsRemoved"], s.Scavenges["finalPoints"], s.Scavenges["leadersAsked"], s.Scavenges["questions"],
			s.Groups["checkpoints"], s.Backups["restored"], s.Redactions["asked"], s.Transfers["session"], s.Transfers["sentAgain"], s.Decisions["sentAgain"], s.Projections["copies"], s.Projections["links"],
			int64(s.Linearizability.Operations), int64(s.Verified),
		} {
			if n == 0 {
				return true
			}
		}
		return int64(s.LogEvents)+s.Scavenges["eventsRemoved"] < s.Writes["eventsAcknowledged"] || s.Groups["deliveries"] < s.Groups["events"]
	}
	for ; ; seconds *= 2 { // A busy machine does little in the first.
		s, err := torture(t, "--nodes=1", "--loopback", "--binary", testkit.Binary(t), "--faults", faults, "--seconds", strconv.Itoa(seconds), "--seed=3")
		check.Must(t, err)
		check.MustEqual(t, s.Verdict, noViolation, s)
		if !isPoor(&s) {
			return s
		}
		if seconds > 60 {
			t.Fatalf("the round is too poor to say anything: %+v", s)
		}
	}
}

// TestLongDecidersOfACluster: deciders read and write at all nodes, by both interfaces.
func TestLongDecidersOfACluster(t *testing.T) {
	args := []string{"--nodes=3", "--loopback", "--binary", testkit.Binary(t), "--faults=none", "--seconds=4", "--seed=4", "--deciders=16", "--writers=1", "--indexers=1"}
	for _, none := range []string{"backups", "projections", "redactions", "scavenges"} {
		args = append(args, "--"+none+"=false")
	}
	for _, none := range []string{"consumers", "erasers", "shedders", "subscribers", "transfers", "visitors"} {
		args = append(args, "--"+none+"=0")
	}
	s, err := torture(t, args...)
	check.Must(t, err)
	for _, what := range []string{written[done], written[conflict], "byCall"} {
		if s.Decisions[what] == 0 {
			t.Errorf("no decisions, %s: %v", what, s.Decisions)
		}
	}
	check.Equal(t, s.Verdict, noViolation, s)
}

// TestAttach runs clients and checks against a node that someone else runs and writes to.
func TestAttach(t *testing.T) {
	p := testkit.StartNode(t, t.TempDir(), "--insecure")
	h := newHTTP(nil)
	defer h.Close()
	// The second time there is a log that is not ours.
	for _, consumers := range []string{"0", "8"} {
		s, err := torture(t, "--attach", p.URL(), "--seconds=1", "--consumers", consumers)
		check.Must(t, err)
		if s.Writes[written[done]] == 0 || s.Verified != 0 || s.LogEvents == 0 || (s.Groups == nil) != (consumers == "0") {
			t.Errorf("%+v", s)
		}
		to := Target{Base: p.URL(), Login: url.UserPassword("admin", "changeit")}
		a, err := exchange(t.Context(), h, to, client.Request{Method: http.MethodGet, Path: "/subscriptions"}, time.Minute)
		check.Must(t, err)
		check.Equal(t, string(a.Body), "[]", "groups are left", a)
	}
}

// startLiar starts a server that acknowledges everything and forgets it.
func startLiar(t *testing.T) *httptest.Server {
	t.Helper()
	forgetful := http.NewServeMux()
	forgetful.HandleFunc("GET /info", func(w http.ResponseWriter, _ *http.Request) { _, _ = w.Write([]byte(`{"state":"leader"}`)) })
	forgetful.HandleFunc("POST /streams/{s}", func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Location", "/streams/"+r.PathValue("s")+"/0")
		w.WriteHeader(http.StatusCreated)
	})
	forgetful.HandleFunc("GET /streams/$all/", func(w http.ResponseWriter, _ *http.Request) {
		_, _ = w.Write([]byte(`{"entries":[],"links":[{"relation":"previous","uri":"/streams/$all/` + strings.Repeat("0", 32) + `/forward/20"}]}`))
	})
	server := httptest.NewServer(forgetful)
	t.Cleanup(server.Close)
	return server
}

// TestLiar runs clients against a server that forgets everything.
func TestLiar(t *testing.T) {
	server := startLiar(t)
	s, err := torture(t, "--attach", server.URL, "--seconds=0.5", "--erasers=0", "--subscribers=0", "--visitors=0", "--indexers=0", "--deciders=0")
	check.MustBe(t, err, ErrViolated)
	for _, kind := range []string{kindLost, kindStale, kindLinear} {
		if s.Counts[kind] == 0 {
			t.Errorf("%q was not found: %v", kind, s.Counts)
		}
	}
	for _, name := range []string{"summary.json", "history.jsonl", "log.jsonl", "messages.jsonl"} {
		check.NoError(t, check.Err(os.Stat(filepath.Join(s.Kept, name))))
	}
}

// TestNobodyThere: a cluster that cannot be reached is not a violation.
func TestNobodyThere(t *testing.T) {
	gone := httptest.NewServer(http.NotFoundHandler())
	gone.Close()
	o := options{attach: []string{gone.URL}}
	c := check.Value(newGiven(o.attach)).Must(t)
	r := newRound(&o, 1, nil, t.TempDir(), t.Output(), c)
	r.startup = time.Second
	if s, err := r.run(t.Context()); err == nil || errors.Is(err, ErrViolated) {
		t.Errorf("%+v, %v", s, err)
	}
}

func TestFlags(t *testing.T) {
	for _, args := range [][]string{
		{"--nodes=0"}, {"--seconds=0"}, {"--rate=-1"}, {"--faults=kil"}, {"--keep="}, {"--timeout=0s"}, {"--writers=-1"}, {"--shedders=-1"}, {"--rounds=0"},
		{"--attach=x"}, {"--attach=http://127.0.0.1:1", "--faults=kill"}, {"more"}, {"--operations=0"},
		{"--tls", "--bit-flips=1"}, {"--tls", "--attach=http://127.0.0.1:1"},
	} {
		cmd := Command()
		var out bytes.Buffer
		cmd.SetOut(&out)
		cmd.SetErr(&out)
		cmd.SilenceErrors = true
		keep := filepath.Join(t.TempDir(), "keep")
		cmd.SetArgs(append([]string{"--keep", keep}, args...))
		if err := cmd.ExecuteContext(t.Context()); err == nil || errors.Is(err, ErrViolated) {
			t.Errorf("%q: %v", args, err)
		}
	}
}

// transferred are the words for transfers that a workload must have had.
var transferred = []string{written[conflict], "http", "records", "session", "sentAgain"}

// TestWorkload: tests that break a cluster themselves learn whether its events are there.
func TestWorkload(t *testing.T) {
	for name, c := range map[string]struct {
		node      string
		wrong     string // a kind of violation, "" for none
		transfers int64  // of each kind, at least
		others    int    // who need more than a liar
	}{
		"a node": {testkit.StartNode(t, t.TempDir(), "--insecure").URL(), "", 100, 4},
		"a liar": {startLiar(t).URL, kindLost, 0, 0},
	} {
		t.Run(name, func(t *testing.T) {
			w, err := StartWorkload(WorkloadOptions{Nodes: []string{c.node}, Seed: 1, Writers: 3, Transfers: 6, Indexers: c.others, Deciders: c.others})
			check.Must(t, err)
			defer w.Close()
			testkit.Eventually(t, time.Minute, func() error {
				if n := w.Acknowledged(); n < 50 {
					return fmt.Errorf("%d events are acknowledged", n)
				}
				for _, what := range transferred {
					if n := w.load.count.of(ofTransfers)[what]; n < c.transfers {
						return fmt.Errorf("transfers, %s: %d", what, n)
					}
				}
				for _, what := range append(decided[:], written[done], written[conflict], "sentAgain", "declined", "byCall") {
					if n := w.load.count.of(ofDecisions)[what]; n < c.transfers/5 {
						return fmt.Errorf("decisions, %s: %d", what, n)
					}
				}
				for _, what := range []string{"pages", "entries", "foundAtOnce"} {
					if n := w.load.count.of(ofIndexes)[what]; n < c.transfers/10 {
						return fmt.Errorf("indexes, %s: %d", what, n)
					}
				}
				return nil
			})
			w.Stop()
			wrong := strings.Join(w.Check(t.Context()), "\n")
			if (wrong == "") != (c.wrong == "") || !strings.Contains(wrong, c.wrong) {
				t.Errorf("%q was found, want %q", wrong, c.wrong)
			}
		})
	}
	check.Fails(t, check.Err(StartWorkload(WorkloadOptions{Nodes: []string{"nowhere"}})), "an address without a scheme")
}
