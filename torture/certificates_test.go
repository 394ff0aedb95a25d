package torture

import (
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"testing"

	"github.com/annalsdb/annals/internal/check"
	"github.com/annalsdb/annals/internal/vfs"
)

// TestPut: a node has exactly the authorities that it shall trust, and files are replaced whole.
func TestPut(t *testing.T) {
	c := check.Value(NewCertificates()).Must(t)
	files := vfs.NewMem()
	serials := map[string]bool{}
	for _, trust := range []Trust{{}, {Both: true}, {Both: true, Issuer: 1}, {Issuer: 1}} {
		serial, err := c.Put(files, "/etc", "127.0.0.1", trust)
		check.Must(t, err)
		serials[serial] = true
		var want []string
		for i, name := range []string{"0.crt", "1.crt"} {
			if trust.Both || trust.Issuer == i {
				want = append(want, name)
			}
		}
		check.Deep(t, check.Value(files.List("/etc/"+RootsFolder)).Must(t), want)
		check.Deep(t, check.Value(files.List("/etc")).Must(t), []string{CertificateFile, KeyFile, RootsFolder})
	}
	check.Equal(t, len(serials), 4, serials)
}

// TestCertificatesAreOffTheDisk: faults freeze and fill the disk of a node, not what the operator
// gives it.
func TestCertificatesAreOffTheDisk(t *testing.T) {
	if runtime.GOOS != "linux" {
		t.Skip("the laboratory needs Linux")
	}
	o := options{nodes: 3, loopback: true, tls: true}
	c := check.Value(newLabCluster(&o, 1, filepath.Join(t.TempDir(), "cluster"), nil)).Must(t)
	defer func() { check.NoError(t, c.Close()) }()
	found := map[string]bool{}
	for i := range 4 {
		args := c.arguments(i)
		for _, option := range []string{"--certificate-file", "--certificate-private-key-file", "--trusted-root-certificates-path"} {
			file := args[slices.Index(args, option)+1]
			check.NoError(t, check.Err(os.Stat(file)), file)
			found[file] = true
			if strings.HasPrefix(file, c.At(i).host.Dir()) {
				t.Errorf("%s is on the disk of %s", file, nodeName(i))
			}
		}
	}
	check.Equal(t, len(found), 12, found)
}
