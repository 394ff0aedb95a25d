package certs_test

import (
	"crypto"
	"crypto/ecdsa"
	"crypto/ed25519"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/rsa"
	"crypto/x509"
	"encoding/pem"
	"errors"
	"net"
	"os"
	"path/filepath"
	"reflect"
	"strings"
	"testing"
	"time"

	"github.com/youmark/pkcs8"
	"software.sslmate.com/src/go-pkcs12"

	"github.com/annalsdb/annals/internal/certs"
	"github.com/annalsdb/annals/internal/check"
)

// encrypt makes an encrypted PKCS#8 key by another implementation than ours.
func encrypt(t testing.TB, key any, password string, o *pkcs8.Opts) []byte {
	t.Helper()
	der := check.Value(pkcs8.MarshalPrivateKey(key, []byte(password), o)).Must(t)
	return der
}

func bundleOf(t testing.TB, e *pkcs12.Encoder, node *pair, password string, others ...*x509.Certificate) []byte {
	t.Helper()
	data := check.Value(e.Encode(node.key, node.c, others, password)).Must(t)
	return data
}

func TestFormats(t *testing.T) {
	root := newAuthority(t, nil, "root")
	between := newAuthority(t, root, "between")
	ec := between.node(t)
	rsaNode := between.nodeFor(t, rsaKey())
	sec1 := check.Value(x509.MarshalECPrivateKey(ec.key.(*ecdsa.PrivateKey))).Must(t)
	pkcs1 := x509.MarshalPKCS1PrivateKey(rsaKey().(*rsa.PrivateKey))
	fast := func(o pkcs8.Opts) *pkcs8.Opts {
		if o.KDFOpts == nil {
			o.KDFOpts = pkcs8.PBKDF2Opts{SaltSize: 8, IterationCount: 100, HMACHash: pkcs8.DefaultOpts.KDFOpts.(pkcs8.PBKDF2Opts).HMACHash}
		}
		return &o
	}
	mark := []byte("\xef\xbb\xbf")
	cases := []struct {
		name          string
		node          *pair
		cert, key     []byte // no key: PKCS#12
		password      string // of the bundle
		keyPassword   string
		withoutMiddle bool // the file holds the node's certificate alone, issued by the root
	}{
		{name: "pem, pkcs8", node: ec, cert: pemOf(ec, between), key: pemKey(t, ec.key)},
		{name: "pem, pkcs8 rsa", node: rsaNode, cert: pemOf(rsaNode, between), key: pemKey(t, rsaNode.key)},
		{name: "pem, pkcs1", node: rsaNode, cert: pemOf(rsaNode, between), key: pemBlock("RSA PRIVATE KEY", pkcs1)},
		{name: "pem, sec1 after parameters", node: ec, cert: pemOf(ec, between),
			key: append(pemBlock("EC PARAMETERS", []byte{6, 0}), pemBlock("EC PRIVATE KEY", sec1)...)},
		{name: "der key pkcs8", node: ec, cert: pemOf(ec, between), key: pkcs8Of(t, ec.key)},
		{name: "der key pkcs1", node: rsaNode, cert: pemOf(rsaNode, between), key: pkcs1},
		{name: "der key sec1", node: ec, cert: pemOf(ec, between), key: sec1},
		{name: "der certificates", node: ec, cert: append(append([]byte{}, ec.c.Raw...), between.c.Raw...), key: sec1},
		{name: "text around", node: ec, cert: append([]byte("the node\n"), pemOf(ec, between)...), key: append([]byte("Key:\n"), pemKey(t, ec.key)...)},
		{name: "byte order mark", node: ec, cert: append(mark, pemOf(ec, between)...), key: append(mark, pemKey(t, ec.key)...)},
		{name: "one file for both", node: ec, cert: append(pemKey(t, ec.key), pemOf(ec, between)...), key: append(pemOf(ec, between), pemKey(t, ec.key)...)},
		{name: "a password that is not needed", node: ec, cert: pemOf(ec, between), key: pemKey(t, ec.key), keyPassword: "x"},
		{name: "encrypted pem", node: ec, cert: pemOf(ec, between),
			key: pemBlock("ENCRYPTED PRIVATE KEY", encrypt(t, ec.key, "geheim", nil)), keyPassword: "geheim"},
		{name: "encrypted der rsa", node: rsaNode, cert: pemOf(rsaNode, between),
			key: encrypt(t, rsaNode.key, "geheim", fast(pkcs8.Opts{Cipher: pkcs8.AES128CBC})), keyPassword: "geheim"},
		{name: "encrypted aes-192", node: ec, cert: pemOf(ec, between),
			key: encrypt(t, ec.key, "ä", fast(pkcs8.Opts{Cipher: pkcs8.AES192CBC})), keyPassword: "ä"},
		{name: "encrypted 3des", node: ec, cert: pemOf(ec, between),
			key: encrypt(t, ec.key, "p", fast(pkcs8.Opts{Cipher: pkcs8.TripleDESCBC})), keyPassword: "p"},
		{name: "encrypted scrypt", node: ec, cert: pemOf(ec, between), keyPassword: "p",
			key: encrypt(t, ec.key, "p", fast(pkcs8.Opts{Cipher: pkcs8.AES256CBC,
				KDFOpts: pkcs8.ScryptOpts{SaltSize: 8, CostParameter: 1 << 10, BlockSize: 8, ParallelizationParameter: 1}}))},
		{name: "pkcs12 modern", node: ec, cert: bundleOf(t, pkcs12.Modern, ec, "pw", between.c), password: "pw"},
		{name: "pkcs12 newest", node: ec, cert: bundleOf(t, pkcs12.Modern2026, ec, "pw", between.c), password: "pw"},
		{name: "pkcs12 of old tools", node: rsaNode, cert: bundleOf(t, pkcs12.LegacyRC2, rsaNode, "pw", between.c), password: "pw"},
		{name: "pkcs12 3des", node: rsaNode, cert: bundleOf(t, pkcs12.LegacyDES, rsaNode, "", between.c)},
		{name: "pkcs12 without password", node: ec, cert: bundleOf(t, pkcs12.Passwordless, ec, "", between.c)},
		{name: "pkcs12, authority first", node: ec, password: "pw",
			cert: bundleOf(t, pkcs12.Modern, &pair{between.c, ec.key}, "pw", ec.c)},
	}
	for _, c := range cases {
		t.Run(c.name, func(t *testing.T) {
			dir := newFolder(t)
			dir.put("roots/ca.crt", pemOf(root))
			f := certs.Files{Certificate: dir.put("node", c.cert), Password: c.password, KeyPassword: c.keyPassword, RootsDir: filepath.Join(dir.dir, "roots")}
			if c.key != nil {
				f.PrivateKey = dir.put("key", c.key)
			}
			set := load(t, f)
			want := [][]byte{c.node.c.Raw, between.c.Raw}
			if !reflect.DeepEqual(set.Certificate.Certificate, want) || !set.Certificate.Leaf.Equal(c.node.c) {
				t.Errorf("not the node's certificate and its intermediate: %s", set.Certificate.Leaf.Subject)
			}
			// What a key has computed in advance need not be the same.
			if key, ok := set.Certificate.PrivateKey.(interface{ Equal(crypto.PrivateKey) bool }); !ok || !key.Equal(c.node.key) {
				t.Error("not its key")
			}
			if set.ReservedCN != "node" || len(set.Warnings) != 0 || !set.Expires.Equal(ends(c.node, between, root)) {
				t.Errorf("reserved %q, expires %s, warnings %v", set.ReservedCN, set.Expires, set.Warnings)
			}
		})
	}
}

// ends is the earliest end of certificates.
func ends(pairs ...*pair) time.Time {
	at := pairs[0].c.NotAfter
	for _, p := range pairs {
		if p.c.NotAfter.Before(at) {
			at = p.c.NotAfter
		}
	}
	return at
}

func TestRootsFolder(t *testing.T) {
	roots := make([]*pair, 7)
	for i := range roots {
		roots[i] = newAuthority(t, nil, "root "+string(rune('0'+i)))
	}
	node := roots[0].node(t)
	dir := newFolder(t)
	f := dir.files(node, roots[0])
	dir.put("roots/two.pem", pemOf(roots[1], roots[2]))
	dir.put("roots/again.PEM", pemOf(roots[2]))
	dir.put("roots/three.cer", roots[3].c.Raw)
	dir.put("roots/four.der", roots[4].c.Raw)
	dir.put("roots/five.cert", pemOf(roots[5]))
	dir.put("roots/six.txt", pemOf(roots[6]))
	dir.put("roots/folder.crt/x.crt", pemOf(roots[6]))
	dir.put("roots/ca.key", []byte("none of our business"))
	dir.put("roots/garbage.crt", []byte("hello"))
	dir.put("roots/key.pem", pemKey(t, node.key))
	dir.put("roots/large.pem", make([]byte, 1<<20+1))
	check.Must(t, os.Symlink("nowhere", filepath.Join(dir.dir, "roots", "dangling.pem")))
	report := certs.Inspect(f)
	if report.Roots != 6 || report.Refused() {
		t.Errorf("%d roots, %v", report.Roots, report.Findings)
	}
	want := []string{
		"warning DIR/roots/dangling.pem: cannot be read: no such file or directory (check that it exists and that the user who runs the node may read it)",
		"warning DIR/roots/garbage.crt: is not a certificate in PEM or DER form (name a file that holds an X.509 certificate)",
		"warning DIR/roots/key.pem: holds no certificate (name a file that holds an X.509 certificate)",
		"warning DIR/roots/large.pem: is larger than 1048576 bytes, so it is not a certificate or key (name another file)",
	}
	if got := dir.lines(report.Findings); !reflect.DeepEqual(got, want) {
		t.Errorf("got\n%s", strings.Join(got, "\n"))
	}
	set := load(t, f)
	check.Equal(t, len(set.Warnings), len(want), "the set has warnings", set.Warnings)
}

// A finding's line is compared by its beginning, which names what is wrong.
func TestFindings(t *testing.T) {
	root := newAuthority(t, nil, "root")
	between := newAuthority(t, root, "between")
	foreign := newAuthority(t, nil, "foreign")
	node := root.node(t)
	weak, err := rsa.GenerateKey(rand.Reader, 1024)
	check.Must(t, err)
	_, edKey, err := ed25519.GenerateKey(rand.Reader)
	check.Must(t, err)
	p224, err := ecdsa.GenerateKey(elliptic.P224(), rand.Reader)
	check.Must(t, err)
	encrypted := pemBlock("ENCRYPTED PRIVATE KEY", encrypt(t, node.key, "right", nil))
	oldPEM := pem.EncodeToMemory(&pem.Block{Type: "RSA PRIVATE KEY", Headers: map[string]string{"Proc-Type": "4,ENCRYPTED", "DEK-Info": "AES-256-CBC,00"}, Bytes: []byte{1}})
	missing := "cannot be read: no such file or directory"
	// with makes the files of a node that another root or intermediates issued.
	with := func(node, root *pair, others ...*pair) func(folder) certs.Files {
		return func(d folder) certs.Files { return d.files(node, root, others...) }
	}
	// but changes one file or option of good ones.
	but := func(change func(folder, *certs.Files)) func(folder) certs.Files {
		return func(d folder) certs.Files {
			f := d.files(node, root)
			change(d, &f)
			return f
		}
	}
	keyFile := func(data []byte, password string) func(folder) certs.Files {
		return but(func(d folder, f *certs.Files) { d.put("node.key", data); f.KeyPassword = password })
	}
	certificateFile := func(data []byte, password string) func(folder) certs.Files {
		return but(func(d folder, f *certs.Files) {
			d.put("node.crt", data)
			f.PrivateKey, f.Password = "", password
		})
	}
	cases := []struct {
		name  string
		files func(folder) certs.Files
		want  []string
	}{
		{"good", with(node, root), nil},
		{"nothing", func(folder) certs.Files { return certs.Files{} },
			[]string{"error no certificate is configured (set CertificateFile)", "error no folder of trusted roots is configured"}},
		{"no such files", func(d folder) certs.Files {
			return certs.Files{Certificate: d.dir + "/a", PrivateKey: d.dir + "/b", RootsDir: d.dir + "/c"}
		}, []string{"error DIR/a: " + missing, "error DIR/b: " + missing, "error DIR/c: " + missing}},
		{"a folder", but(func(d folder, f *certs.Files) { f.Certificate = d.dir }), []string{"error DIR: is not a regular file"}},
		{"empty file", keyFile(nil, ""), []string{"error DIR/node.key: is empty"}},
		{"large file", keyFile(make([]byte, 1<<20+1), ""), []string{"error DIR/node.key: is larger than 1048576 bytes"}},
		{"garbage", certificateFile([]byte("x"), ""), []string{"error DIR/node.crt: is not a certificate in PEM or DER form"}},
		{"a key in place of the certificate", certificateFile(pemKey(t, node.key), ""), []string{"error DIR/node.crt: holds no certificate"}},
		{"damaged certificate", certificateFile(pemBlock("CERTIFICATE", node.c.Raw[:80]), ""), []string{"error DIR/node.crt: its certificate 1 cannot be read: x509:"}},
		{"pkcs7", certificateFile(pemBlock("PKCS7", []byte{1}), ""), []string{"error DIR/node.crt: holds PKCS#7 (convert it: openssl pkcs7"}},
		{"trusted certificate", certificateFile(pemBlock("TRUSTED CERTIFICATE", []byte{1}), ""), []string{"error DIR/node.crt: holds a certificate in the form that only OpenSSL reads"}},
		{"no key", but(func(_ folder, f *certs.Files) { f.PrivateKey = "" }), []string{"error DIR/node.crt: comes without a private key (set CertificatePrivateKeyFile"}},
		{"key of another", keyFile(pemKey(t, between.key), ""), []string{"error DIR/node.key: its private key does not belong to the certificate in DIR/node.crt (name the key"}},
		{"not the first", func(d folder) certs.Files {
			f := d.files(between.node(t), root)
			node := between.node(t)
			d.put("node.crt", pemOf(between, node))
			d.put("node.key", pemKey(t, node.key))
			return f
		}, []string{"error DIR/node.key: its private key does not belong to the certificate in DIR/node.crt (put the node's certificate first", "warning DIR/node.crt: has neither"}},
		{"no key in key file", keyFile(pemOf(node), ""), []string{"error DIR/node.key: holds no private key"}},
		{"garbage as key", keyFile([]byte("x"), ""), []string{"error DIR/node.key: is not a private key in PEM or DER form"}},
		{"damaged key", keyFile(pemBlock("EC PRIVATE KEY", []byte{1}), ""), []string{"error DIR/node.key: its private key cannot be read:"}},
		{"encrypted key, no password", keyFile(encrypted, ""), []string{"error DIR/node.key: its private key is encrypted, and no password is configured (set CertificatePrivateKeyPassword)"}},
		{"encrypted key, wrong password", keyFile(encrypted, "wrong"), []string{"error DIR/node.key: its private key is not opened by the password"}},
		{"damaged encrypted key", keyFile(pemBlock("ENCRYPTED PRIVATE KEY", []byte{1}), "x"), []string{"error DIR/node.key: its encrypted private key is damaged"}},
		{"key encrypted in the old way", keyFile(oldPEM, "x"), []string{"error DIR/node.key: holds a key encrypted in the old way of OpenSSL (convert it to PKCS#8: openssl pkcs8"}},
		{"openssh", keyFile(pemBlock("OPENSSH PRIVATE KEY", []byte{1}), ""), []string{"error DIR/node.key: holds a key in the form of OpenSSH"}},
		{"ed25519", with(root.nodeFor(t, edKey), root), []string{"error DIR/node.key: its private key is neither RSA nor ECDSA"}},
		{"p-224", with(root.nodeFor(t, p224), root), []string{"error DIR/node.key: its private key is neither RSA nor ECDSA"}},
		{"short rsa key", with(root.nodeFor(t, weak), root), []string{"warning DIR/node.crt: its RSA key has 1024 bits"}},
		{"key for all to read", but(func(d folder, f *certs.Files) {
			check.Must(t, os.Chmod(f.PrivateKey, 0o644))
		}), []string{"warning DIR/node.key: every user of this machine may read the private key (take the permission away: chmod o-rwx DIR/node.key)"}},
		{"pkcs12 and a key", func(d folder) certs.Files {
			f := d.files(node, root)
			d.put("node.crt", bundleOf(t, pkcs12.Modern, node, "pw"))
			f.Password = "pw"
			return f
		}, []string{"warning DIR/node.key: is not used"}},
		{"pkcs12, wrong password", certificateFile(bundleOf(t, pkcs12.Modern, node, "pw"), "no"), []string{"error DIR/node.crt: is a PKCS#12 bundle that the password does not open (set CertificatePassword"}},
		{"pkcs12 with a root", certificateFile(bundleOf(t, pkcs12.Modern, node, "pw", root.c), "pw"), []string{`error DIR/node.crt: the certificate "CN=root" after the node's is self-signed`}},
		{"damaged pkcs12", certificateFile([]byte{0x30, 0x05, 2, 1, 3, 0x30, 0}, ""), []string{"error DIR/node.crt: cannot be read as PKCS#12 bundle:"}},
		{"root in the bundle", with(between.node(t), root, between, root), []string{`error DIR/node.crt: the certificate "CN=root" after the node's is self-signed, so it is not an intermediate (remove it`}},
		{"foreign root", with(node, foreign), []string{`error DIR/node.crt: its chain does not lead to a trusted root (PartialChain): "CN=node" was issued by "CN=root": x509: certificate signed by unknown authority (put the root above it into DIR/roots`}},
		{"missing intermediate", with(between.node(t), root), []string{`error DIR/node.crt: its chain does not lead to a trusted root (PartialChain): "CN=node" was issued by "CN=between"`}},
		{"node among the roots", but(func(d folder, _ *certs.Files) { d.put("roots/node.crt", pemOf(node)) }), []string{`error DIR/roots/node.crt: the certificate "CN=node" is not self-signed, so it is not a root`}},
		{"no roots", but(func(d folder, f *certs.Files) { f.RootsDir = t.TempDir() }), []string{"error "}},
		{"forged root", with(node, mint(t, &pair{nameOf(root.c), foreign.key}, ecKey(t), func(c *x509.Certificate) { c.Subject, c.IsCA = root.c.Subject, true })),
			[]string{`error DIR/roots/ca.crt: the certificate "CN=root" is not self-signed`, "error DIR/roots: holds no trusted root certificate"}},
		{"expired", with(root.node(t, valid(-3*hours24, -hours24)), root), []string{"error DIR/node.crt: expired on "}},
		{"expired and foreign", with(root.node(t, valid(-3*hours24, -hours24)), foreign), []string{"error DIR/node.crt: its chain does not lead", "error DIR/node.crt: expired on "}},
		{"not yet valid", with(root.node(t, valid(time.Hour, hours24*60)), root), []string{"error DIR/node.crt: is not valid before "}},
		{"expires soon", with(root.node(t, valid(-time.Hour, hours24*29)), root), []string{"warning DIR/node.crt: expires on "}},
		{"expired intermediate", func(d folder) certs.Files {
			old := newAuthority(t, root, "old", valid(-3*hours24, -hours24))
			return d.files(old.node(t), root, old)
		}, []string{`error DIR/node.crt: the certificate "CN=old" in its chain expired on `}},
		{"intermediate of tomorrow", func(d folder) certs.Files {
			late := newAuthority(t, root, "late", valid(hours24, 10*hours24))
			return d.files(late.node(t), root, late)
		}, []string{`error DIR/node.crt: the certificate "CN=late" in its chain is not valid before `}},
		{"authority expires soon", func(d folder) certs.Files {
			old := newAuthority(t, root, "old", valid(-time.Hour, 10*hours24))
			return d.files(old.node(t), root, old)
		}, []string{`warning DIR/node.crt: the authority "CN=old" above it expires on `}},
		{"issued by no authority", with(node.node(t), root, node), []string{`error DIR/node.crt: its chain does not lead to a trusted root (PartialChain): "CN=node" was issued by "CN=node": x509: certificate signed by unknown authority (possibly`}},
		{"too long a chain", func(d folder) certs.Files {
			short := newAuthority(t, nil, "short", func(c *x509.Certificate) { c.MaxPathLenZero = true })
			below := newAuthority(t, short, "below")
			return d.files(below.node(t), short, below)
		}, []string{`error DIR/node.crt: the certificate "CN=short" in its chain is not accepted: x509: too many intermediates`}},
		{"server only", with(root.node(t, forUse(x509.ExtKeyUsageServerAuth)), root), []string{"error DIR/node.crt: its extended key usage does not allow both"}},
		{"server only, with the remedy", with(root.node(t, forUse(x509.ExtKeyUsageServerAuth)), root), []string{
			"error DIR/node.crt: its extended key usage does not allow both server and client authentication (have it issued with serverAuth and " +
				"clientAuth, or without the extension, or set AllowServerOnlyNodeCertificates on every node)"}},
		{"client only", with(root.node(t, forUse(x509.ExtKeyUsageClientAuth)), root), []string{"error DIR/node.crt: its extended key usage does not allow both"}},
		{"both usages", with(root.node(t, forUse(x509.ExtKeyUsageServerAuth, x509.ExtKeyUsageClientAuth)), root), nil},
		{"any usage", with(root.node(t, forUse(x509.ExtKeyUsageAny)), root), nil},
		{"restricted authority", func(d folder) certs.Files {
			web := newAuthority(t, root, "web", forUse(x509.ExtKeyUsageServerAuth))
			return d.files(web.node(t), root, web)
		}, []string{`error DIR/node.crt: an authority above "CN=node" does not allow both`}},
		{"no alternative name", with(root.node(t, forHosts(nil)), root), []string{"warning DIR/node.crt: has neither a DNS name nor an IP address as alternative name"}},
		{"no common name", with(root.node(t, named("")), root), []string{"warning DIR/node.crt: has no common name"}},
		{"reserved name", but(func(_ folder, f *certs.Files) { f.ReservedCN = "other" }), []string{`error DIR/node.crt: its common name "node" does not match the reserved name "other"`}},
		{"self-signed and trusted itself", func(d folder) certs.Files {
			lone := (*pair)(nil).node(t)
			return d.files(lone, lone)
		}, nil},
	}
	for _, c := range cases {
		t.Run(c.name, func(t *testing.T) {
			d := newFolder(t)
			f := c.files(d)
			findings := certs.Inspect(f).Findings
			got := d.lines(findings)
			if len(got) != len(c.want) {
				t.Fatalf("got\n%s", strings.Join(got, "\n"))
			}
			refused := false
			for i := range got {
				if !strings.HasPrefix(got[i], c.want[i]) {
					t.Errorf("got  %s\nwant %s", got[i], c.want[i])
				}
				if findings[i].Remedy == "" {
					t.Errorf("without a remedy: %s", got[i])
				}
				refused = refused || findings[i].Severity == certs.SeverityError
			}
			set, err := certs.Load(f)
			if (err != nil) != refused || (set == nil) != refused {
				t.Errorf("loaded with %v", err)
			}
			if loadError, ok := errors.AsType[*certs.LoadError](err); refused && (!ok || !strings.HasPrefix(loadError.Error(), findings[0].String())) {
				t.Errorf("another error: %v", err)
			}
		})
	}
}

// nameOf is a certificate's name without its key, to sign by.
func nameOf(c *x509.Certificate) *x509.Certificate {
	return &x509.Certificate{Subject: c.Subject, RawSubject: c.RawSubject}
}

// A certificate is accepted no longer than what it chains through.
func TestExpiresWithItsRoot(t *testing.T) {
	root := newAuthority(t, nil, "root", valid(-time.Hour, 50*hours24))
	if set := setOf(t, root.node(t), root); !set.Expires.Equal(root.c.NotAfter) {
		t.Errorf("expires %s, not with its root at %s", set.Expires, root.c.NotAfter)
	}
}

// Of two ways to a root, the one that lasts longer counts.
func TestCrossSigned(t *testing.T) {
	oldRoot := newAuthority(t, nil, "old root", valid(-time.Hour, 10*hours24))
	newRoot := newAuthority(t, nil, "new root")
	key := ecKey(t)
	sign := func(by *pair, days time.Duration) *pair {
		return mint(t, by, key, func(c *x509.Certificate) {
			named("between")(c)
			c.IsCA = true
			valid(-time.Hour, days*hours24)(c)
		})
	}
	byOld, byNew := sign(oldRoot, 10), sign(newRoot, 80)
	node := byOld.node(t)
	d := newFolder(t)
	f := d.files(node, oldRoot, byOld, byNew)
	d.put("roots/new.crt", pemOf(newRoot))
	set := load(t, f)
	if want := [][]byte{node.c.Raw, byNew.c.Raw}; !reflect.DeepEqual(set.Certificate.Certificate, want) || len(set.Warnings) != 0 {
		t.Errorf("not the chain that lasts: expires %s, %v", set.Expires, set.Warnings)
	}
}

func TestInspectTellsWhatItIs(t *testing.T) {
	root := newAuthority(t, nil, "root")
	between := newAuthority(t, root, "between")
	node := between.node(t, forHosts(nil, net.IPv4(10, 0, 0, 1)))
	f := newFolder(t).files(node, root, between)
	got := certs.Inspect(f)
	want := certs.Report{
		Certificate: node.c, Chain: []*x509.Certificate{node.c, between.c, root.c},
		Roots: 1, ReservedCN: "node", Node: true,
	}
	check.Deep(t, got, want)
}
