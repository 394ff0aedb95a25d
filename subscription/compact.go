package subscription

import (
	"strings"

	"github.com/annalsdb/annals/event"
)

// sharedBlock is about what the events of a page occupy together, however little they hold.
const sharedBlock = 8 << 10

// compact moves the events of a page that hold little out of the block that they
// share. A group keeps what it read ahead until somebody takes it, and of a stream
// that grows slowly each event is a page of its own.
func compact(events []event.Resolved) {
	size := 0
	for i := range events {
		e := &events[i]
		size += len(e.Data) + len(e.Metadata)
		if e.Target != nil {
			size += len(e.Target.Data) + len(e.Target.Metadata)
		}
	}
	if size > sharedBlock/2 {
		return
	}
	block := make([]byte, 0, size)
	move := func(r *event.Record, typeBefore string) {
		r.Data, block = moveBytes(r.Data, block)
		r.Metadata, block = moveBytes(r.Metadata, block)
		if r.Type == typeBefore { // As most are.
			r.Type = typeBefore
		} else {
			r.Type = strings.Clone(r.Type)
		}
	}
	typeBefore := ""
	for i := range events {
		e := &events[i]
		move(&e.Record, typeBefore)
		typeBefore = e.Type
		e.TargetStream = strings.Clone(e.TargetStream)
		if e.Target != nil {
			target := *e.Target
			target.Stream = e.TargetStream
			move(&target, "")
			e.Target = &target
		}
	}
}

// moveBytes copies b to the end of a block that has room for it.
func moveBytes(b, block []byte) (moved, all []byte) {
	all = append(block, b...)
	return all[len(block):len(all):len(all)], all
}
