package main

import (
	"bytes"
	"encoding/pem"
	"errors"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	"github.com/hashicorp/go-hclog"

	"github.com/annalsdb/annals/internal/check"
)

const (
	memberText = "NodeId  State\n1       Leader\n"

	removedText = " is removed. Once it is stopped it stays in the list for DeadMemberRemovalPeriodSec, half an hour by default, and nothing more is to be done.\n"
	memberJSON  = "[\n  {\n    \"nodeId\": \"1\"\n  }\n]"
)

// fakeMember answers as a node does and remembers what it was asked for.
type fakeMember struct {
	mu       sync.Mutex
	requests []string
	answer   func(w http.ResponseWriter, r *http.Request) // nil: the list
}

func (n *fakeMember) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	n.mu.Lock()
	defer n.mu.Unlock()
	user, password, ok := r.BasicAuth()
	if ok {
		user += ":" + password + " "
	}
	n.requests = append(n.requests, user+r.Method+" "+r.URL.RequestURI())
	switch {
	case n.answer != nil:
		n.answer(w, r)
	case r.Header.Get("Accept") == "application/json":
		w.Header().Set("Content-Type", "application/json; charset=utf-8")
		_, _ = io.WriteString(w, memberJSON)
	default:
		w.Header().Set("Content-Type", "text/plain; charset=utf-8")
		_, _ = io.WriteString(w, memberText)
	}
}

func (n *fakeMember) asked() string {
	n.mu.Lock()
	defer n.mu.Unlock()
	all := strings.Join(n.requests, ", ")
	n.requests = nil
	return all
}

// runCluster runs the command and returns its exit code.
func runCluster(args ...string) (code int, stdout, stderr string) {
	var out, complaints bytes.Buffer
	code = run(append([]string{"cluster"}, args...), &out, &complaints, func([]string, io.Writer, io.Writer) error {
		return errors.New("a node was started")
	})
	return code, out.String(), complaints.String()
}

// serve starts a fake node without TLS.
func serve(t *testing.T, answer func(w http.ResponseWriter, r *http.Request)) (*fakeMember, string) {
	t.Helper()
	n := &fakeMember{answer: answer}
	s := httptest.NewServer(n)
	t.Cleanup(s.Close)
	return n, s.URL
}

func TestClusterCommands(t *testing.T) {
	t.Setenv(passwordVariable, "")
	n, address := serve(t, nil)
	bare := strings.TrimPrefix(address, "http://")
	for _, c := range []struct {
		name  string
		args  []string
		env   string
		asked string
		want  string
	}{
		{"list", []string{"list", "--node", address}, "", "GET /admin/cluster/members", memberText},
		{"list as JSON", []string{"list", "--json", "--node", address + "/"}, "", "GET /admin/cluster/members", memberJSON + "\n"},
		{"flags before the command", []string{"--node", bare, "list"}, "", "GET /admin/cluster/members", memberText},
		{"below a path", []string{"list", "--node", address + "/proxy/"}, "", "GET /proxy/admin/cluster/members", memberText},
		{"password", []string{"list", "--node", address, "--password", "p"}, "", "admin:p GET /admin/cluster/members", memberText},
		{"password of the environment", []string{"list", "--node", address, "--user", "ops"}, "e", "ops:e GET /admin/cluster/members", memberText},
		{"both passwords", []string{"list", "--node", address, "--password", "p"}, "e", "admin:p GET /admin/cluster/members", memberText},
		{"add", []string{"add", "10.0.0.2:1112", "--node", address}, "", "POST /admin/cluster/members?node=10.0.0.2%3A1112", memberText},
		{"add as JSON", []string{"add", "a&b=c", "--node", address, "--json"}, "", "POST /admin/cluster/members?node=a%26b%3Dc", memberJSON + "\n"},
		{"remove", []string{"remove", "[::1]:1112", "--node", address}, "", "DELETE /admin/cluster/members/%5B::1%5D:1112", memberText + "[::1]:1112" + removedText},
		{"remove an odd name", []string{"remove", "a/b?c", "--node", address}, "", "DELETE /admin/cluster/members/a%2Fb%3Fc", memberText + "a/b?c" + removedText},
		{"remove as JSON", []string{"remove", "a", "--json", "--node", address}, "", "DELETE /admin/cluster/members/a", memberJSON + "\n"},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Setenv(passwordVariable, c.env)
			code, stdout, stderr := runCluster(c.args...)
			if asked := n.asked(); code != 0 || stdout != c.want || stderr != "" || asked != c.asked {
				t.Errorf("code %d, asked %q\nstdout: %s\nstderr: %s", code, asked, stdout, stderr)
			}
		})
	}
}

func TestClusterArguments(t *testing.T) {
	t.Setenv(passwordVariable, "")
	n, address := serve(t, nil)
	empty := t.TempDir()
	broken := t.TempDir()
	check.Must(t, os.WriteFile(filepath.Join(broken, "a.pem"), []byte("x"), 0o600))
	for _, c := range []struct {
		name   string
		args   []string
		stderr string
	}{
		{"unknown command", []string{"join"}, `unknown command "join", see annals cluster --help`},
		{"too much", []string{"list", "x"}, `unexpected argument "x", see annals cluster list --help`},
		{"nobody", []string{"add"}, "accepts 1 arg(s)"},
		{"two", []string{"remove", "a", "b"}, "accepts 1 arg(s)"},
		{"nothing", []string{"add", " ", "--node", address}, "the name of the node is empty"},
		{"unknown option", []string{"list", "--nodes", address}, "unknown flag: --nodes, did you mean --node?"},
		{"no host", []string{"list", "--node", "http://"}, "is not of the form"},
		{"other scheme", []string{"list", "--node", "ftp://h"}, "is not of the form"},
		{"credentials in the address", []string{"list", "--node", "http://u:secret@h"}, `"http://u:xxxxx@h" is not of the form`},
		{"query", []string{"list", "--node", address + "?a=b"}, "is not of the form"},
		{"broken address", []string{"list", "--node", "http://h:x"}, "address of the node: parse"},
		{"no such folder", []string{"list", "--node", address, "--ca", empty + "/none"}, "no such file"},
		{"empty folder", []string{"list", "--node", address, "--ca", empty}, "holds no certificate of an authority"},
		{"broken certificate", []string{"list", "--node", address, "--ca", broken}, "a.pem holds no certificate"},
		{"all or some", []string{"list", "--node", address, "--ca", broken, "--insecure-skip-verify"}, "exclude each other"},
	} {
		t.Run(c.name, func(t *testing.T) {
			code, stdout, stderr := runCluster(c.args...)
			if asked := n.asked(); code != 2 || stdout != "" || !strings.Contains(stderr, c.stderr) || asked != "" {
				t.Errorf("code %d, asked %q\nstdout: %s\nstderr: %s", code, asked, stdout, stderr)
			}
		})
	}
	code, stdout, stderr := runCluster()
	if code != 0 || !strings.Contains(stdout, "ANNALS_PASSWORD") || !strings.Contains(stdout, "remove") || stderr != "" {
		t.Errorf("code %d\nstdout: %s\nstderr: %s", code, stdout, stderr)
	}
}

// refuse answers with a status and a text.
func refuse(status int, text string) func(http.ResponseWriter, *http.Request) {
	return func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", "text/plain; charset=utf-8")
		w.WriteHeader(status)
		_, _ = io.WriteString(w, text)
	}
}

func TestClusterRefusals(t *testing.T) {
	t.Setenv(passwordVariable, "")
	for _, c := range []struct {
		name     string
		status   int
		text     string
		password string
		stderr   string
	}{
		{"no credentials", 401, "", "", "asks for credentials: set ANNALS_PASSWORD to the password of admin, or see --user and --password"},
		{"wrong credentials", 401, "", "p", `does not accept user "admin" with this password`},
		{"no cluster", 404, "", "", "does not serve /admin/cluster/members"},
		{"a reason", 400, "The node is a member already.", "", "refuses: The node is a member already. (status 400)"},
		{"no leader", 503, "Server Is Not Ready", "", "refuses: Server Is Not Ready (status 503)"},
		{"out of time", 408, "", "", "could not finish in time"},
		{"no text", 500, "", "", "refuses: Internal Server Error (status 500)"},
		{"odd text", 400, "a\n\tb\x1b\xff", "", `refuses: "a b\x1b"`},
		{"another server", 200, "<html>", "", "answered something other than a list of members"},
	} {
		t.Run(c.name, func(t *testing.T) {
			n, address := serve(t, refuse(c.status, c.text))
			args := []string{"add", "h:1", "--node", address, "--password", c.password}
			if c.status == 200 {
				args = append(args, "--json")
			}
			code, stdout, stderr := runCluster(args...)
			if code != 1 || stdout != "" || !strings.Contains(stderr, c.stderr) || strings.Count(stderr, "\n") != 1 {
				t.Errorf("code %d\nstdout: %s\nstderr: %s", code, stdout, stderr)
			}
			if asked := n.asked(); strings.Count(asked, "POST") != 1 {
				t.Errorf("asked %q", asked)
			}
		})
	}
	code, _, stderr := runCluster("list", "--node", "127.0.0.1:1", "--timeout", "10s")
	if code != 1 || !strings.Contains(stderr, "127.0.0.1:1") {
		t.Errorf("code %d, %s", code, stderr)
	}
}

func TestClusterTimeout(t *testing.T) {
	released := make(chan struct{})
	_, address := serve(t, func(http.ResponseWriter, *http.Request) { <-released })
	code, _, stderr := runCluster("list", "--node", address, "--timeout", "20ms")
	close(released)
	if code != 1 || !strings.Contains(stderr, "no answer within 20ms") {
		t.Errorf("code %d, %s", code, stderr)
	}
}

func TestClusterFollowsToTheLeader(t *testing.T) {
	t.Setenv(passwordVariable, "")
	leader, leaderAddress := serve(t, nil)
	// Another name for the same machine: credentials must get there all the same.
	named := strings.Replace(leaderAddress, "127.0.0.1", "localhost", 1)
	follower, address := serve(t, func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Location", named+r.URL.RequestURI())
		w.WriteHeader(http.StatusTemporaryRedirect)
	})
	code, stdout, stderr := runCluster("add", "h:1", "--node", address, "--password", "p")
	if code != 0 || stdout != memberText || stderr != "" {
		t.Errorf("code %d\nstdout: %s\nstderr: %s", code, stdout, stderr)
	}
	const want = "admin:p POST /admin/cluster/members?node=h%3A1"
	check.Equal(t, follower.asked()+", "+leader.asked(), want+", "+want, "asked")
}

func TestClusterRedirects(t *testing.T) {
	t.Setenv(passwordVariable, "")
	to := ""
	n, address := serve(t, func(w http.ResponseWriter, r *http.Request) {
		if to != "" {
			w.Header().Set("Location", to)
		}
		w.WriteHeader(http.StatusTemporaryRedirect)
	})
	for _, c := range []struct{ name, to, stderr string }{
		{"in circles", address + "/admin/cluster/members", "redirected more than 4 times"},
		{"nowhere", "", "redirects to nowhere"},
		{"elsewhere", "file:///etc/passwd", "which is not followed"},
	} {
		to = c.to
		code, stdout, stderr := runCluster("list", "--node", address)
		if code != 1 || stdout != "" || !strings.Contains(stderr, c.stderr) {
			t.Errorf("%s: code %d\nstdout: %s\nstderr: %s", c.name, code, stdout, stderr)
		}
	}
	check.Equal(t, strings.Count(n.asked(), "GET"), 5+2, "asked ... times")
}

func TestClusterOverTLS(t *testing.T) {
	t.Setenv(passwordVariable, "p")
	plain, plainAddress := serve(t, nil)
	n := &fakeMember{}
	s := httptest.NewUnstartedServer(n)
	s.Config.ErrorLog = hclog.NewNullLogger().StandardLogger(nil)
	s.StartTLS()
	t.Cleanup(s.Close)
	certificates := map[string][]byte{
		"ca.pem": pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: s.Certificate().Raw}),
		"ca.DER": s.Certificate().Raw,
	}
	code, _, stderr := runCluster("list", "--node", s.URL)
	if code != 1 || !strings.Contains(stderr, "certificate") {
		t.Errorf("unknown authority: code %d, %s", code, stderr)
	}
	trusted := [][]string{{"--insecure-skip-verify"}}
	for name, data := range certificates {
		dir := t.TempDir()
		for file, content := range map[string][]byte{name: data, "notes.txt": []byte("not read")} {
			check.Must(t, os.WriteFile(filepath.Join(dir, file), content, 0o600))
		}
		check.Must(t, os.Mkdir(filepath.Join(dir, "old.pem"), 0o700))
		trusted = append(trusted, []string{"--ca", dir})
	}
	for _, args := range trusted {
		code, stdout, stderr := runCluster(append(args, "list", "--node", s.URL)...)
		if code != 0 || stdout != memberText || stderr != "" {
			t.Errorf("%v: code %d\nstdout: %s\nstderr: %s", args, code, stdout, stderr)
		}
	}
	n.mu.Lock()
	n.answer = func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Location", plainAddress+r.URL.RequestURI())
		w.WriteHeader(http.StatusTemporaryRedirect)
	}
	n.mu.Unlock()
	code, _, stderr = runCluster("list", "--node", s.URL, "--insecure-skip-verify")
	if asked := plain.asked(); code != 1 || !strings.Contains(stderr, "the password is not sent there without TLS") || asked != "" {
		t.Errorf("code %d, asked %q, %s", code, asked, stderr)
	}
}

func TestClusterWithoutReader(t *testing.T) {
	_, address := serve(t, nil)
	var stderr bytes.Buffer
	if code := run([]string{"cluster", "list", "--node", address}, failingWriter{}, &stderr, nil); code != 1 || !strings.Contains(stderr.String(), io.ErrClosedPipe.Error()) {
		t.Errorf("code %d, %s", code, &stderr)
	}
}
