package lint

import (
	"go/ast"
	"regexp"
	"slices"
	"testing"
)

// doors are what a node reaches files and other machines through, with what must not be used
// elsewhere: a test puts a disk and a network of its own in their place.
var doors = []struct {
	door      string
	forbidden map[string]*regexp.Regexp // names by the path of their package
}{
	{"internal/vfs", map[string]*regexp.Regexp{
		"os": regexp.MustCompile(`^(Open\w*|New(File|Root)|Create\w*|ReadFile|ReadDir|WriteFile|Mkdir\w*|Remove\w*|Rename|L?[Ss]tat|Chmod|L?[Cc]hown|` +
			`Chtimes|Link|Symlink|Readlink|Truncate|DirFS|CopyFS)$`),
		"path/filepath": regexp.MustCompile(`^(Walk|WalkDir|Glob|EvalSymlinks)$`),
		"io/ioutil":     regexp.MustCompile(``),
	}},
	{"internal/network", map[string]*regexp.Regexp{
		"net":        regexp.MustCompile(`^(Dial\w*|Listen|Listen(TCP|U|IP|Packet|Multicast|Config)\w*|Lookup\w*|Resolve\w*Addr|\w*Resolver|File(Conn|Listener|PacketConn))$`),
		"net/http":   regexp.MustCompile(`^(Default(Client|Transport)|Get|Head|Post|PostForm|ListenAndServe\w*)$`),
		"crypto/tls": regexp.MustCompile(`^(Dial\w*|Listen)$`),
	}},
}

// outdoors are the files and folders that need no door.
var outdoors = map[string]string{
	"cmd": "a process of its own", "bench": "a process of its own", "torture": "a process of its own", "scripts": "a process of its own", "tools": "a process of its own",
	"client": "for programs of others", "internal/testkit": "tests", "internal/lab": "tests",
	"internal/certs":                   "files of the operator, and what commands make",
	"internal/owner":                   "what commands of the operator make",
	"internal/localsocket":             "a socket is in the file system of the machine",
	"stats/system":                     "what the machine says of itself",
	"admin/doctor/limits_linux.go":     "what the machine says of itself",
	"node/memory.go":                   "what the machine says of itself",
	"node/api.go":                      "the web interface of the operator, with links that lead out of it refused",
	"admin/verify/lock.go":             "a command beside the node, which shares its lock",
	"replication/raftdisk/bolt.go":     "bbolt opens its files by itself",
	"replication/peersecret/secret.go": "a node in memory needs a place that other processes see",
}

func TestDoors(t *testing.T) {
	used := map[string]bool{}
	for _, f := range sources(t) {
		if f.isTest() {
			continue
		}
		var found []string
		for _, d := range doors {
			if within(f.folder(), d.door) {
				continue
			}
			for path, names := range d.forbidden {
				for name, places := range f.uses(path) {
					if names.MatchString(name) {
						found = append(found, places[0].String()+": "+path+"."+name+": use "+d.door)
					}
				}
			}
		}
		found = append(found, undialled(f)...)
		if len(found) == 0 {
			continue
		}
		allowed := false
		for name := range outdoors {
			if within(f.name, name) {
				allowed, used[name] = true, true
			}
		}
		for _, line := range found {
			if !allowed {
				t.Error(line)
			}
		}
	}
	for name := range outdoors {
		if !used[name] {
			t.Errorf("%s needs no exception", name)
		}
	}
}

// undialled lists the clients of HTTP that dial by themselves.
func undialled(f *source) (found []string) {
	if !slices.Contains(f.imports(), "net/http") {
		return nil
	}
	ast.Inspect(f.file, func(n ast.Node) bool {
		made, ok := n.(*ast.CompositeLit)
		if !ok {
			return true
		}
		of, ok := made.Type.(*ast.SelectorExpr)
		if !ok || of.Sel.Name != "Transport" && of.Sel.Name != "Client" {
			return true
		}
		if x, ok := of.X.(*ast.Ident); !ok || x.Name != "http" {
			return true
		}
		for _, e := range made.Elts {
			if key, ok := e.(*ast.KeyValueExpr); ok {
				if k, ok := key.Key.(*ast.Ident); ok && (k.Name == "DialContext" || k.Name == "Transport") {
					return true
				}
			}
		}
		found = append(found, f.set.Position(made.Pos()).String()+": http."+of.Sel.Name+" dials by itself: use internal/network")
		return true
	})
	return found
}
