// Package peersecret is how nodes of one machine that have no certificates prove to each other that
// one user of the operating system runs them.
//
// Each such node has a file with a secret that its user alone can read, and tells others where it
// is. A process that can read the file runs as that user, or as root: the permissions of the file
// are the boundary, as for everything else in the data folder. The secret itself is never sent.
// Both sides of a connection show that they know it by codes over numbers that either of them chose
// (package wire).
//
// Nodes that cannot read each other's file, since other users run them or other containers, prove
// the same by having one secret: copies of one file.
package peersecret

import (
	"bytes"
	"crypto/hmac"
	"crypto/rand"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"

	"github.com/annalsdb/annals/internal/vfs"
)

// FileName is the name of the file, in the data folder of a node. Others open no file of another
// name.
const FileName = "peer-secret"

// The file is one line: what it is, and the secret in hexadecimal. Do not change: nodes of
// different versions read each other's.
const (
	heading  = "annals peer secret 1 "
	keySize  = 32
	fileSize = int64(len(heading)) + 2*keySize + 1
)

// IDSize is the size of an ID.
const IDSize = 8

// ID names a secret without telling it.
type ID [IDSize]byte

// A Secret is that of one node. It does not change.
type Secret struct {
	key   [keySize]byte
	files vfs.FS // of this node
	file  string
}

// fresh returns a secret that lies in no file yet.
func fresh() *Secret {
	s := new(Secret)
	_, _ = rand.Read(s.key[:]) // It ends the process rather than fail.
	return s
}

// File is where the secret lies, as an absolute path.
func (s *Secret) File() string { return s.file }

// ID names the secret.
func (s *Secret) ID() ID { return ID(s.Code([]byte("annals peer secret id"))[:IDSize]) }

// Code returns the authentication code of a message, given in parts of which the reader knows the
// sizes.
func (s *Secret) Code(parts ...[]byte) []byte {
	h := hmac.New(sha256.New, s.key[:])
	for _, part := range parts {
		_, _ = h.Write(part) // never fails
	}
	return h.Sum(nil)
}

// Proves says whether a code is that of a message.
func (s *Secret) Proves(code []byte, parts ...[]byte) bool { return hmac.Equal(code, s.Code(parts...)) }

// Settle returns the secret of the node with a data folder, and makes one where there is none. One
// that is damaged, or that others can read, is worth nothing: it is replaced, and why tells so.
func Settle(files vfs.FS, dir string) (s *Secret, why, err error) {
	if dir, err = filepath.Abs(dir); err != nil {
		return nil, nil, err
	}
	file := filepath.Join(dir, FileName)
	if s, err = read(files, file); err == nil {
		return s, nil, nil
	}
	if !errors.Is(err, fs.ErrNotExist) {
		why = err
	}
	if err = fresh().write(files, file, why != nil); err != nil {
		return nil, nil, err
	}
	// What is read counts: another process may have been first.
	s, err = read(files, file)
	return s, why, err
}

// Temporary returns a secret in a folder of its own, for a node without a data folder or with one
// that keeps no permissions. It must be removed.
func Temporary() (s *Secret, remove func() error, err error) {
	dir, err := os.MkdirTemp("", "annals-")
	if err != nil {
		return nil, nil, err
	}
	remove = func() error { return vfs.OS.RemoveAll(dir) }
	if s, _, err = Settle(vfs.OS, dir); err != nil {
		return nil, nil, errors.Join(err, remove())
	}
	return s, remove, nil
}

// write makes the file durable. Without replace, one that appears meanwhile stays.
func (s *Secret) write(files vfs.FS, file string, replace bool) (err error) {
	temp := file + "-" + rand.Text() + vfs.TempSuffix
	f, err := files.CreatePrivate(temp)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, vfs.RemoveIfThere(files, temp)) }()
	_, err = f.WriteAt([]byte(heading+hex.EncodeToString(s.key[:])+"\n"), 0)
	if err = errors.Join(err, f.Sync(), f.Close()); err != nil {
		return err
	}
	if !replace {
		err = vfs.Link(files, temp, file)
	}
	switch {
	case errors.Is(err, fs.ErrExist):
		return nil
	case replace || err != nil: // There are file systems without links.
		if err = files.Rename(temp, file); err != nil {
			return err
		}
	}
	return files.SyncDir(filepath.Dir(file))
}

// Other returns the secret of another node of this machine, in a file that the node has named. It
// must be of this process's own user, and no other user may read it: otherwise another user could
// have made it, named it, and know its content.
func (s *Secret) Other(file string) (*Secret, error) {
	if filepath.Base(file) != FileName || !filepath.IsAbs(file) {
		return nil, fmt.Errorf("%q is not the path of a file %s", file, FileName)
	}
	return read(s.files, file)
}

func read(files vfs.FS, file string) (*Secret, error) {
	f, err := files.OpenPrivate(file)
	if err != nil {
		return nil, err
	}
	defer func() { _ = f.Close() }()
	text := make([]byte, fileSize+1)
	n, err := f.ReadAt(text, 0)
	if err != nil && err != io.EOF {
		return nil, err
	}
	text = text[:n]
	s := &Secret{files: files, file: file}
	key, ok := bytes.CutPrefix(text, []byte(heading))
	if ok = ok && int64(len(text)) == fileSize && key[2*keySize] == '\n'; ok {
		_, err = hex.Decode(s.key[:], key[:2*keySize])
	}
	if !ok || err != nil {
		return nil, fmt.Errorf("%s does not hold a secret of a node", file)
	}
	return s, nil
}
