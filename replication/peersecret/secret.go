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
	key  [keySize]byte
	file string
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
func Settle(dir string) (s *Secret, why, err error) {
	if dir, err = filepath.Abs(dir); err != nil {
		return nil, nil, err
	}
	file := filepath.Join(dir, FileName)
	if s, err = read(file); err == nil {
		return s, nil, nil
	}
	if !errors.Is(err, fs.ErrNotExist) {
		why = err
	}
	if err = fresh().write(file, why != nil); err != nil {
		return nil, nil, err
	}
	// What is read counts: another process may have been first.
	s, err = read(file)
	return s, why, err
}

// Temporary returns a secret in a folder of its own, for a node without a data folder or with one
// that keeps no permissions. It must be removed.
func Temporary() (s *Secret, remove func() error, err error) {
	dir, err := os.MkdirTemp("", "annals-")
	if err != nil {
		return nil, nil, err
	}
	remove = func() error { return os.RemoveAll(dir) }
	if s, _, err = Settle(dir); err != nil {
		return nil, nil, errors.Join(err, remove())
	}
	return s, remove, nil
}

// write makes the file durable. Without replace, one that appears meanwhile stays.
func (s *Secret) write(file string, replace bool) (err error) {
	dir := filepath.Dir(file)
	temp, err := os.CreateTemp(dir, FileName+"-*.tmp") // for its owner alone
	if err != nil {
		return err
	}
	defer func() {
		if gone := os.Remove(temp.Name()); !errors.Is(gone, fs.ErrNotExist) {
			err = errors.Join(err, gone)
		}
	}()
	_, err = temp.WriteString(heading + hex.EncodeToString(s.key[:]) + "\n")
	if err = errors.Join(err, temp.Sync(), temp.Close()); err != nil {
		return err
	}
	if !replace {
		err = os.Link(temp.Name(), file)
	}
	switch {
	case errors.Is(err, fs.ErrExist):
		return nil
	case replace || err != nil: // There are file systems without links.
		if err = os.Rename(temp.Name(), file); err != nil {
			return err
		}
	}
	d, err := os.Open(dir)
	if err != nil {
		return err
	}
	return errors.Join(d.Sync(), d.Close())
}

// ErrShared says that a file does not belong to this process's user alone.
var ErrShared = errors.New("the file of a secret is not private to its user")

// Other returns the secret of another node of this machine, in a file that the node has named. It
// must be of this process's own user, and no other user may read it: otherwise another user could
// have made it, named it, and know its content.
func Other(file string) (*Secret, error) {
	if filepath.Base(file) != FileName || !filepath.IsAbs(file) {
		return nil, fmt.Errorf("%q is not the path of a file %s", file, FileName)
	}
	if !tellsOwner {
		return nil, errors.New("this system does not say who owns a file")
	}
	return read(file)
}

func read(file string) (*Secret, error) {
	// Before it is opened: opening something that is not a file may have effects.
	info, err := os.Lstat(file)
	if err != nil {
		return nil, err
	}
	if !info.Mode().IsRegular() {
		return nil, fmt.Errorf("%s is not a file", file)
	}
	f, err := open(file)
	if err != nil {
		return nil, err
	}
	defer func() { _ = f.Close() }()
	if info, err = f.Stat(); err != nil {
		return nil, err
	}
	if err := private(info); err != nil {
		return nil, fmt.Errorf("%s: %w: %w", file, ErrShared, err)
	}
	text, err := io.ReadAll(io.LimitReader(f, fileSize+1))
	if err != nil {
		return nil, err
	}
	s := &Secret{file: file}
	key, ok := bytes.CutPrefix(text, []byte(heading))
	if ok = ok && int64(len(text)) == fileSize && key[2*keySize] == '\n'; ok {
		_, err = hex.Decode(s.key[:], key[:2*keySize])
	}
	if !ok || err != nil {
		return nil, fmt.Errorf("%s does not hold a secret of a node", file)
	}
	return s, nil
}
