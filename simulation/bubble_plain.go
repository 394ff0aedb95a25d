//go:build !durablelocks

package simulation

import "errors"

// inBubble is in bubble.go: the linker must be asked for it.
func inBubble(func()) error {
	return errors.New("this program cannot simulate: it was built without -tags durablelocks -ldflags=-checklinkname=0, which make build has")
}
