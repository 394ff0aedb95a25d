package main

import (
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"
)

// TestExplains: the scheme, the password and the right are three different mistakes, each with what
// to do.
func TestExplains(t *testing.T) {
	users := http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		_, password, _ := r.BasicAuth()
		switch {
		case r.URL.Path == "/ping":
		case r.URL.Path == "/users/$current" && password == "right":
			_, _ = w.Write([]byte("{}"))
		default:
			w.WriteHeader(http.StatusUnauthorized)
		}
	})
	plain, secure := httptest.NewServer(users), httptest.NewTLSServer(users)
	defer plain.Close()
	defer secure.Close()
	host := func(s *httptest.Server) string { _, host, _ := strings.Cut(s.URL, "://"); return host }
	other := strings.NewReplacer("http://", "https://", "https://", "http://")
	for _, c := range []struct{ name, node, password, want string }{
		{"no password", plain.URL, "", host(plain) + " asks for credentials: set ANNALS_PASSWORD to the password of jane, or see --user and --password"},
		{"wrong password", plain.URL, "wrong", host(plain) + ` does not accept user "jane" with this password: correct --user, and ANNALS_PASSWORD or --password`},
		{"missing right", plain.URL, "right", `user "jane" may not do this on ` + host(plain) + ": ask as a user who has the right, with --user, or have an administrator give it"},
		{"HTTPS to a port of HTTP", other.Replace(plain.URL), "right", host(plain) + " speaks plain HTTP, not HTTPS: write --node http://" + host(plain)},
		{"HTTP to a port of HTTPS", other.Replace(secure.URL), "right", host(secure) + " speaks HTTPS, not plain HTTP: write --node https://" + host(secure) + ", and --ca with the folder of its authority"},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Setenv(passwordVariable, c.password)
			for _, command := range []string{"doctor", "cluster list", "scavenge status", "projection list", "user list"} {
				begun := time.Now()
				code, stdout, stderr := runLine(append(strings.Fields(command), "--user", "jane", "--node", c.node)...)
				if code == 0 || stdout != "" || stderr != "annals: "+c.want+"\n" {
					t.Errorf("%s: code %d after %s\n%s%s", command, code, time.Since(begun), stdout, stderr)
				}
			}
		})
	}
}
