package api_test

import (
	"bytes"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/hashicorp/go-hclog"

	"github.com/annalsdb/annals/api"
)

// TestRefusedLogins: a line has the login within bounds and never the password, and a flood
// of refusals is one of ten lines a second.
func TestRefusedLogins(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var b bytes.Buffer
		l := api.NewRefusedLogins(hclog.New(&hclog.LoggerOptions{Output: &b, DisableTime: true}))
		note := func(login string, times int) string {
			r := httptest.NewRequest(http.MethodGet, "/", nil)
			r.SetBasicAuth(login, "secret")
			for range times {
				l.Note(r)
			}
			defer b.Reset()
			return b.String()
		}
		line := func(login, more string) string {
			return "[WARN]  credentials were refused: login=" + login + " remote=192.0.2.1:1234" + more + "\n"
		}
		check := func(name, got, want string) {
			t.Helper()
			if got != want || strings.Contains(got, "secret") {
				t.Errorf("%s: %q, want %q", name, got, want)
			}
		}
		time.Sleep(time.Minute)
		check("plain", note("jane", 1), line("jane", ""))
		check("control characters", note("a\nb\x00", 1), line(`a\nb\x00`, ""))
		check("long", note(strings.Repeat("x", 100_000), 1), line(strings.Repeat("x", 256)+"...", ""))
		time.Sleep(time.Second)
		check("first second", note("admin", 1000), strings.Repeat(line("admin", ""), 10))
		time.Sleep(999 * time.Millisecond)
		check("still the first second", note("admin", 10), "")
		time.Sleep(time.Millisecond)
		check("next second", note("admin", 11), line("admin", " left_out=1000")+strings.Repeat(line("admin", ""), 9))
		time.Sleep(time.Hour)
		check("much later", note("admin", 1), line("admin", " left_out=1"))
		l = nil
		check("switched off", note("admin", 1), "")
	})
}
