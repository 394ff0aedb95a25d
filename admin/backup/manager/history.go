package manager

import (
	"context"
	"sync"

	"github.com/google/uuid"

	"github.com/annalsdb/annals/admin/record"
	"github.com/annalsdb/annals/event"
	"github.com/annalsdb/annals/internal/logkey"
)

// Names of the history. Clients read it: do not change.
const (
	Stream        = "$backups"
	TypeStarted   = "$backupStarted"
	TypeCompleted = "$backupCompleted"
)

// The payloads as they are stored. Do not change.
type (
	startedData struct {
		BackupID     string `json:"backupId"`
		NodeEndpoint string `json:"nodeEndpoint"`
		To           string `json:"to"`
	}
	completedData struct {
		BackupID     string  `json:"backupId"`
		NodeEndpoint string  `json:"nodeEndpoint"`
		Result       Result  `json:"result"`
		Position     int64   `json:"position"`
		Bytes        int64   `json:"bytes"`
		BytesCopied  int64   `json:"bytesCopied"`
		Seconds      float64 `json:"seconds"`
		Error        *string `json:"error"`
	}
)

// maxWaiting bounds the events that wait for a cluster that takes no writes.
const maxWaiting = 1000

// eventIDs is the name space of ids of events: an event has the same id whichever process
// writes it, so that it stands there once.
var eventIDs = uuid.MustParse("2b0f0c52-8d0f-4c5e-9a53-5d9a6f1a7c11")

// history writes the events, one at a time and in their order. No run waits for it.
type history struct {
	opts    *Options
	records *record.Writer
	ctx     context.Context
	cancel  context.CancelFunc
	closing chan struct{}
	done    chan struct{}
	wake    chan struct{} // has room for one

	mu     sync.Mutex // guards what follows
	queue  []event.Proposed
	closed bool
}

func newHistory(o *Options) *history {
	h := &history{opts: o, closing: make(chan struct{}), done: make(chan struct{}), wake: make(chan struct{}, 1)}
	h.ctx, h.cancel = context.WithCancel(context.Background())
	h.records = record.New(record.Options{
		Store: o.Records, Logger: o.Logger, What: "the history of backups", MaxAge: o.MaxAge, Timeout: o.WriteTimeout, Closing: h.closing,
	})
	go h.work()
	return h
}

// add puts an event into the queue.
func (h *history) add(id, typ string, payload any) {
	e := record.Proposed(typ, record.Encode(payload))
	e.ID = event.ID(uuid.NewSHA1(eventIDs, []byte(typ+" "+id)))
	h.mu.Lock()
	full := h.closed || len(h.queue) >= maxWaiting
	if !full {
		h.queue = append(h.queue, e)
		select {
		case h.wake <- struct{}{}:
		default:
		}
	}
	h.mu.Unlock()
	if full {
		h.opts.Logger.Warn("an event of the history of backups is left out, as too many wait to be written or the node ends", logkey.Backup, id, logkey.Type, typ)
	}
}

// next takes the oldest event out of the queue; false when there is none and never will be.
func (h *history) next() (e event.Proposed, ok bool) {
	for {
		h.mu.Lock()
		if len(h.queue) > 0 {
			e, h.queue = h.queue[0], h.queue[1:]
			h.mu.Unlock()
			return e, true
		}
		closed := h.closed
		h.mu.Unlock()
		if closed {
			return e, false
		}
		select {
		case <-h.wake:
		case <-h.closing:
		}
	}
}

func (h *history) work() {
	defer close(h.done)
	described := false
	for e, ok := h.next(); ok && h.ctx.Err() == nil; e, ok = h.next() {
		var err error
		if !described {
			err = h.records.Describe(h.ctx, Stream)
			described = err == nil
		}
		if err == nil { // Nothing is written to a stream that everybody could read.
			_, err = h.records.Append(h.ctx, Stream, e)
		}
		if err != nil {
			h.opts.Logger.Warn("an event of the history of backups is given up", logkey.Type, e.Type, "data", string(e.Data), logkey.Error, err)
		}
	}
}

// close lets what waits be written for a few seconds.
func (h *history) close() {
	h.mu.Lock()
	if !h.closed {
		h.closed = true
		close(h.closing)
	}
	h.mu.Unlock()
	h.records.End(h.done, h.cancel)
}

func (m *Manager) recordStart(s *Status) {
	if m.history != nil {
		m.history.add(s.ID, TypeStarted, startedData{s.ID, m.opts.Endpoint(), m.opts.To})
	}
}

func (m *Manager) recordEnd(s *Status) {
	if m.history == nil {
		return
	}
	d := completedData{
		BackupID: s.ID, NodeEndpoint: m.opts.Endpoint(), Result: s.Result, Position: s.Position, Bytes: s.Bytes, BytesCopied: s.BytesCopied,
		Seconds: s.Seconds(s.Ended),
	}
	if s.Error != "" {
		d.Error = &s.Error
	}
	m.history.add(s.ID, TypeCompleted, d)
}
