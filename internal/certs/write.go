package certs

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rsa"
	"crypto/x509"
	"errors"
	"fmt"
	"io/fs"
	"net/netip"
	"os"
	"path/filepath"
	"time"

	"github.com/annalsdb/annals/internal/owner"
	"github.com/annalsdb/annals/internal/vfs"
)

// The permissions of what is written. Keys are for their owner alone.
const (
	keyPermission         fs.FileMode = 0o600
	certificatePermission fs.FileMode = 0o644
	folderPermission      fs.FileMode = 0o755
)

// A newFile is a file to be written.
type newFile struct {
	name       string
	permission fs.FileMode
	data       []byte
	like       fs.FileInfo // whose owner it gets; nil: the writer's
}

// writeFiles writes files into a folder in their order. Without force it writes
// none if one of them is there. Each appears whole or not at all, also after a
// crash. Two calls for the same folder must not run at the same time.
func writeFiles(dir string, force bool, files ...newFile) error {
	if err := os.MkdirAll(dir, folderPermission); err != nil {
		return err
	}
	if !force {
		for _, f := range files {
			if err := absent(filepath.Join(dir, f.name)); err != nil {
				return err
			}
		}
	}
	for _, f := range files {
		if err := writeFile(dir, f); err != nil {
			return fmt.Errorf("write %s: %w", filepath.Join(dir, f.name), err)
		}
	}
	return nil
}

// absent fails if there is anything of that name, a dangling link included.
func absent(name string) error {
	_, err := os.Lstat(name)
	switch {
	case err == nil:
		return &fs.PathError{Op: "write", Path: name, Err: fs.ErrExist}
	case errors.Is(err, fs.ErrNotExist):
		return nil
	}
	return err
}

// writeFile writes, syncs and renames. Other users can never read the temporary file; it is removed
// when something fails.
func writeFile(dir string, f newFile) error {
	temp, err := os.CreateTemp(dir, "."+f.name+"-*.tmp")
	if err != nil {
		return err
	}
	_, err = temp.Write(f.data)
	if err == nil && f.like != nil {
		err = owner.Like(temp, f.like)
	}
	if err == nil {
		err = temp.Chmod(f.permission)
	}
	if err == nil {
		err = temp.Sync()
	}
	if err = errors.Join(err, temp.Close()); err == nil {
		err = os.Rename(temp.Name(), filepath.Join(dir, f.name))
	}
	if err != nil {
		return errors.Join(err, os.Remove(temp.Name()))
	}
	return syncFolder(dir)
}

// syncFolder makes a rename durable.
func syncFolder(dir string) (err error) {
	d, err := os.Open(dir)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, d.Close()) }()
	return d.Sync()
}

// keptStamp is the end of the name under which a file is kept that was replaced.
const keptStamp = ".old-20060102T150405Z"

// NodeCertificate reads the certificate of a node, the first of its file. The
// password opens a PKCS#12 bundle.
func NodeCertificate(file, password string) (*x509.Certificate, error) {
	b, err := parseFile(vfs.OS, file, func(data []byte) (*bundle, error) { return parseBundle(data, password) })
	if err != nil {
		return nil, fmt.Errorf("%s %w", file, err)
	}
	return b.certificates[0], nil
}

// Successor returns the options by which an authority issues the next
// certificate of a node: with the names, the kind of key and the term of the present one, or
// the term that the authority has left if that is shorter.
func (a *Authority) Successor(present *x509.Certificate) (NodeOptions, error) {
	o := NodeOptions{CommonName: present.Subject.CommonName, DNSNames: present.DNSNames}
	for _, ip := range present.IPAddresses {
		if address, ok := netip.AddrFromSlice(ip); ok {
			o.IPs = append(o.IPs, address.Unmap())
		}
	}
	const day = 24 * time.Hour
	o.Days = max(1, int((present.NotAfter.Sub(present.NotBefore)-backdate+day/2)/day))
	if left := time.Until(a.Certificate.NotAfter); left < time.Duration(o.Days)*day {
		o.Days = int(left / day) // 0 ends with the authority
	}
	switch key := present.PublicKey.(type) {
	case *rsa.PublicKey:
		switch key.N.BitLen() {
		case 2048:
			o.Key = RSA2048
		case 4096:
			o.Key = RSA4096
		}
	case *ecdsa.PublicKey:
		if key.Curve == elliptic.P256() {
			o.Key = ECDSAP256
		}
	}
	if o.Key == "" {
		return o, ErrOtherKey
	}
	return o, nil
}

// ErrOtherKey says that a certificate is for a kind of key that is not made here.
var ErrOtherKey = errors.New("the present certificate is for a kind of key that is not made here")

// Expiring says whether the authority ends within 30 days.
func (a *Authority) Expiring(now time.Time) bool { return a.Certificate.NotAfter.Sub(now) <= soon }

// Replace writes the certificate and its key over the present files, which may be one file. The old
// files are kept next to the new ones, under the names that are returned. Each new file has owner
// and permissions of the old one and appears whole or not at all. The key is replaced first; if the
// certificate cannot be, the old key is put back. A crash between the two leaves a pair that does
// not match, and a node does not load it. Replacing once more repairs it.
func (i *Issued) Replace(certificateFile, keyFile string, now time.Time) (kept []string, err error) {
	certificate, err := present(certificateFile)
	if err != nil {
		return nil, err
	}
	if isPKCS12(certificate.data) && !isPEM(certificate.data) {
		return nil, fmt.Errorf("%s is a PKCS#12 bundle, which is not made here", certificateFile)
	}
	key, err := present(keyFile)
	if err != nil {
		return nil, err
	}
	certificatePEM, keyPEM, err := encodePair(i.Certificate, i.key)
	if err != nil {
		return nil, err
	}
	old, next := []*presentFile{key, certificate}, [][]byte{keyPEM, certificatePEM}
	if key.path == certificate.path {
		old, next = old[1:], [][]byte{append(certificatePEM, keyPEM...)}
	}
	for _, f := range old {
		name := f.path + now.UTC().Format(keptStamp)
		if err := absent(name); err != nil {
			return kept, fmt.Errorf("keep %s: %w", f.path, err)
		}
		if err := f.write(name, f.data); err != nil {
			return kept, fmt.Errorf("keep %s: %w", f.path, err)
		}
		kept = append(kept, name)
	}
	for at, f := range old {
		err := f.write(f.path, next[at])
		if err == nil {
			continue
		}
		err = fmt.Errorf("replace %s: %w", f.path, err)
		if at > 0 {
			err = errors.Join(err, old[0].write(old[0].path, old[0].data))
		}
		return kept, err
	}
	return kept, nil
}

// presentFile is a file that is to be replaced.
type presentFile struct {
	path string // with links followed: what they lead to is replaced
	info fs.FileInfo
	data []byte
}

func present(file string) (*presentFile, error) {
	path, err := filepath.EvalSymlinks(file)
	if err != nil {
		return nil, err
	}
	info, err := os.Stat(path)
	if err != nil {
		return nil, err
	}
	data, err := readFile(vfs.OS, path)
	if err != nil {
		return nil, fmt.Errorf("%s %w", path, err)
	}
	return &presentFile{path, info, data}, nil
}

// write writes a file with the owner and the permissions of this one.
func (f *presentFile) write(name string, data []byte) error {
	return writeFile(filepath.Dir(name), newFile{name: filepath.Base(name), permission: f.info.Mode().Perm(), data: data, like: f.info})
}
