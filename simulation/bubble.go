//go:build durablelocks

package simulation

import (
	"errors"
	_ "unsafe" // for go:linkname
)

// waitReasons is not more than the runtime has.
const waitReasons = 40

//go:linkname waitReasonStrings runtime.waitReasonStrings
var waitReasonStrings [waitReasons]string

//go:linkname isIdleInSynctest runtime.isIdleInSynctest
var isIdleInSynctest [waitReasons]bool

// runBubble is what testing/synctest offers to tests.
//
//go:linkname runBubble internal/synctest.Run
func runBubble(f func())

// inBubble calls a function in virtual time, and returns when all goroutines that it started have
// ended.
//
// Time also moves while goroutines wait for locks. A bubble does not count them as waiting, because
// the holder of the lock may be outside the bubble. In a simulation everyone is inside, and nodes
// hold some locks while they wait for a disk or a channel: time would stand still for ever.
func inBubble(f func()) error {
	known := 0
	for i, reason := range &waitReasonStrings {
		switch reason {
		case "sync.Mutex.Lock", "sync.RWMutex.Lock", "sync.RWMutex.RLock":
			isIdleInSynctest[i] = true
			known++
		}
	}
	if known != 3 {
		return errors.New("this version of Go has other names for waiting for a lock: see simulation/DESIGN.md")
	}
	runBubble(f)
	return nil
}
