package node_test

import (
	"bytes"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/hashicorp/go-hclog"

	"github.com/annalsdb/annals/internal/certs"
)

// TestCertificateWarnings: a node that can work with its certificate warns at start of each problem
// that needs attention, with the file and the remedy.
func TestCertificateWarnings(t *testing.T) {
	dir := t.TempDir()
	authority, err := certs.NewAuthority(certs.AuthorityOptions{Key: certs.ECDSAP256})
	if err != nil {
		t.Fatal(err)
	}
	issued, err := authority.Issue(certs.NodeOptions{DNSNames: []string{"localhost"}, Days: 29, Key: certs.ECDSAP256})
	if err != nil {
		t.Fatal(err)
	}
	roots := filepath.Join(dir, "roots")
	if err := authority.Write(roots, false); err != nil {
		t.Fatal(err)
	}
	if err := issued.Write(dir, false); err != nil {
		t.Fatal(err)
	}
	certificate, key := filepath.Join(dir, certs.NodeCertificateFile), filepath.Join(dir, certs.NodeKeyFile)
	if err := os.Chmod(key, 0o604); err != nil {
		t.Fatal(err)
	}
	var lines bytes.Buffer
	o := options(filepath.Join(dir, "db"))
	o.Config.MemDb, o.Config.CertificateFile, o.Config.CertificatePrivateKeyFile, o.Config.TrustedRootCertificatesPath = true, certificate, key, roots
	o.Logger = hclog.New(&hclog.LoggerOptions{Output: &lines, Level: hclog.Warn})
	if err := open(t, o).Close(); err != nil { // No more lines are written.
		t.Fatal(err)
	}
	warnings := strings.Split(strings.TrimSuffix(lines.String(), "\n"), "\n")
	want := [][]string{{certificate, "expires on ", "renew the certificate"}, {key, "every user of this machine may read the private key", "chmod o-rwx"}}
	if len(warnings) != len(want) {
		t.Fatalf("%d lines, want %d:\n%s", len(warnings), len(want), &lines)
	}
	for i, parts := range want {
		for _, part := range append(parts, "[WARN]") {
			if !strings.Contains(warnings[i], part) {
				t.Errorf("%q is missing in: %s", part, warnings[i])
			}
		}
	}
}
