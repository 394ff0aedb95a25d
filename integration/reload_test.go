package integration_test

import (
	"errors"
	"fmt"
	"net/http"
	"path"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/annalsdb/annals/internal/testkit"
)

// TestReload changes the level of the log while the node runs, by signal and by request.
func TestReload(t *testing.T) {
	t.Parallel()
	folder := t.TempDir()
	set := func(text string) string { return writeText(t, folder, "annals.conf", text) }
	node := testkit.StartNode(t, t.TempDir(), "--config", set("LogLevel: Warning\n"), "--log-http-requests", "--log-failed-authentication-attempts")
	ways := []struct {
		name string
		do   func(t *testing.T)
	}{
		{"signal", func(*testing.T) { node.Signal(syscall.SIGHUP) }},
		{"request", func(t *testing.T) { order(t, node, "/admin/reloadconfig", http.StatusOK) }},
	}
	for _, way := range ways {
		t.Run(way.name, func(t *testing.T) {
			mark := logMark{t: t, node: node}
			mark.awaitLogged(false)
			set("LogLevel: Information\n")
			way.do(t)
			mark.awaitLogged(true)
			if o := readOptions(t, node.Client, "changeit")["LogLevel"]; *o.Value != "Information" || o.ConfigurationSource != "Yaml" {
				t.Errorf("the level is shown as %s", *o.Value)
			}

			// What is wrong with a file is said, and nothing of it is taken over.
			for what, text := range map[string]string{
				"not-yaml": "LogLevel: [", "unknown-option": "LogLevel: Error\nLogLevle: Debug\n", "bad-value": "LogLevel: Loud\n", "would-not-start": "LogLevel: Error\nClusterSize: 0\n",
			} {
				before := strings.Count(node.Stderr(), "was not reloaded")
				set(text)
				way.do(t)
				testkit.Eventually(t, reloadLimit, func() error {
					if strings.Count(node.Stderr(), "was not reloaded") == before {
						return fmt.Errorf("a file that is %s was not complained of", what)
					}
					return nil
				})
				mark.awaitLogged(true)
			}
			set("LogLevel: Warning\n")
			way.do(t)
			mark.awaitLogged(false)
		})
	}
	must(t, node, testkit.Request{Method: http.MethodPost, Path: "/admin/reloadconfig"}, http.StatusUnauthorized)
	node.Stop()
}

// reloadLimit is how long a test waits for what the node does without being waited for.
const reloadLimit = 30 * time.Second

// logMark finds out what a node logs that logs requests, as information, and
// refused logins, as warnings.
type logMark struct {
	t      *testing.T
	node   *testkit.Process
	number int
}

// awaitLogged waits until requests are logged, or are not. A request is logged
// before the next one on its connection is read: if a refused login that follows
// is there, it is there as well, or not at all.
func (m *logMark) awaitLogged(want bool) {
	m.t.Helper()
	testkit.Eventually(m.t, reloadLimit, func() error {
		m.number++
		stream, login := fmt.Sprintf("/streams/%s-%d", path.Base(m.t.Name()), m.number), fmt.Sprintf("%s-marks-%d", path.Base(m.t.Name()), m.number)
		if answer, err := m.node.Do(m.t.Context(), testkit.Request{Path: stream}); err != nil || answer.Status != http.StatusNotFound {
			return fmt.Errorf("%s: %s, %v", stream, answer, err)
		}
		testkit.Eventually(m.t, reloadLimit, func() error {
			// Of many in one second some are left out.
			if answer, err := m.node.Do(m.t.Context(), testkit.Request{Path: "/ping", User: login, Password: "guess"}); err != nil || answer.Status != http.StatusUnauthorized {
				return fmt.Errorf("a wrong password: %s, %v", answer, err)
			}
			if !strings.Contains(m.node.Stderr(), login) {
				return errors.New("a refused login is not in the log")
			}
			return nil
		})
		if strings.Contains(m.node.Stderr(), stream+" ") != want {
			return fmt.Errorf("requests are logged: %t", !want)
		}
		return nil
	})
}

// order sends a POST of an administrator.
func order(t *testing.T, node *testkit.Process, path string, status int) {
	t.Helper()
	must(t, node, testkit.Request{Method: http.MethodPost, Path: path, Admin: true}, status)
}

// TestShutdownByRequest: the node answers first, and ends as in any other orderly way.
func TestShutdownByRequest(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	node := testkit.StartNode(t, dir)
	l := fill(t, node, 20, 10)
	for _, r := range []testkit.Request{{}, {User: "admin", Password: "guess"}} {
		r.Method, r.Path = http.MethodPost, "/admin/shutdown"
		must(t, node, r, http.StatusUnauthorized)
	}
	must(t, node, testkit.Request{Path: "/admin/shutdown", Admin: true}, http.StatusMethodNotAllowed)
	answer, err := node.Do(t.Context(), testkit.Request{Method: http.MethodPost, Path: "/admin/shutdown", User: "ops", Password: "changeit"})
	if err != nil || answer.Status != http.StatusOK || len(answer.Body) > 0 {
		t.Errorf("shutdown: %s, %v", answer, err)
	}
	if code := node.Wait(settleLimit); code != 0 {
		t.Errorf("exit code %d\n%s", code, node.Output())
	}
	if got := complaints(node); len(got) > 0 {
		t.Errorf("complaints: %q", got)
	}
	verifyClean(t, dir)
	next := testkit.StartNode(t, dir)
	for _, sign := range []string{"cutting", "rebuilt", "removing"} {
		if log := next.Stderr(); strings.Contains(log, sign) {
			t.Errorf("the start behind it had something to repair (%q):\n%s", sign, log)
		}
	}
	l.checkNode(t, next)
	next.Stop()
}
