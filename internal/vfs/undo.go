package vfs

import "errors"

// Undo is deferred: where the function that made something fails, undo takes it back.
func Undo(err *error, undo func() error) {
	if *err != nil {
		*err = errors.Join(*err, undo())
	}
}
