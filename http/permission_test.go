package httpapi_test

import (
	"context"
	"crypto/pbkdf2"
	"crypto/sha256"
	"encoding/json"
	"fmt"
	"maps"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"testing"
	"testing/fstest"

	"github.com/annalsdb/annals/access"
	"github.com/annalsdb/annals/event"
	httpapi "github.com/annalsdb/annals/http"
	"github.com/annalsdb/annals/internal/check"
	"github.com/annalsdb/annals/internal/testkit"
)

// storedUsers is the store as package access asks for it.
type storedUsers struct{ *memStore }

func (s storedUsers) LastEvent(ctx context.Context, stream string) (event.Record, error) {
	e, err := s.ReadEvent(ctx, stream, event.Head, nil)
	return e.Record, err
}

// setUser stores a user whose password is changeit.
func (s storedUsers) setUser(t testing.TB, login string, disabled bool, groups ...string) {
	t.Helper()
	salt := []byte("0123456789abcdef")
	hash := check.Value(pbkdf2.Key(sha256.New, "changeit", salt, 1, 32)).Must(t)
	data := check.Value(json.Marshal(map[string]any{
		"loginName": login, "salt": salt, "hash": hash, "groups": groups, "disabled": disabled, "alg": "pbkdf2-sha256", "iter": 1,
	})).Must(t)
	s.Append("$user-"+login, "$UserCreated", string(data), "")
}

// deaf is a store that takes writes and forgets them.
type deaf struct{ *memStore }

func (deaf) Write(context.Context, *event.Write) (event.Written, error) { return event.Written{}, nil }

// idle are users to whom nothing is done.
type idle struct{}

func (idle) List(context.Context) ([]access.Account, error) { return nil, nil }
func (idle) Get(context.Context, string) (access.Account, error) {
	return access.Account{}, event.ErrUserNotFound
}
func (idle) Create(context.Context, access.NewAccount) error              { return nil }
func (idle) Update(context.Context, string, string, []string) error       { return nil }
func (idle) Delete(context.Context, string) error                         { return nil }
func (idle) SetDisabled(context.Context, string, bool) error              { return nil }
func (idle) ResetPassword(context.Context, string, string) error          { return nil }
func (idle) ChangePassword(context.Context, string, string, string) error { return nil }

// access authenticates as a node does, and judges streams as it does.
type nodeAccess struct {
	*access.Authenticator
	*access.Policy
}

// mode is how a node is set up, as far as permissions go.
type mode struct {
	name                       string
	endpoints, gossip, streams bool
	trusted, insecure          bool
}

// newGuarded is a node with everything there is to serve, and real callers.
func newGuarded(t testing.TB, m mode) *node {
	var hasher = access.NewHasher(access.HasherOptions{Iterations: 1, Parallel: 1})
	o := newOperator(t, func(o *httpapi.Options) {
		store := storedUsers{o.Store.(*memStore)}
		logins := access.NewAuthenticator(store, access.AuthenticatorOptions{Insecure: m.insecure, TrustedAuth: m.trusted, Hasher: hasher})
		policy := access.NewPolicy(store, access.PolicyOptions{Insecure: m.insecure, AllowAnonymousStreamAccess: m.streams})
		o.Access = nodeAccess{logins, policy}
		o.Store, o.Users, o.Membership, o.Insecure = deaf(store), idle{}, &memMembership{view: threeMembers()}, m.insecure
		o.Subscriptions, o.Projections, o.Redactions, o.Activity = &memSubscriptions{}, &memProjections{}, &memRedactions{}, &notes{}
		o.WebDir, o.UIDir = fstest.MapFS{"index.html": {}}, fstest.MapFS{"index.html": {}}
		o.Open = opening(m.endpoints, m.gossip)
		for _, options := range []any{*o, o.Node} {
			for f, v := range reflect.ValueOf(options).Fields() {
				served := !slices.Contains([]string{"Logger", "Now", "Relay", "Startup", "Subsystems"}, f.Name)
				if k := f.Type.Kind(); served && (k == reflect.Interface || k == reflect.Func) && v.IsNil() {
					t.Errorf("%s is not there: what is served with it is not looked at", f.Name)
				}
			}
		}
	})
	store := storedUsers{o.store}
	store.setUser(t, "jane", false, "billing")
	store.setUser(t, "joe", false)
	store.setUser(t, "gone", true, "$admins")
	store.setUser(t, "olga", false, "$ops")
	store.setUser(t, "ops", false)
	store.setUser(t, "ada", false, "x", "$admins")
	store.setUser(t, "admin", false)
	acl := check.Value(json.Marshal(map[string]any{"$acl": map[string]any{
		"$r": lists["read"], "$w": lists["write"], "$d": lists["delete"], "$mr": lists["metadata read"], "$mw": lists["metadata write"],
	}})).Must(t)
	store.SetMetadata("private", string(acl))
	return o.node
}

// caller is a client that requests every operation. A refused caller gets 401 for every request.
// The others are logged in as who, or not at all when who is empty.
type caller struct {
	name    string
	header  http.Header
	onNode  bool // the connection is another node's
	refused bool
	who     string
	level   int
	roles   []string // in addition to who
}

// Levels of callers and of what they may do.
const (
	levelAnon = iota
	levelAuth
	levelOps
	levelAdmin
	levelSystem
)

func callers(m mode) []caller {
	trusted := func(header, who string, level int, roles ...string) caller {
		c := caller{name: "trusted " + header, header: with("ES-TrustedAuth", header), who: who, level: level, roles: roles}
		if !m.trusted {
			c.who, c.level, c.roles = "", levelAnon, nil
		}
		return c
	}
	malformed := trusted("a;b;c", "", levelAnon)
	malformed.refused = m.trusted
	return []caller{
		{name: "anonymous"},
		{name: "another scheme", header: with("Authorization", "Bearer x")},
		{name: "wrong password", header: as("admin", "wrong"), refused: true},
		{name: "unknown", header: as("nobody", "changeit"), refused: true},
		{name: "disabled", header: as("gone", "changeit"), refused: true},
		{name: "bad base64", header: with("Authorization", "Basic !!!"), refused: true},
		{name: "no colon", header: with("Authorization", "Basic YWRtaW4="), refused: true},
		{name: "jane", header: as("jane", "changeit"), who: "jane", level: levelAuth, roles: []string{"billing"}},
		{name: "joe", header: as("joe", "changeit"), who: "joe", level: levelAuth},
		{name: "olga of $ops", header: as("olga", "changeit"), who: "olga", level: levelOps, roles: []string{"$ops"}},
		{name: "ops", header: as("ops", "changeit"), who: "ops", level: levelOps, roles: []string{"$ops"}},
		{name: "ada of $admins", header: as("ada", "changeit"), who: "ada", level: levelAdmin},
		{name: "admin", header: as("admin", "changeit"), who: "admin", level: levelAdmin},
		trusted("jane", "jane", levelAuth),
		trusted("proxy; a, $ops", "proxy", levelOps, "a", "$ops"),
		trusted("proxy; $admins", "proxy", levelAdmin),
		malformed,
		{name: "node", onNode: true, level: levelSystem},
	}
}

// who may do what, written down once more: by method and path, and for what is
// allowed a word. Those of streams name the right.
var expectations = map[string]string{
	"GET /ping": "anon", "GET /info": "anon", "GET /": "anon", "GET /web": "anon",
	"GET /web/{path}": "open", "GET /ui": "open", "GET /ui/{path}": "open", "GET /health/live": "open", "GET /health/ready": "open", "GET /health/startup": "open",
	"GET /gossip": "gossip", "POST /gossip": "gossip",
	"GET /stats": "auth, opened", "GET /stats/history": "auth, opened", "GET /stats/{path}": "auth, opened", "GET /metrics": "auth, opened",
	"GET /info/options": "ops", "GET /sys/subsystems": "ops", "GET /histogram/{name}": "ops",
	"POST /admin/redact":   "admin",
	"POST /admin/shutdown": "ops", "POST /admin/reloadconfig": "ops", "POST /admin/mergeindexes": "ops",
	"POST /admin/node/priority/{priority}": "ops", "POST /admin/node/resign": "ops",
	"GET /admin/cluster/members": "ops", "POST /admin/cluster/members": "ops", "DELETE /admin/cluster/members/{node}": "ops",
	"POST /admin/scavenge": "ops", "GET /admin/scavenge/current": "ops", "DELETE /admin/scavenge/current": "ops",
	"GET /admin/scavenge/last": "ops", "DELETE /admin/scavenge/{id}": "ops",
	"GET /admin/backup/sessions": "ops", "POST /admin/backup/sessions": "ops", "DELETE /admin/backup/sessions/{id}": "ops",
	"GET /admin/backup/sessions/{id}/files/{name}": "ops",
	"POST /admin/backup":                           "ops", "GET /admin/backup/current": "ops", "DELETE /admin/backup/current": "ops", "GET /admin/backup/last": "ops", "GET /admin/backup/list": "ops",
	"GET /admin/doctor": "ops", "GET /admin/login": "auth",

	"GET /users": "admin", "POST /users": "admin", "GET /users/": "admin", "POST /users/": "admin",
	"GET /users/$current": "auth",
	"GET /users/{login}":  "admin or jane", "PUT /users/{login}": "admin", "DELETE /users/{login}": "admin",
	"POST /users/{login}/command/enable": "admin", "PUT /users/{login}/command/enable": "admin",
	"POST /users/{login}/command/disable": "admin", "PUT /users/{login}/command/disable": "admin",
	"POST /users/{login}/command/reset-password": "admin", "POST /users/{login}/command/change-password": "jane",

	"GET /subscriptions": "auth", "GET /subscriptions/{stream}": "auth", "GET /subscriptions/restart": "auth", "POST /subscriptions/restart": "ops",
	"PUT /subscriptions/{stream}/{subscription}": "ops", "POST /subscriptions/{stream}/{subscription}": "ops",
	"DELETE /subscriptions/{stream}/{subscription}": "ops", "POST /subscriptions/{stream}/{subscription}/replayParked": "ops",
	"POST /subscriptions/{stream}/{subscription}/pause": "ops", "POST /subscriptions/{stream}/{subscription}/resume": "ops",
	"GET /subscriptions/{stream}/{subscription}/info":  "auth",
	"GET /subscriptions/{stream}/{subscription}/reset": "ops", "POST /subscriptions/{stream}/{subscription}/reset": "ops",
	"GET /subscriptions/{stream}/{subscription}": "reader", "GET /subscriptions/{stream}/{subscription}/{count}": "reader",
	"POST /subscriptions/{stream}/{subscription}/ack": "reader", "POST /subscriptions/{stream}/{subscription}/ack/{id}": "reader",
	"POST /subscriptions/{stream}/{subscription}/nack": "reader", "POST /subscriptions/{stream}/{subscription}/nack/{id}": "reader",
	"GET /subscriptions/{stream}/{subscription}/parked": "reader", "POST /subscriptions/{stream}/{subscription}/parked/replay": "ops",
	"POST /subscriptions/{stream}/{subscription}/parked/forward": "ops", "POST /subscriptions/{stream}/{subscription}/parked/drop": "ops", "POST /subscriptions/{stream}/{subscription}/parked/note": "ops",
	"GET /subscriptions/viewparkedmessages/{stream}/{subscription}/{number}/backward/{count}": "reader",
	"GET /subscriptions/viewparkedmessages/{stream}/{subscription}/{number}/forward/{count}":  "reader",

	"GET /projections": "auth", "GET /projections/any": "auth", "GET /projections/all-non-transient": "auth", "GET /projections/transient": "auth",
	"GET /projections/onetime": "auth", "GET /projections/continuous": "auth", "POST /projections/transient": "auth", "POST /projections/onetime": "auth",
	"POST /projections/continuous": "auth", "POST /projections/read-events": "auth", "POST /projections/restart": "ops",
	"GET /projection/{name}": "auth", "DELETE /projection/{name}": "ops", "GET /projection/{name}/statistics": "auth", "GET /projection/{name}/state": "auth",
	"GET /projection/{name}/result": "auth", "GET /projection/{name}/partitions": "auth", "GET /projection/{name}/query": "auth", "PUT /projection/{name}/query": "auth",
	"GET /projection/{name}/config": "ops", "PUT /projection/{name}/config": "ops", "POST /projection/{name}/command/enable": "auth",
	"POST /projection/{name}/command/disable": "auth", "POST /projection/{name}/command/reset": "auth", "POST /projection/{name}/command/abort": "auth",
	"GET /projection/{name}/rebuild": "ops", "POST /projection/{name}/rebuild": "ops", "DELETE /projection/{name}/rebuild": "ops", "POST /projection/{name}/rebuild/swap": "ops",
	"GET /web/es/js/projections/v8/Prelude/Modules.js": "anon", "GET /web/es/js/projections/v8/Prelude/Projections.js": "anon",
	"GET /web/es/js/projections/v8/Prelude/1Prelude.js": "anon", "GET /web/es/js/projections/es.projections.environment.js": "anon",

	"POST /streams":         "each",
	"GET /streams/{stream}": "read", "POST /streams/{stream}": "write", "DELETE /streams/{stream}": "delete",
	"GET /streams/{stream}/": "anon", "POST /streams/{stream}/": "anon", "DELETE /streams/{stream}/": "anon",
	"GET /streams/{stream}/{number}": "read", "GET /streams/{stream}/{number}/{count}": "read",
	"GET /streams/{stream}/at/{time}": "read", "GET /streams/$all/at/{time}": "read", "GET /streams/$all/names": "read", "GET /index": "auth", "GET /index/categories": "read", "GET /index/types": "read", "POST /admin/index/rebuild": "ops", "GET /query": "read", "POST /query": "read",
	"GET /streams/{stream}/{number}/backward/{count}": "read", "GET /streams/{stream}/{number}/forward/{count}": "read",
	"GET /streams/$scavenges/{id}/{number}/{count}": "read",
	"POST /streams/{stream}/incoming/{id}":          "write",
	"GET /streams/{stream}/metadata":                "metadata read", "POST /streams/{stream}/metadata": "metadata write",
	"GET /streams/{stream}/metadata/": "anon", "POST /streams/{stream}/metadata/": "anon",
	"GET /streams/{stream}/metadata/{number}": "metadata read", "GET /streams/{stream}/metadata/{number}/{count}": "metadata read",
	"GET /streams/{stream}/metadata/{number}/backward/{count}": "metadata read",
	"GET /streams/{stream}/metadata/{number}/forward/{count}":  "metadata read",
	"GET /streams/$all": "read", "POST /streams/$all": "write", "DELETE /streams/$all": "delete",
	"GET /streams/$all/{position}/{count}": "read", "GET /streams/$all/{position}/backward/{count}": "read",
	"GET /streams/$all/{position}/forward/{count}": "read",
	"GET /streams/$all/filtered":                   "read", "GET /streams/$all/filtered/{position}/{count}": "read",
	"GET /streams/$all/filtered/{position}/backward/{count}": "read", "GET /streams/$all/filtered/{position}/forward/{count}": "read",
}

// words are how the table of the interface says the same.
var words = map[string]string{
	"open": "everyone; credentials are not looked at", "anon": "everyone", "gossip": "any user", "auth, opened": "any user", "auth": "any user",
	"ops": "operators", "admin": "administrators", "admin or jane": "administrators, or the user itself", "jane": "the user itself alone",
	"reader": "any user with the stream's read right",
	"read":   "the stream's read right", "write": "the stream's write right", "delete": "the stream's delete right",
	"each":          "the write right of each stream written to, the read right of each that is only checked",
	"metadata read": "the stream's metadata read right", "metadata write": "the stream's metadata write right",
}

// lists gives the roles, besides admins, that have each right on the private stream.
var lists = map[string][]string{
	"read": {"billing"}, "write": {"joe"}, "delete": {"$ops", "x"}, "metadata read": {"jane", "joe"}, "metadata write": {},
}

// allowed says whether a caller may do something to what the path names.
func allowed(m mode, c *caller, what, path string) bool {
	level := c.level
	if m.insecure {
		level = levelSystem
	}
	switch what {
	case "open", "anon", "each": // That depends on what the body says.
		return true
	case "gossip":
		return m.gossip || m.endpoints || level >= levelAuth
	case "auth, opened":
		return m.endpoints || level >= levelAuth
	case "auth":
		return level >= levelAuth
	case "ops":
		return level >= levelOps
	case "admin":
		return level >= levelAdmin
	case "admin or jane":
		return level >= levelAdmin || c.who == "jane"
	case "jane":
		return c.who == "jane"
	}
	if what == "reader" {
		if level < levelAuth {
			return false
		}
		what = "read"
	}
	// What is left are rights to streams.
	// The history of a scavenge is a stream of its own: not the one that the path begins with.
	name := strings.Replace(path, "/$scavenges/", "/$scavenges-", 1)
	if strings.HasPrefix(path, "/index/") {
		name = event.AllStream
	}
	for _, prefix := range []string{"/streams/", "/subscriptions/", "viewparkedmessages/"} {
		name = strings.TrimPrefix(name, prefix)
	}
	name, _, _ = strings.Cut(name, "/")
	if name == "$$private" {
		switch what {
		case "read", "write":
			what = "metadata " + what
		}
		name = "private"
		if what == "delete" {
			return false
		}
	}
	switch {
	case name == "$all" && (what == "write" || what == "delete"):
		return false
	case level >= levelAdmin:
		return true
	case level == levelAnon && !m.streams, name == "$all", name == "$ce-a", strings.HasPrefix(name, "$scavenges-"):
		return false
	case name == "private":
		return slices.ContainsFunc(append(c.roles, c.who), func(role string) bool { return slices.Contains(lists[what], role) })
	}
	return true
}

// samples are the paths of a pattern.
func samples(pattern string) []string {
	path := strings.NewReplacer("{path}", "1", "{name}", "1", "{priority}", "1", "{node}", "1", "{login}", "jane", "{number}", "0", "{time}", "2020-01-01T00:00:00Z", "{count}", "1", "{subscription}", "g", "{position}", "head",
		"{id}", "0f9fad5b-d9cb-469f-a165-70867728950e").Replace(pattern)
	if !strings.Contains(path, "{stream}") {
		return []string{path}
	}
	var paths []string
	for _, stream := range []string{"plain", "private", "$$private", "$ce-a"} {
		paths = append(paths, strings.Replace(path, "{stream}", stream, 1))
	}
	return paths
}

// TestPermissions asks for everything in every way as everybody, and compares
// who is let in with what the server says of itself and with what it should be.
func TestPermissions(t *testing.T) {
	for _, m := range []mode{
		{name: "default", gossip: true},
		{name: "closed gossip"},
		{name: "open endpoints", endpoints: true},
		{name: "open streams", gossip: true, streams: true},
		{name: "trusted", gossip: true, trusted: true},
		{name: "insecure", gossip: true, insecure: true},
	}[:testkit.Fewer(1, 6)] { // One goroutine does it all: the race detector sees nothing here.
		t.Run(m.name, func(t *testing.T) {
			n := newGuarded(t, m)
			// what each method of a path needs, by pattern
			methods := map[string]map[string]string{}
			for _, e := range n.server.Endpoints() {
				what, ok := expectations[e.Method+" "+e.Path]
				if !ok {
					t.Errorf("%s %s: nobody said who may", e.Method, e.Path)
				}
				check.Equal(t, e.Who, words[what], e.Method+" "+e.Path)
				if methods[e.Path] == nil {
					methods[e.Path] = map[string]string{}
				}
				methods[e.Path][e.Method] = what
			}
			for key := range expectations {
				method, pattern, _ := strings.Cut(key, " ")
				if _, ok := methods[pattern][method]; !ok && !(m.insecure && strings.HasPrefix(pattern, "/users")) {
					t.Errorf("%s is not served", key)
				}
			}
			for pattern, of := range methods {
				for _, path := range samples(pattern) {
					for _, c := range callers(m) {
						n.walk(t, m, &c, of, path)
					}
				}
			}
		})
	}
}

// walk sends every method to a path as a caller, and compares the status with
// what the methods of the path need.
func (n *node) walk(t *testing.T, m mode, c *caller, of map[string]string, path string) {
	t.Helper()
	ignored := of["GET"] == "open"
	for _, method := range []string{"GET", "HEAD", "POST", "PUT", "DELETE", "PATCH", "OPTIONS", "TRACE", "FOO"} {
		a := n.ask(c, method, path)
		name := fmt.Sprintf("%s: %s %s as %s", m.name, method, path, c.name)
		what, ok := of[method]
		if method == "HEAD" {
			what, ok = of["GET"]
		}
		switch {
		case method == "OPTIONS":
			check.Equal(t, a.status, 200, name)
		case c.refused && !m.insecure && !ignored:
			check.Equal(t, a.status, 401, name)
		case !ok:
			check.Equal(t, a.status, 405, name)
		case allowed(m, c, what, path):
			if slices.Contains([]int{401, 403, 405, 406, 415}, a.status) {
				t.Errorf("%s: %d, is allowed", name, a.status)
			}
		default:
			check.Equal(t, a.status, 401, name)
			if want := "Unauthorized"; method != http.MethodHead {
				check.Equal(t, a.body, want, name)
			}
		}
		challenge := a.header.Get("WWW-Authenticate")
		if (a.status == 401) != (challenge == `X-Basic realm="ESDB"`) {
			t.Errorf("%s: %d with challenge %q", name, a.status, challenge)
		}
	}
}

// ask sends a request that lacks nothing but, it may be, the right to it.
func (n *node) ask(c *caller, method, path string) answer {
	body := `{"members":[],"loginName":"u","password":"p","newPassword":"p","currentPassword":"p"}`
	ctx := context.Background()
	if c.onNode {
		ctx = access.WithNodeConn(ctx)
	}
	r := httptest.NewRequestWithContext(ctx, method, base+path, strings.NewReader(body))
	maps.Copy(r.Header, c.header)
	r.Header.Set("Content-Type", appJSON)
	r.Header.Set("ES-EventType", "t")
	// Repeated failures from one address are slowed.
	n.ids++
	r.RemoteAddr = fmt.Sprintf("10.%d.%d.%d:1", n.ids>>16&0xff, n.ids>>8&0xff, n.ids&0xff)
	return n.serve(r)
}

// callsHead is where the page comes to gRPC. A test of gRPC writes what follows.
const callsHead = "\n## Calls over gRPC\n"

// TestPermissionsDocument compares the list of who may do what with its file.
func TestPermissionsDocument(t *testing.T) {
	n := newGuarded(t, mode{gossip: true})
	var b strings.Builder
	b.WriteString(permissionsHead)
	for _, e := range n.server.Endpoints() {
		fmt.Fprintf(&b, "| %s | `%s` | %s | %s |\n", e.Method, e.Path, e.Who, e.Note)
	}
	page := filepath.Join("..", "docs", "permissions.md")
	_, calls, _ := strings.Cut(string(check.Value(os.ReadFile(page)).Must(t)), callsHead)
	compareFile(t, page, b.String()+callsHead+calls)
}

const permissionsHead = `# Who may do what

A test makes this list from the server's table of routes. Do not edit it: run ` + "`make golden`" + `.

- **everyone** needs no credentials. Wrong credentials are still refused with 401, except on paths
  that do not look at credentials.
- **any user** is a caller with the right credentials of any user.
- **operators** are members of ` + "`$ops`" + ` and ` + "`$admins`" + `, and the users ` + "`ops`" + ` and ` + "`admin`" + `.
- **administrators** are members of ` + "`$admins`" + `, and the user ` + "`admin`" + `.
- **the user itself** is the user with the login in the path.
- **any user with** a right needs both: the right credentials, and the stream's right.
- **the stream's rights** are in its access list. If the list does not mention a right, ` + "`$settings`" + `
  decides; if that does not mention it either, everyone has it, and for streams whose names begin
  with ` + "`$`" + ` only administrators. Administrators have all rights. But no one appends to ` + "`$all`" + `,
  deletes it, or deletes a metadata stream.

Other nodes of the cluster count as administrators and operators. They show certificates, or prove
on one machine that the same user runs them ([cluster](cluster.md#without-certificates)). With
` + "`Insecure`" + ` every caller is an administrator, and there are no users to manage. The answer to a
refused request is 401, never 403, whether the target exists or not. ` + "`OPTIONS`" + ` works on all paths
without credentials, and ` + "`HEAD`" + ` has the rules of ` + "`GET`" + `.

## Links

A link resolves only for a caller who may read the stream that it leads to. This holds for single
events, pages, long polls, live tails, gRPC, groups, the desk, and sources of projections. For other
callers it is a link to an event that does not exist. A caller who may read ` + "`$all`" + ` sees every event
there.

## Open connections

The node checks live tails, long polls, downloads and gRPC calls with many messages every second,
and a poll when it answers. They end when the user is deleted or disabled, gets another password, or
loses the right through groups or the access list.

## With whose rights something runs

| What | With the rights of | Changed by |
| --- | --- | --- |
| transient query | the user who wrote its text last | that user, operators |
| one-time or continuous projection | the user who wrote its text last. If an operator rewrites an administrator's projection, it has an operator's rights | operators |
| built-in projection | the node; its text only sets names | operators |
| group | each consumer's own; the group has no rights of its own | operators |
| desk of parked messages | the caller | operators |
| backup session, scavenge | the node; the caller's login is in the log | operators |
| redaction | the node; the caller's login is in ` + "`$redactions`" + ` | administrators |

A projection has the rights that its user has now: it faults when the user is deleted or disabled.
Its state and result are for operators, for the user that it runs as, and for callers who may read
its sources.

## Paths

The last column names options. If an option is true, callers without credentials may use the path:
on streams with the role ` + "`$all`" + ` alone, elsewhere as if they had the right.

| Method | Path | Who | Without credentials |
| --- | --- | --- | --- |
`
