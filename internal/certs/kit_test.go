package certs_test

import (
	"crypto"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/rsa"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"net"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/annalsdb/annals/internal/certs"
	"github.com/annalsdb/annals/internal/check"
)

// pair is a certificate with its key.
type pair struct {
	c   *x509.Certificate
	key crypto.Signer
}

// rsaKey is made once: that takes long.
var rsaKey = sync.OnceValue(func() crypto.Signer {
	key, err := rsa.GenerateKey(rand.Reader, 2048)
	if err != nil {
		panic(err)
	}
	return key
})

func ecKey(t testing.TB) crypto.Signer {
	t.Helper()
	key := check.Value(ecdsa.GenerateKey(elliptic.P256(), rand.Reader)).Must(t)
	return key
}

// p384Key is of a kind that is not made here.
func p384Key(t testing.TB) crypto.Signer {
	t.Helper()
	key := check.Value(ecdsa.GenerateKey(elliptic.P384(), rand.Reader)).Must(t)
	return key
}

// mint makes a certificate; a nil issuer means itself.
func mint(t testing.TB, issuer *pair, key crypto.Signer, change func(*x509.Certificate)) *pair {
	t.Helper()
	template := &x509.Certificate{
		NotBefore:             time.Now().Add(-time.Hour),
		NotAfter:              time.Now().Add(90 * 24 * time.Hour),
		BasicConstraintsValid: true,
	}
	change(template)
	parent, signer := template, key
	if issuer != nil {
		parent, signer = issuer.c, issuer.key
	}
	der, err := x509.CreateCertificate(rand.Reader, template, parent, key.Public(), signer)
	check.Must(t, err)
	c, err := x509.ParseCertificate(der)
	check.Must(t, err)
	return &pair{c, key}
}

// newAuthority makes a root, or an intermediate of an issuer.
func newAuthority(t testing.TB, issuer *pair, name string, changes ...func(*x509.Certificate)) *pair {
	t.Helper()
	return mint(t, issuer, ecKey(t), func(c *x509.Certificate) {
		c.Subject = pkix.Name{CommonName: name}
		c.IsCA = true
		c.KeyUsage = x509.KeyUsageCertSign
		for _, change := range changes {
			change(c)
		}
	})
}

// node makes the certificate of a node: CN node, valid for localhost and 127.0.0.1.
func (p *pair) node(t testing.TB, changes ...func(*x509.Certificate)) *pair {
	t.Helper()
	return p.nodeFor(t, ecKey(t), changes...)
}

func (p *pair) nodeFor(t testing.TB, key crypto.Signer, changes ...func(*x509.Certificate)) *pair {
	t.Helper()
	return mint(t, p, key, func(c *x509.Certificate) {
		c.Subject = pkix.Name{CommonName: "node"}
		c.DNSNames = []string{"localhost"}
		c.IPAddresses = []net.IP{net.IPv4(127, 0, 0, 1)}
		for _, change := range changes {
			change(c)
		}
	})
}

// Changes to a certificate.
func named(name string) func(*x509.Certificate) {
	return func(c *x509.Certificate) { c.Subject = pkix.Name{CommonName: name} }
}

func forHosts(dns []string, ips ...net.IP) func(*x509.Certificate) {
	return func(c *x509.Certificate) { c.DNSNames, c.IPAddresses = dns, ips }
}

func forUse(usages ...x509.ExtKeyUsage) func(*x509.Certificate) {
	return func(c *x509.Certificate) { c.ExtKeyUsage = usages }
}

func valid(from, to time.Duration) func(*x509.Certificate) {
	return func(c *x509.Certificate) { c.NotBefore, c.NotAfter = time.Now().Add(from), time.Now().Add(to) }
}

const hours24 = 24 * time.Hour

// pemOf encodes certificates.
func pemOf(pairs ...*pair) []byte {
	var b []byte
	for _, p := range pairs {
		b = append(b, pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: p.c.Raw})...)
	}
	return b
}

func pemBlock(kind string, der []byte) []byte {
	return pem.EncodeToMemory(&pem.Block{Type: kind, Bytes: der})
}

func pkcs8Of(t testing.TB, key crypto.Signer) []byte {
	t.Helper()
	der := check.Value(x509.MarshalPKCS8PrivateKey(key)).Must(t)
	return der
}

func pemKey(t testing.TB, key crypto.Signer) []byte {
	t.Helper()
	return pemBlock("PRIVATE KEY", pkcs8Of(t, key))
}

// folder is a folder of files.
type folder struct {
	t   testing.TB
	dir string
}

func newFolder(t testing.TB) folder { return folder{t, t.TempDir()} }

// put writes a file that only its owner can read, and returns its name.
func (f folder) put(name string, data []byte) string {
	f.t.Helper()
	path := filepath.Join(f.dir, name)
	check.Must(f.t, os.MkdirAll(filepath.Dir(path), 0o755))
	check.Must(f.t, os.WriteFile(path, data, 0o600))
	return path
}

// files puts a node's files into the folder in the usual form.
func (f folder) files(node *pair, root *pair, intermediates ...*pair) certs.Files {
	f.t.Helper()
	f.put("roots/ca.crt", pemOf(root))
	return certs.Files{
		Certificate: f.put("node.crt", pemOf(append([]*pair{node}, intermediates...)...)),
		PrivateKey:  f.put("node.key", pemKey(f.t, node.key)),
		RootsDir:    filepath.Join(f.dir, "roots"),
	}
}

// lines tells findings as lines, with the folder's name replaced.
func (f folder) lines(findings []certs.Finding) []string {
	lines := []string{}
	for _, finding := range findings {
		lines = append(lines, string(finding.Severity)+" "+strings.ReplaceAll(finding.String(), f.dir, "DIR"))
	}
	return lines
}

// load loads files that must be good.
func load(t testing.TB, f certs.Files) *certs.Set {
	t.Helper()
	set := check.Value(certs.Load(f)).Must(t)
	return set
}

// setOf is what Load makes of a node's certificate.
func setOf(t testing.TB, node, root *pair, intermediates ...*pair) *certs.Set {
	t.Helper()
	return load(t, newFolder(t).files(node, root, intermediates...))
}
