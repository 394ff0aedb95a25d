package lint

import (
	"slices"
	"strings"
	"testing"

	"github.com/annalsdb/annals/internal/check"
)

// A row says what a package and its children may import of this module.
type row struct {
	of  string
	may []string
}

// tools are the folders below internal that every package with a row of imports may use: they have
// no domain meaning and start nothing. internal/vfs is not among them: only the packages that own
// files get it.
var tools = []string{"internal/bell", "internal/clock", "internal/hang", "internal/jsontext", "internal/logkey", "internal/match", "internal/milestone", "internal/owner", "internal/spelling", "internal/xmljson"}

// imports is the table of who may import whom. An entry also stands for the
// children of that folder. Packages import themselves and their own children
// and parents freely. "*" is everything except cmd, integration, bench and torture.
var imports = []row{
	// What events say of themselves is read from JSON.
	{"event/label", with("event")},
	{"event", nil},
	{"stats", nil},
	{"config", []string{"internal/spelling"}},
	{"web", nil},
	// What Go programs import to use a cluster needs nothing of the server, nor of others.
	{"client", nil},
	{"examples", []string{"client"}},
	{"internal/testkit/permission", []string{"api", "access"}},
	{"internal/testkit", []string{"node", "client", "config", "event", "fsm", "log", "internal/vfs"}},
	// The translation between XML and JSON reads and writes JSON: one scanner for both.
	{"internal/xmljson", []string{"internal/jsontext"}},
	// Operations on a disk that hang are found in one place, those of the file system included.
	{"internal/vfs", []string{"internal/hang", "internal/clock"}},
	{"internal/certs", []string{"internal/owner", "internal/vfs"}},
	{"internal/lab", []string{"internal/bell", "internal/logkey"}},
	{"internal/h2", []string{"internal/bell"}},
	{"internal/localsocket", []string{"internal/logkey"}},
	{"internal", nil},
	{"log/chunkfile", with("event", "internal/vfs")},
	{"log/datadir", with("event", "internal/vfs")},
	{"log", with("event", "stats", "internal/vfs")},
	{"access", with("event", "stats", "internal/vfs")},
	{"fsm", with("event", "log", "stats")},
	{"replication", with("event", "stats", "internal/vfs", "internal/throttle", "internal/network")},
	// The one reader that continues: below everyone who follows a stream or the log.
	{"catchup", with("event", "stats")},
	{"subscription", with("catchup", "event", "stats")},
	{"projection", with("catchup", "event", "stats")},
	{"admin", with("event", "log", "stats", "internal/vfs", "internal/network")},
	{"http/atom", with("event", "subscription")},
	// Below the rooms of http: what requests say, and the documents that answer them.
	{"http/media", nil},
	{"http/caching", []string{"event", "http/media"}},
	{"http/outline", with()},
	{"http/problem", with("api", "event", "admin", "subscription", "projection")},
	{"http/args", with("event", "http/problem")},
	{"http/address", []string{"http/atom", "http/args"}},
	// A request on its way to its answer, on this node or on another.
	{"http/request", with("api", "event", "access", "admin/activity", "internal/http1", "http/atom", "http/media", "http/caching", "http/outline", "http/problem", "http/args", "http/address")},
	{"http/leader", with("api", "event", "internal/http1", "http/request", "http/problem", "http/args", "http/media", "http/caching")},
	{"http/page", with("api", "event", "http/leader", "http/request", "http/media", "http/caching", "http/problem", "http/args")},
	// The rooms, none of which knows another.
	{"http/ui", with("web", "internal/http1", "http/request", "http/media", "http/caching", "http/problem")},
	{"http/streams", room("api", "catchup", "event", "subscription")},
	{"http/groups", room("api", "event", "subscription")},
	{"http/projections", room("api", "event", "access", "projection")},
	{"http/admin", room("api", "event", "access", "admin", "stats")},
	// What both interfaces decide alike.
	{"api", with("catchup", "event", "access", "admin", "subscription", "projection", "stats", "config")},
	{"http", with("api", "internal/http1", "event", "access", "admin", "subscription", "projection", "stats", "web", "config")},
	{"grpc", with("api", "catchup", "internal/http1", "internal/h2", "event", "access", "admin", "subscription", "projection", "stats", "web", "config")},
	{"node/serve", with("api", "internal/http1", "access", "internal/certs", "internal/network", "internal/throttle")},
	{"node/relay", []string{"event", "http", "internal/http1", "replication", "node/serve", "internal/clock", "internal/logkey"}},
	{"node", []string{"*"}},
	// What measures and what breaks a cluster reach it through sockets. event is the leaf that
	// everyone shares: the load driver writes ids as the product does.
	{"bench", []string{"event", "client", "internal/clock"}},
	{"torture", []string{"event", "client", "grpc/query", "grpc/users", "admin/backup", "internal/certs", "internal/clock", "internal/lab", "internal/vfs"}},
	// A simulation is whole nodes in one process, and what torture does to them.
	{"simulation", []string{"torture", "node", "config", "admin/verify", "internal/network", "internal/vfs"}},
	// projection test runs a script over a file of events, without a node.
	{"cmd", []string{"bench", "torture", "simulation", "event", "node", "client", "config", "admin", "projection", "internal/bell", "internal/certs", "internal/clock", "internal/jsontext", "internal/lab", "internal/logkey", "internal/owner", "internal/spelling"}},
	{"integration", []string{"torture", "event", "client", "internal/testkit", "internal/lab"}},
}

// tops are what no other package stands on.
var tops = []string{"cmd", "integration", "bench", "torture", "simulation"}

// room is what a room of http imports, besides what is its own.
func room(folders ...string) []string {
	return with(append(folders, "http/atom", "http/request", "http/leader", "http/page", "http/media", "http/caching", "http/outline", "http/problem", "http/args", "http/address")...)
}

func with(folders ...string) []string { return slices.Concat(folders, tools) }

// within says whether a folder is another one or lies in it.
func within(folder, parent string) bool {
	return folder == parent || strings.HasPrefix(folder, parent+"/")
}

// arrow judges one import within the module; the answer is empty if it is allowed.
func arrow(from, to string, inTest bool) string {
	i := slices.IndexFunc(imports, func(r row) bool { return within(from, r.of) })
	switch {
	case within(from, "scripts"), within(from, "tools"):
		return ""
	case i < 0:
		return "the folder has no row in the table of imports"
	case from == to:
		return ""
	case within(to, "internal/testkit"):
		if inTest {
			return ""
		}
		return "only tests may import internal/testkit"
	case inTest && within(to, "internal"):
		return ""
	case imports[i].of != "internal" && within(to, imports[i].of):
		return ""
	case slices.Contains(imports[i].may, "*") && !slices.ContainsFunc(tops, func(top string) bool { return within(to, top) }):
		return ""
	case slices.ContainsFunc(imports[i].may, func(may string) bool { return within(to, may) }):
		return ""
	}
	return "forbidden by the table of imports"
}

func TestImports(t *testing.T) {
	for _, f := range sources(t) {
		for _, path := range f.imports() {
			to, ours := strings.CutPrefix(path, modulePath+"/")
			if !ours {
				continue
			}
			check.Equal(t, arrow(f.folder(), to, f.isTest()), "", f.name, "imports", to)
		}
	}
}

// stubsModule is the Go client of others whose stubs of six gRPC services we use;
// stubs are the packages of it that may be imported. Its packages status and code
// register the names that google's own, which grpc uses, register too: a binary
// with both panics at its start, as does one that holds the older client as well.
const (
	stubsModule = "github.com/kurrent-io/KurrentDB-Client-Go"
	olderClient = "github.com/EventStore/EventStore-Client-Go"
)

var stubs = []string{"v1/shared", "v1/streams", "v1/persistent", "v1/projections", "v1/gossip", "v1/serverfeatures", "v2/streams/streams", "v2/streams/errors"}

// allowed says whether an import is one of the stubs or nothing of those clients.
func allowed(path string, inTest bool) bool {
	if inTest && path == stubsModule+"/kurrentdb" {
		return true // The client itself is what tests drive a node with. It uses the same stubs.
	}
	name, ok := strings.CutPrefix(path, stubsModule+"/protos/kurrentdb/protocols/")
	return ok && slices.Contains(stubs, name) || !within(path, stubsModule) && !within(path, olderClient)
}

func TestClientsOfOthers(t *testing.T) {
	for _, f := range sources(t) {
		for _, path := range f.imports() {
			if !allowed(path, f.isTest()) {
				t.Errorf("%s imports %s: only the stubs of the gRPC services may be used", f.name, path)
			}
		}
	}
	const v1 = stubsModule + "/protos/kurrentdb/protocols/v1/"
	for path, want := range map[string]bool{
		v1 + "streams": true, v1 + "shared": true, "google.golang.org/grpc": true,
		v1 + "status": false, v1 + "code": false, v1 + "streams/inner": false,
		stubsModule + "/kurrentdb": false, stubsModule: false,
		olderClient + "/v4/esdb": false,
	} {
		if allowed(path, false) != want {
			t.Errorf("%s: allowed is %t, want %t", path, !want, want)
		}
	}
}

// TestClientStandsAlone: the module client requires no other one.
func TestClientStandsAlone(t *testing.T) {
	for _, f := range sources(t) {
		if !within(f.folder(), "client") {
			continue
		}
		for _, path := range f.imports() {
			first, _, _ := strings.Cut(path, "/")
			if strings.Contains(first, ".") && !within(path, modulePath+"/client") {
				t.Errorf("%s imports %s: the client uses the standard library alone", f.name, path)
			}
		}
	}
}

func TestArrow(t *testing.T) {
	cases := []struct {
		from, to string
		inTest   bool
		ok       bool
	}{
		{"event", "internal/vfs", false, false},
		{"event", "internal/vfs", true, true},
		{"log", "event", false, true},
		{"log", "log/index", false, true},
		{"log/index", "internal/vfs", false, true},
		{"log/index", "fsm", false, false},
		{"log", "fsm", true, false},
		{"fsm", "log", false, true},
		{"fsm", "internal/vfs", false, false},
		{"replication", "log", false, false},
		{"http", "log", false, false},
		{"http", "fsm", true, false},
		{"http", "http/atom", false, true},
		{"http/atom", "http", false, false},
		{"http/atom", "access", false, false},
		{"http", "access", false, true},
		{"http", "http/streams", false, true},
		{"http/streams", "http/request", false, true},
		{"http/streams", "http/groups", false, false},
		{"http/request", "http/streams", false, false},
		{"http/request", "http", false, false},
		{"http", "internal/xmljson", false, true},
		{"http", "internal/vfs", false, false},
		{"access", "internal/testkit", false, false},
		{"access", "internal/testkit", true, true},
		{"internal/vfs", "event", false, false},
		{"internal/xmljson", "internal/jsontext", false, true},
		{"internal/jsontext", "internal/xmljson", false, false},
		{"internal/testkit", "node", false, true},
		{"node", "http", false, true},
		{"node", "bench", false, false},
		{"cmd/annals", "bench", false, true},
		{"bench", "config", false, false},
		{"bench", "event", false, true},
		{"bench", "log", false, false},
		{"torture", "internal/lab", false, true},
		{"torture", "node", false, false},
		{"integration", "torture", true, true},
		{"cmd/annals", "admin/verify", false, true},
		{"cmd/annals", "projection/script", false, true},
		{"integration", "http", true, false},
		{"examples/go", "client", false, true},
		{"examples/go", "event", false, false},
		{"integration", "event", true, true},
		{"util", "event", false, false},
	}
	for _, c := range cases {
		if got := arrow(c.from, c.to, c.inTest); (got == "") != c.ok {
			t.Errorf("%s to %s (test %t): %q", c.from, c.to, c.inTest, got)
		}
	}
}
