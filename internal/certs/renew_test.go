package certs_test

import (
	"io/fs"
	"net"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"testing"
	"time"

	"github.com/annalsdb/annals/internal/certs"
	"github.com/annalsdb/annals/internal/check"
)

// The next certificate is what the present one is, by another key.
func TestSuccessor(t *testing.T) {
	a := authority(t, certs.AuthorityOptions{Days: 100})
	root := newAuthority(t, nil, "root")
	cases := []struct {
		name string
		node *pair
		want certs.NodeOptions
		err  error
	}{
		{"EC", root.node(t, valid(-time.Hour, 30*hours24)), certs.NodeOptions{CommonName: "node", Days: 30, Key: certs.ECDSAP256}, nil},
		{"RSA", root.nodeFor(t, rsaKey(), named("*.example.com"), valid(-time.Hour, 31*hours24)), certs.NodeOptions{CommonName: "*.example.com", Days: 31, Key: certs.RSA2048}, nil},
		{"longer than the authority", root.node(t, valid(-time.Hour, 365*hours24)), certs.NodeOptions{CommonName: "node", Days: 99, Key: certs.ECDSAP256}, nil},
		{"hours", root.node(t, valid(-2*time.Hour, time.Hour)), certs.NodeOptions{CommonName: "node", Days: 1, Key: certs.ECDSAP256}, nil},
		{"another kind of key", root.nodeFor(t, p384Key(t), valid(-time.Hour, 30*hours24)), certs.NodeOptions{CommonName: "node", Days: 30}, certs.ErrOtherKey},
	}
	for _, c := range cases {
		t.Run(c.name, func(t *testing.T) {
			got, err := a.Successor(c.node.c)
			for _, ip := range got.IPs {
				c.want.DNSNames, c.want.IPs = c.node.c.DNSNames, append(c.want.IPs, ip)
			}
			if err != c.err || !reflect.DeepEqual(got, c.want) || len(got.IPs) != 1 || got.IPs[0].String() != "127.0.0.1" {
				t.Fatalf("got %+v, %v", got, err)
			}
			if err != nil {
				return
			}
			issued, err := a.Issue(got)
			if err != nil || issued.Certificate.Subject.CommonName != got.CommonName || !slices.EqualFunc(issued.Certificate.IPAddresses, c.node.c.IPAddresses, net.IP.Equal) {
				t.Errorf("issued %v, %v", issued, err)
			}
		})
	}
}

// What is replaced is kept, whatever way the files lie, and what is there then loads.
func TestReplaceFiles(t *testing.T) {
	a := authority(t, certs.AuthorityOptions{})
	now := time.Date(2026, 11, 23, 4, 5, 6, 0, time.UTC)
	const stamp = ".old-20261123T040506Z"
	cases := []struct {
		name string
		lie  func(t *testing.T, dir string) certs.Files // moves node.crt and node.key
		kept []string
	}{
		{"two files", func(*testing.T, string) certs.Files {
			return certs.Files{Certificate: "node.crt", PrivateKey: "node.key"}
		}, []string{"node.key", "node.crt"}},
		{"one file", func(t *testing.T, dir string) certs.Files {
			var both []byte
			for _, name := range []string{"node.crt", "node.key"} {
				text := check.Value(os.ReadFile(filepath.Join(dir, name))).Must(t)
				both = append(both, text...)
			}
			check.Must(t, os.WriteFile(filepath.Join(dir, "node.pem"), both, 0o600))
			return certs.Files{Certificate: "node.pem", PrivateKey: "node.pem"}
		}, []string{"node.pem"}},
		{"links", func(t *testing.T, dir string) certs.Files {
			for _, name := range []string{"node.crt", "node.key"} {
				check.Must(t, os.Symlink(name, filepath.Join(dir, "live-"+name)))
			}
			return certs.Files{Certificate: "live-node.crt", PrivateKey: "live-node.key"}
		}, []string{"node.key", "node.crt"}},
	}
	for _, c := range cases {
		t.Run(c.name, func(t *testing.T) {
			dir := t.TempDir()
			check.Must(t, a.Write(filepath.Join(dir, "roots"), false))
			issue := func() *certs.Issued {
				issued, err := a.Issue(certs.NodeOptions{DNSNames: []string{"localhost"}})
				check.Must(t, err)
				return issued
			}
			check.Must(t, issue().Write(dir, false))
			f := c.lie(t, dir)
			f.Certificate, f.PrivateKey, f.RootsDir = filepath.Join(dir, f.Certificate), filepath.Join(dir, f.PrivateKey), filepath.Join(dir, "roots")
			check.Must(t, os.Chmod(f.PrivateKey, 0o640))
			before := load(t, f).Certificate.Leaf
			next := issue()
			kept := check.Value(next.Replace(f.Certificate, f.PrivateKey, now)).Must(t)
			for i := range kept {
				if want := filepath.Join(dir, c.kept[i]+stamp); kept[i] != want || len(kept) != len(c.kept) {
					t.Errorf("kept are %q, want %s", kept, want)
				}
			}
			if now := load(t, f).Certificate.Leaf; !now.Equal(next.Certificate) {
				t.Errorf("there is %v", now.SerialNumber)
			}
			old := certs.Files{Certificate: kept[len(kept)-1], PrivateKey: kept[0], RootsDir: f.RootsDir}
			if now := load(t, old).Certificate.Leaf; !now.Equal(before) {
				t.Errorf("kept is %v", now.SerialNumber)
			}
			for _, name := range []string{f.PrivateKey, kept[0]} {
				if info, err := os.Stat(name); err != nil || info.Mode().Perm() != fs.FileMode(0o640) {
					t.Errorf("%s has mode %v, %v", name, info.Mode(), err)
				}
			}
			noLeftovers(t, dir)
			// What is kept is never lost.
			check.Says(t, check.Err(issue().Replace(f.Certificate, f.PrivateKey, now)), stamp, "kept files were overwritten")
			if now := load(t, f).Certificate.Leaf; !now.Equal(next.Certificate) {
				t.Errorf("a refused replacement left %v", now.SerialNumber)
			}
		})
	}
	for name, f := range map[string][2]string{"no certificate": {"nothing", "node.key"}, "no key": {"node.crt", "nothing"}} {
		dir := t.TempDir()
		issued := check.Value(a.Issue(certs.NodeOptions{DNSNames: []string{"localhost"}})).Must(t)
		check.Must(t, issued.Write(dir, false))
		if kept, err := issued.Replace(filepath.Join(dir, f[0]), filepath.Join(dir, f[1]), now); err == nil || len(kept) > 0 {
			t.Errorf("%s: %v, kept %q", name, err, kept)
		}
		if left, err := os.ReadDir(dir); err != nil || len(left) != 2 {
			t.Errorf("%s: there are %d files, %v", name, len(left), err)
		}
	}
}
