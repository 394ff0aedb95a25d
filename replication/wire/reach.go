package wire

import (
	"sync"
	"time"

	"github.com/hashicorp/raft"
)

// maxDown is how long a message that failed is held back. raft learns of its failure after that at
// the latest, and may have ceased to lead, or removed the node, meanwhile.
const maxDown = 30 * time.Second

// reach has raft send entries to a node as soon as that node answers again.
//
// After a failed message of entries, raft waits twice as long as the time before, up to 10 s. A
// node that was down would lack entries for that time, and the cluster could not lose another node
// meanwhile. So such a message fails only when the next heartbeat is answered, which raft tries a
// few times a second; then it makes no difference how long the node was down.
type reach struct {
	done <-chan struct{}

	mu      sync.Mutex // guards what follows; nests no other lock
	answers map[raft.ServerID]chan struct{}
}

// answered says that a node answers.
func (r *reach) answered(id raft.ServerID) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if answer, ok := r.answers[id]; ok {
		close(answer)
		delete(r.answers, id)
	}
}

// wait returns when a node answers, after maxDown, or when all ends.
func (r *reach) wait(id raft.ServerID) {
	r.mu.Lock()
	answer, ok := r.answers[id]
	if !ok {
		answer = make(chan struct{})
		r.answers[id] = answer
	}
	r.mu.Unlock()
	timer := time.NewTimer(maxDown)
	defer timer.Stop()
	select {
	case <-answer:
	case <-timer.C:
	case <-r.done:
	}
}
