package chunkfile

import (
	"runtime/debug"

	"github.com/annalsdb/annals/event"
)

// GuardFaults turns a fault while reading mapped memory (the disk did not
// deliver, or the file was cut from outside) into a corruption error instead of
// the end of the process. Use: defer guardFaults(&err)().
func GuardFaults(err *error) func() {
	old := debug.SetPanicOnFault(true)
	return func() {
		debug.SetPanicOnFault(old)
		r := recover()
		if r == nil {
			return
		}
		if fault, ok := r.(interface {
			error
			Addr() uintptr
		}); ok {
			*err = &Fault{&event.Corruption{File: "a mapped chunk or index file", Offset: -1, Detail: "reading it faulted: " + fault.Error()}, fault.Addr()}
			return
		}
		panic(r)
	}
}

// Fault is a corruption met where the system could not deliver mapped memory.
type Fault struct {
	*event.Corruption
	Addr uintptr
}

func (e *Fault) Unwrap() error { return e.Corruption }
