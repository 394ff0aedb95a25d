package lab

import (
	"container/heap"
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"time"

	"github.com/annalsdb/annals/internal/bell"
)

// Bounds of what waits on one link. A packet beyond them is lost.
const (
	maxWaitingPackets = 16384
	maxWaitingBytes   = 32 << 20
	// maxQueueing bounds the wait for a turn on a link of limited bandwidth.
	maxQueueing = 250 * time.Millisecond
)

// link carries packets from one device to another.
type link struct {
	to     *device
	owner  *network
	rule   atomic.Pointer[Rule] // nil: everything passes at once
	chance *rand.Rand           // of the sending device's goroutine alone

	packets, bytes, dropped atomic.Uint64

	// onTheWay counts the packets that wait or are being handed over by the
	// link's goroutine. While it is not zero nothing passes by at once: that
	// keeps the order when a delay ends.
	onTheWay atomic.Int64
	wake     chan struct{} // capacity 1: the head of the queue is another one

	mu      sync.Mutex // guards what follows
	started bool       // the goroutine that empties the queue
	waiting packetQueue
	volume  int       // bytes in waiting
	count   uint64    // packets that ever waited
	freeAt  time.Time // when the bandwidth has carried all packets so far
}

func newLink(owner *network, to *device, seed, number uint64) *link {
	return &link{to: to, owner: owner, chance: rand.New(rand.NewPCG(seed, number)), wake: make(chan struct{}, 1)}
}

// set replaces the rule. What waits arrives no later than if it were sent now;
// a cut takes it away.
func (l *link) set(r Rule) {
	l.mu.Lock()
	if r == l.current() {
		l.mu.Unlock()
		return
	}
	if r == (Rule{}) {
		l.rule.Store(nil)
	} else {
		l.rule.Store(&r)
	}
	latest := time.Now().Add(r.Delay + r.Jitter)
	l.freeAt = time.Time{}
	if r.Cut {
		l.dropped.Add(uint64(len(l.waiting)))
		l.onTheWay.Add(-int64(len(l.waiting)))
		l.waiting, l.volume = nil, 0
	}
	for i := range l.waiting {
		if latest.Before(l.waiting[i].due) {
			l.waiting[i].due = latest
		}
	}
	heap.Init(&l.waiting)
	l.mu.Unlock()
	l.alarm()
}

// current is the rule as it is.
func (l *link) current() Rule {
	if r := l.rule.Load(); r != nil {
		return *r
	}
	return Rule{}
}

func (l *link) traffic() Traffic {
	return Traffic{Packets: l.packets.Load(), Bytes: l.bytes.Load(), Dropped: l.dropped.Load()}
}

// forward judges one packet, on the goroutine of the sending device, and does not keep it.
func (l *link) forward(packet []byte) {
	r := l.rule.Load()
	switch {
	case r != nil && (r.Cut || r.Drop > 0 && l.chance.Float64() < r.Drop):
		l.dropped.Add(1)
	case (r == nil || r.Delay == 0 && r.Jitter == 0 && r.BytesPerSecond == 0) && l.onTheWay.Load() == 0:
		l.deliver(packet)
	default:
		l.enqueue(packet)
	}
}

// deliver hands a packet to the receiving device.
func (l *link) deliver(packet []byte) {
	// A device does not take a packet while it is being closed: as lost as on a cable.
	if _, err := l.to.file.Write(packet); err != nil {
		l.dropped.Add(1)
		return
	}
	l.packets.Add(1)
	l.bytes.Add(uint64(len(packet) - headerSize))
}

// enqueue lets a copy of the packet wait for its time.
func (l *link) enqueue(packet []byte) {
	l.mu.Lock()
	defer l.mu.Unlock()
	// Under the lock, after which set goes through the queue: nothing waits for
	// the time of an old rule.
	r, now := l.current(), time.Now()
	if r.Cut {
		l.dropped.Add(1)
		return
	}
	delay := r.Delay
	if r.Jitter > 0 {
		delay += time.Duration(l.chance.Int64N(int64(r.Jitter)))
	}
	if len(l.waiting) >= maxWaitingPackets || l.volume+len(packet) > maxWaitingBytes {
		l.dropped.Add(1)
		return
	}
	sent := now
	if r.BytesPerSecond > 0 {
		if l.freeAt.After(sent) {
			sent = l.freeAt
		}
		if sent.Sub(now) > maxQueueing {
			l.dropped.Add(1)
			return
		}
		size := float64(len(packet) - headerSize)
		sent = sent.Add(time.Duration(size / float64(r.BytesPerSecond) * float64(time.Second)))
		l.freeAt = sent
	}
	l.count++
	l.volume += len(packet)
	l.onTheWay.Add(1)
	heap.Push(&l.waiting, waitingPacket{due: sent.Add(delay), number: l.count, data: append([]byte(nil), packet...)})
	if !l.started {
		// The sending device's goroutine runs and is waited for by the same
		// group: it cannot be at zero here.
		l.started = true
		l.owner.running.Add(1)
		go l.run()
	}
	if l.waiting[0].number == l.count {
		l.alarm()
	}
}

// alarm makes the link's goroutine look at its queue again.
func (l *link) alarm() { bell.Ring(l.wake) }

// run empties the queue until the network is closed.
func (l *link) run() {
	defer l.owner.running.Done()
	timer := time.NewTimer(0)
	defer timer.Stop()
	for {
		select {
		case <-l.owner.stop:
			return
		case <-l.wake:
		case <-timer.C:
		}
		if next := l.release(); next >= 0 {
			timer.Reset(next)
		}
	}
}

// release delivers what is due and says how long the next packet has to wait, less than 0 if there
// is none.
func (l *link) release() time.Duration {
	for {
		packet, wait, ok := l.take()
		if !ok {
			return wait
		}
		if l.current().Cut {
			l.dropped.Add(1)
		} else {
			l.deliver(packet)
		}
		l.onTheWay.Add(-1)
	}
}

// take removes the head of the queue if it is due.
func (l *link) take() (packet []byte, wait time.Duration, ok bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if len(l.waiting) == 0 {
		return nil, -1, false
	}
	if wait = time.Until(l.waiting[0].due); wait > 0 {
		return nil, wait, false
	}
	p := heap.Pop(&l.waiting).(waitingPacket)
	l.volume -= len(p.data)
	return p.data, 0, true
}

// waitingPacket is a packet that is to arrive at a certain time.
type waitingPacket struct {
	due    time.Time
	number uint64 // among equal times the order of sending counts
	data   []byte
}

// packetQueue is a heap, the next packet at its head.
type packetQueue []waitingPacket

func (q packetQueue) Len() int { return len(q) }
func (q packetQueue) Less(i, j int) bool {
	if q[i].due.Equal(q[j].due) {
		return q[i].number < q[j].number
	}
	return q[i].due.Before(q[j].due)
}
func (q packetQueue) Swap(i, j int) { q[i], q[j] = q[j], q[i] }
func (q *packetQueue) Push(x any)   { *q = append(*q, x.(waitingPacket)) }
func (q *packetQueue) Pop() any {
	last := len(*q) - 1
	p := (*q)[last]
	(*q)[last] = waitingPacket{}
	*q = (*q)[:last]
	return p
}
