package api

import (
	"errors"

	"github.com/annalsdb/annals/event"
)

// Errors of an append that could never be done.
var (
	ErrLongName    = errors.New("the name of a stream or a type is too long")
	ErrLargeAppend = errors.New("the events of an append are too large together")
)

// CheckName returns ErrLongName for a stream or a type whose name no record can hold.
func CheckName(bytes int) error {
	if bytes > event.MaxNameBytes {
		return ErrLongName
	}
	return nil
}

// CheckEvent checks the sizes of one event more of an append: of its type, and of its data and
// metadata, which are added to the payload of the append. It returns event.ErrTooLarge for the
// event, ErrLongName, or ErrLargeAppend.
func (n *Node) CheckEvent(typeBytes, bytes int, payload *int64) error {
	if bytes > n.MaxEventBytes {
		return event.ErrTooLarge
	}
	if *payload += int64(bytes); *payload > n.MaxAppendBytes {
		return ErrLargeAppend
	}
	return CheckName(typeBytes)
}
