package node_test

import (
	"strings"
	"testing"

	"github.com/annalsdb/annals/config"
)

// TestSwitches: what each of the options about interfaces takes away, or opens.
func TestSwitches(t *testing.T) {
	trusted := []string{"ES-TrustedAuth", "somebody; $ops, billing"}
	type question struct {
		method, path string
		headers      []string
		status       int
	}
	get := func(path string, status int, headers ...string) question {
		return question{"GET", path, headers, status}
	}
	// What is there when nothing is switched.
	usual := []question{
		get("/stats", 200, admin()...), get("/stats", 401), get("/stats/proc", 200, admin()...), get("/stats/replication", 200, admin()...),
		get("/metrics", 200, admin()...), get("/metrics", 401),
		get("/gossip", 200), get("/", 302), get("/web", 302), get("/sys/subsystems", 200, admin()...), get("/sys/subsystems", 401),
		get("/admin/login", 200, admin()...), get("/admin/login", 401), get("/admin/cluster/members", 200, admin()...),
		get("/streams/s", 404), get("/streams/%24all", 401), get("/streams/%24all", 200, admin()...),
		get("/users/", 200, admin()...), get("/users/", 401), get("/info", 200), get("/info/options", 401), get("/info/options", 200, admin()...), get("/ping", 200),
		get("/health/live", 204), get("/health/ready", 204), get("/health/startup", 200), get("/histogram/writer-flush", 404, admin()...),
		// Without the option the header names no user.
		get("/admin/login", 401, trusted...), get("/stats", 401, trusted...),
		// Wrong credentials are refused wherever credentials are looked at.
		get("/info", 401, as("admin", "wrong")...), get("/ping", 401, as("admin", "wrong")...), get("/gossip", 401, as("admin", "wrong")...),
		get("/health/live", 204, as("admin", "wrong")...),
	}
	cases := []struct {
		name  string
		set   func(*config.Config)
		other []question // than usual
	}{
		{"nothing", func(*config.Config) {}, nil},
		{"DisableStatsOnHttp", func(c *config.Config) { c.DisableStatsOnHttp = true }, []question{
			get("/stats", 404, admin()...), get("/stats", 404), get("/stats/proc", 404, admin()...), get("/stats/replication", 404, admin()...),
			get("/metrics", 404, admin()...), get("/metrics", 404), get("/stats", 404, trusted...),
		}},
		{"DisableAdminUi", func(c *config.Config) { c.DisableAdminUi = true }, []question{
			get("/", 404), get("/web", 404), get("/sys/subsystems", 404, admin()...), get("/sys/subsystems", 404),
			get("/admin/login", 404, admin()...), get("/admin/login", 404), get("/admin/login", 404, trusted...), get("/admin/cluster/members", 404, admin()...),
			{"POST", "/admin/shutdown", admin(), 404}, {"POST", "/admin/reloadconfig", admin(), 404}, {"POST", "/admin/mergeindexes", admin(), 404},
			{"POST", "/admin/node/resign", admin(), 404}, {"POST", "/admin/node/priority/1", admin(), 404},
		}},
		{"DisableGossipOnHttp", func(c *config.Config) { c.DisableGossipOnHttp = true }, []question{
			get("/gossip", 404), get("/gossip", 401, as("admin", "wrong")...), get("/gossip", 404, admin()...),
		}},
		{"EnableAtomPubOverHttp=false", func(c *config.Config) { c.EnableAtomPubOverHttp = false }, []question{
			get("/streams/s", 404, admin()...), get("/streams/%24all", 404), get("/streams/%24all", 404, admin()...), {"POST", "/streams/s", admin(), 404},
		}},
		{"AllowAnonymousEndpointAccess", func(c *config.Config) { c.AllowAnonymousEndpointAccess = true }, []question{
			get("/stats", 200), get("/metrics", 200), get("/stats", 200, trusted...), get("/stats", 401, as("admin", "wrong")...),
		}},
		{"gossip for users only", func(c *config.Config) { c.OverrideAnonymousEndpointAccessForGossip = false }, []question{
			get("/gossip", 401), get("/gossip", 200, admin()...),
		}},
		{"gossip open with the other endpoints", func(c *config.Config) {
			c.OverrideAnonymousEndpointAccessForGossip, c.AllowAnonymousEndpointAccess = false, true
		}, []question{get("/gossip", 200), get("/stats", 200), get("/metrics", 200), get("/stats", 200, trusted...)}},
		{"AllowAnonymousStreamAccess=false", func(c *config.Config) { c.AllowAnonymousStreamAccess = false }, []question{
			get("/streams/s", 401), get("/streams/s", 404, admin()...),
		}},
		{"EnableTrustedAuth", func(c *config.Config) { c.EnableTrustedAuth = true }, []question{
			get("/admin/login", 200, trusted...), get("/stats", 200, trusted...), get("/info/options", 200, trusted...), get("/users/", 401, trusted...),
			get("/users/%24current", 404, trusted...), get("/users/", 200, "ES-TrustedAuth", "admin"), get("/info", 401, "ES-TrustedAuth", "a; b; c"),
		}},
		{"EnableHistograms", func(c *config.Config) { c.EnableHistograms = true }, []question{
			get("/histogram/writer-flush", 200, admin()...), get("/histogram/writer-flush", 401), get("/histogram/jitter", 200, admin()...), get("/histogram/nothing", 404, admin()...),
		}},
		{"Insecure", func(c *config.Config) { c.Insecure = true }, []question{
			get("/stats", 200), get("/metrics", 200), get("/sys/subsystems", 200), get("/admin/login", 200), get("/streams/%24all", 200), get("/info/options", 200),
			get("/users/", 404, admin()...), get("/users/", 404), get("/admin/login", 200, trusted...), get("/stats", 200, trusted...),
			get("/info", 200, as("admin", "wrong")...), get("/ping", 200, as("admin", "wrong")...), get("/gossip", 200, as("admin", "wrong")...),
		}},
	}
	key := func(q question) string { return q.method + " " + q.path + " " + strings.Join(q.headers, "|") }
	for _, c := range cases {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			o := options(t.TempDir())
			o.Config.MemDb = true
			c.set(o.Config)
			n := open(t, o)
			otherwise := map[string]bool{}
			for _, q := range c.other {
				otherwise[key(q)] = true
			}
			all := c.other
			for _, q := range usual {
				if !otherwise[key(q)] {
					all = append(all, q)
				}
			}
			for _, q := range all {
				if status, body := call(t, n, q.method, q.path, "", q.headers...); status != q.status {
					t.Errorf("%s %s %q: %d, want %d: %.200s", q.method, q.path, q.headers, status, q.status, body)
				}
			}
		})
	}
}
