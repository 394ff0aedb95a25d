package node_test

import (
	"bytes"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/hashicorp/go-hclog"

	"github.com/annalsdb/annals/internal/certs"
	"github.com/annalsdb/annals/internal/check"
)

// TestCertificateWarnings: a node that can work with its certificate warns at start of each problem
// that needs attention, with the file and the remedy.
func TestCertificateWarnings(t *testing.T) {
	dir := t.TempDir()
	authority, err := certs.NewAuthority(certs.AuthorityOptions{Key: certs.ECDSAP256})
	check.Must(t, err)
	issued, err := authority.Issue(certs.NodeOptions{DNSNames: []string{"localhost"}, Days: 29, Key: certs.ECDSAP256})
	check.Must(t, err)
	roots := filepath.Join(dir, "roots")
	check.Must(t, authority.Write(roots, false))
	check.Must(t, issued.Write(dir, false))
	certificate, key := filepath.Join(dir, certs.NodeCertificateFile), filepath.Join(dir, certs.NodeKeyFile)
	check.Must(t, os.Chmod(key, 0o604))
	var lines bytes.Buffer
	o := options(filepath.Join(dir, "db"))
	o.Config.MemDb, o.Config.CertificateFile, o.Config.CertificatePrivateKeyFile, o.Config.TrustedRootCertificatesPath = true, certificate, key, roots
	o.Logger = hclog.New(&hclog.LoggerOptions{Output: &lines, Level: hclog.Warn})
	if err := open(t, o).Close(); err != nil { // No more lines are written.
		t.Fatal(err)
	}
	warnings := strings.Split(strings.TrimSuffix(lines.String(), "\n"), "\n")
	want := [][]string{{certificate, "expires on ", "renew the certificate"}, {key, "every user of this machine may read the private key", "chmod o-rwx"}}
	check.MustEqual(t, len(warnings), len(want), "lines", &lines)
	for i, parts := range want {
		for _, part := range append(parts, "[WARN]") {
			check.Contains(t, warnings[i], part, "is missing in")
		}
	}
}
