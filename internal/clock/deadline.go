package clock

import (
	"context"
	"sync"
	"time"
)

// Deadline is a context that ends at a given time. Most calls end long before and never wait, so
// the timer is armed only by the first call of Done.
type Deadline struct {
	context.Context
	at time.Time

	mu     sync.Mutex // guards what follows
	armed  context.Context
	cancel context.CancelFunc
}

// NewDeadline returns a context that ends with its parent, or when so much time is over.
func NewDeadline(parent context.Context, d time.Duration) *Deadline {
	return &Deadline{Context: parent, at: time.Now().Add(d)}
}

// Deadline returns when the context ends.
func (d *Deadline) Deadline() (time.Time, bool) {
	if at, ok := d.Context.Deadline(); ok && at.Before(d.at) {
		return at, true
	}
	return d.at, true
}

// Done arms the timer.
func (d *Deadline) Done() <-chan struct{} {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.armed == nil {
		d.armed, d.cancel = context.WithDeadline(d.Context, d.at)
	}
	return d.armed.Done()
}

// Err returns why the context ended, nil before.
func (d *Deadline) Err() error {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.armed != nil {
		return d.armed.Err()
	}
	if err := d.Context.Err(); err != nil {
		return err
	}
	if !time.Now().Before(d.at) {
		return context.DeadlineExceeded
	}
	return nil
}

// Release disarms the timer. The context must not be waited for afterwards.
func (d *Deadline) Release() {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.cancel != nil {
		d.cancel()
	}
}
