package certs_test

import (
	"bytes"
	"crypto"
	"crypto/rsa"
	"crypto/x509"
	"errors"
	"io/fs"
	"net/netip"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/annalsdb/annals/internal/certs"
	"github.com/annalsdb/annals/internal/check"
)

func authority(t *testing.T, o certs.AuthorityOptions) *certs.Authority {
	t.Helper()
	if o.Key == "" {
		o.Key = certs.ECDSAP256
	}
	a := check.Value(certs.NewAuthority(o)).Must(t)
	return a
}

// What is written is what a node loads.
func TestWrittenFilesLoad(t *testing.T) {
	for _, kind := range []certs.KeyKind{certs.RSA2048, certs.ECDSAP256} {
		t.Run(string(kind), func(t *testing.T) {
			dir := t.TempDir()
			ca, roots, out := filepath.Join(dir, "ca"), filepath.Join(dir, "roots"), filepath.Join(dir, "deep", "node1")
			check.Must(t, authority(t, certs.AuthorityOptions{Key: kind}).Write(ca, false))
			a, err := certs.LoadAuthority(ca)
			check.Must(t, err)
			issued, err := a.Issue(certs.NodeOptions{DNSNames: []string{"localhost", "*.example.com"}, IPs: []netip.Addr{netip.MustParseAddr("127.0.0.1"), netip.MustParseAddr("::1")}})
			check.Must(t, err)
			check.Must(t, issued.Write(out, false))
			check.Must(t, os.CopyFS(roots, os.DirFS(ca)))
			f := certs.Files{Certificate: filepath.Join(out, "node.crt"), PrivateKey: filepath.Join(out, "node.key"), RootsDir: roots}
			report := certs.Inspect(f)
			if len(report.Findings) != 0 || !report.Node || report.ReservedCN != "eventstoredb-node" || !report.Certificate.Equal(issued.Certificate) {
				t.Fatalf("%+v", report)
			}
			if got, want := load(t, f).Certificate, a.Set(issued).Certificate; !reflect.DeepEqual(got.Certificate, want.Certificate) || !got.PrivateKey.(interface{ Equal(crypto.PrivateKey) bool }).Equal(want.PrivateKey) {
				t.Errorf("the set in memory differs from the one of the files")
			}
			one, two := certs.NewStore(load(t, f), certs.StoreOptions{}), certs.NewStore(a.Set(issued), certs.StoreOptions{})
			for _, host := range []string{"localhost", "db.example.com", "::1"} {
				if serverErr, clientErr := connect(t, one.Server(), two.Client(host)); serverErr != nil || clientErr != nil {
					t.Errorf("%s: %v, %v", host, serverErr, clientErr)
				}
			}
			c := issued.Certificate
			_, isRSA := c.PublicKey.(*rsa.PublicKey)
			if isRSA != (kind == certs.RSA2048) || isRSA != (c.KeyUsage&x509.KeyUsageKeyEncipherment != 0) || c.IsCA {
				t.Errorf("key %T, usage %b, authority %t", c.PublicKey, c.KeyUsage, c.IsCA)
			}
			for name, want := range map[string]fs.FileMode{ca + "/ca.key": 0o600, ca + "/ca.crt": 0o644, out + "/node.key": 0o600, out + "/node.crt": 0o644} {
				if info, err := os.Stat(name); err != nil || info.Mode() != want {
					t.Errorf("%s has mode %v, %v", name, info.Mode(), err)
				}
			}
			noLeftovers(t, dir)
		})
	}
}

func noLeftovers(t *testing.T, dir string) {
	t.Helper()
	err := filepath.WalkDir(dir, func(path string, _ fs.DirEntry, err error) error {
		if strings.HasSuffix(path, ".tmp") {
			t.Errorf("%s was left", path)
		}
		return err
	})
	check.NoError(t, err)
}

func TestNothingIsOverwritten(t *testing.T) {
	dir := newFolder(t)
	a := authority(t, certs.AuthorityOptions{})
	check.Must(t, a.Write(dir.dir, false))
	before := check.Value(os.ReadFile(filepath.Join(dir.dir, "ca.key"))).Must(t)
	other := authority(t, certs.AuthorityOptions{})
	if err := other.Write(dir.dir, false); !errors.Is(err, fs.ErrExist) || !strings.Contains(err.Error(), "ca.key") {
		t.Errorf("written over: %v", err)
	}
	// One of two files is enough, a link to nowhere too, and then none is written.
	half := newFolder(t)
	check.Must(t, os.Symlink("nowhere", filepath.Join(half.dir, "ca.crt")))
	check.Is(t, other.Write(half.dir, false), fs.ErrExist, "written over a link")
	if _, err := os.Lstat(filepath.Join(half.dir, "ca.key")); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("the key was written: %v", err)
	}
	if after, err := os.ReadFile(filepath.Join(dir.dir, "ca.key")); err != nil || !bytes.Equal(before, after) {
		t.Errorf("the key changed: %v", err)
	}
	// By force the new file has the permissions of a new file.
	check.Must(t, os.Chmod(filepath.Join(dir.dir, "ca.key"), 0o644))
	check.Must(t, other.Write(dir.dir, true))
	if info, err := os.Stat(filepath.Join(dir.dir, "ca.key")); err != nil || info.Mode() != 0o600 {
		t.Errorf("%v, %v", info.Mode(), err)
	}
	if got, err := certs.LoadAuthority(dir.dir); err != nil || !got.Certificate.Equal(other.Certificate) {
		t.Errorf("not the new authority: %v", err)
	}
	// A folder in the place of a file cannot be replaced, and nothing is left.
	blocked := newFolder(t)
	blocked.put("ca.crt/x", nil)
	check.Says(t, other.Write(blocked.dir, true), "ca.crt", "written over a folder")
	noLeftovers(t, blocked.dir)
	check.Fails(t, other.Write(blocked.put("file", nil), false), "a file was taken for a folder")
}

func TestAuthorityOptions(t *testing.T) {
	a := authority(t, certs.AuthorityOptions{CommonName: "mine", Days: 10})
	days := time.Until(a.Certificate.NotAfter).Round(time.Hour) / hours24
	if a.Certificate.Subject.CommonName != "mine" || days != 10 || !a.Certificate.IsCA {
		t.Errorf("%s for %d days", a.Certificate.Subject, days)
	}
	one, two := authority(t, certs.AuthorityOptions{}), authority(t, certs.AuthorityOptions{})
	if one.Certificate.Subject.CommonName == two.Certificate.Subject.CommonName {
		t.Errorf("two authorities are both named %s", one.Certificate.Subject)
	}
	for name, o := range map[string]certs.AuthorityOptions{
		"-1 days: a certificate is valid for 1 to 36500 days": {Days: -1},
		"40000 days": {Days: 40000},
		`unknown kind of key "dsa": it is rsa-2048, rsa-4096 or ecdsa-p256`: {Key: "dsa"},
		"longer than 64 bytes": {CommonName: strings.Repeat("x", 65)},
	} {
		check.Says(t, check.Err(certs.NewAuthority(o)), name)
	}
}

func TestNodeOptions(t *testing.T) {
	a := authority(t, certs.AuthorityOptions{Days: 100})
	localhost := []string{"localhost"}
	cases := []struct {
		name string
		o    certs.NodeOptions
		want string // a part of the error
	}{
		{"good", certs.NodeOptions{DNSNames: []string{"a", "a-b.c_d.example.com", "*.example.com", "xn--bcher-kva.example"}}, ""},
		{"as long as the authority", certs.NodeOptions{DNSNames: localhost, Days: 100}, ""},
		{"no host", certs.NodeOptions{}, "needs at least one DNS name or IP address"},
		{"address as name", certs.NodeOptions{DNSNames: []string{"10.0.0.1"}}, "10.0.0.1 is an IP address, not a DNS name"},
		{"empty name", certs.NodeOptions{DNSNames: []string{""}}, `"" is not a DNS name`},
		{"port", certs.NodeOptions{DNSNames: []string{"a:1"}}, `"a:1" is not a DNS name`},
		{"empty label", certs.NodeOptions{DNSNames: []string{"a..b"}}, `"a..b" is not`},
		{"hyphen", certs.NodeOptions{DNSNames: []string{"-a"}}, `"-a" is not`},
		{"asterisk inside", certs.NodeOptions{DNSNames: []string{"a.*.b"}}, `"a.*.b" is not`},
		{"letters", certs.NodeOptions{DNSNames: []string{"bücher.example"}}, "is not a DNS name"},
		{"long label", certs.NodeOptions{DNSNames: []string{strings.Repeat("a", 64)}}, "is not a DNS name"},
		{"long name", certs.NodeOptions{DNSNames: []string{strings.Repeat("a.", 130) + "a"}}, "is not a DNS name"},
		{"days", certs.NodeOptions{DNSNames: localhost, Days: -1}, "-1 days"},
		{"too long", certs.NodeOptions{DNSNames: localhost, Days: 102}, "a certificate of 102 days would outlive its authority, which ends on "},
		{"key", certs.NodeOptions{DNSNames: localhost, Key: "x"}, "unknown kind of key"},
		{"common name", certs.NodeOptions{DNSNames: localhost, CommonName: strings.Repeat("x", 65)}, "longer than 64 bytes"},
	}
	for _, c := range cases {
		t.Run(c.name, func(t *testing.T) {
			issued, err := a.Issue(c.o)
			if (err == nil) != (c.want == "") || err != nil && !strings.Contains(err.Error(), c.want) {
				t.Fatalf("got %v", err)
			}
			if err == nil && (issued.Certificate.NotAfter.After(a.Certificate.NotAfter) || issued.Certificate.NotBefore.Before(a.Certificate.NotBefore)) {
				t.Errorf("valid from %s to %s, beyond its authority", issued.Certificate.NotBefore, issued.Certificate.NotAfter)
			}
			if err == nil && !slices.Equal(issued.Certificate.DNSNames, c.o.DNSNames) {
				t.Errorf("issued for %q", issued.Certificate.DNSNames)
			}
		})
	}
}

func TestLoadAuthorityFails(t *testing.T) {
	root := newAuthority(t, nil, "root")
	old := newAuthority(t, nil, "old", valid(-2*hours24, -hours24))
	between := newAuthority(t, root, "between")
	node := root.node(t)
	cases := []struct {
		name string
		c, k []byte
		want string
	}{
		{"nothing", nil, nil, "ca.crt cannot be read: no such file or directory"},
		{"no certificate", []byte("x"), nil, "ca.crt is not a certificate in PEM or DER form"},
		{"no key", pemOf(root), nil, "ca.key cannot be read: no such file"},
		{"bad key", pemOf(root), []byte("x"), "ca.key is not a private key"},
		{"other key", pemOf(root), pemKey(t, node.key), "ca.key is not the key of "},
		{"node", pemOf(node), pemKey(t, node.key), "ca.crt is not the certificate of a root authority"},
		{"intermediate", pemOf(between), pemKey(t, between.key), "ca.crt is not the certificate of a root authority"},
		{"expired", pemOf(old), pemKey(t, old.key), "expired on "},
	}
	for _, c := range cases {
		t.Run(c.name, func(t *testing.T) {
			d := newFolder(t)
			if c.c != nil {
				d.put("ca.crt", c.c)
			}
			if c.k != nil {
				d.put("ca.key", c.k)
			}
			check.Says(t, check.Err(certs.LoadAuthority(d.dir)), c.want)
		})
	}
}

func TestTemporary(t *testing.T) {
	set := check.Value(certs.Temporary()).Must(t)
	store := certs.NewStore(set, certs.StoreOptions{})
	for _, host := range []string{"localhost", "127.0.0.1", "::1"} {
		if serverErr, clientErr := connect(t, store.Server(), store.Client(host)); serverErr != nil || clientErr != nil {
			t.Errorf("%s: %v, %v", host, serverErr, clientErr)
		}
	}
	if time.Until(set.Expires) < 300*hours24 {
		t.Errorf("it expires on %s", set.Expires)
	}
	if other, err := certs.Temporary(); err != nil {
		t.Error(err)
	} else if serverErr, _ := connect(t, store.Server(), certs.NewStore(other, certs.StoreOptions{}).Client("localhost")); serverErr == nil {
		t.Error("two authorities accept each other's nodes")
	}
}
