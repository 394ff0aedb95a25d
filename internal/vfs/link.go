package vfs

import "errors"

// ErrNoLinks says that a file system gives files one name only.
var ErrNoLinks = errors.New("files cannot have a second name here")

// Link gives a file a second name, where the file system can. It is durable only
// after SyncDir. A caller copies the file when it cannot.
func Link(fsys FS, oldName, newName string) error {
	if l, ok := fsys.(interface {
		Link(oldName, newName string) error
	}); ok {
		return l.Link(oldName, newName)
	}
	return ErrNoLinks
}
