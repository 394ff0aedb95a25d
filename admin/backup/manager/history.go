package manager

import (
	"context"

	"github.com/google/uuid"
	"github.com/hashicorp/go-hclog"

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

// eventIDs is the name space of ids of events: an event has the same id no matter which process
// writes it, so that it is written once.
var eventIDs = uuid.MustParse("2b0f0c52-8d0f-4c5e-9a53-5d9a6f1a7c11")

// history writes the events, one at a time and in their order. No run waits for it.
type history struct {
	*record.Queue[event.Proposed]
	logger hclog.Logger
}

func newHistory(o *Options) *history {
	h := &history{logger: o.Logger, Queue: record.New[event.Proposed](record.Options{
		Store: o.Records, Logger: o.Logger, What: "the history of backups", MaxAge: o.MaxAge, Timeout: o.WriteTimeout,
	}, maxWaiting)}
	h.Start(h.work)
	return h
}

// add puts an event into the queue.
func (h *history) add(id, typ string, payload any) {
	e := record.Proposed(typ, record.Encode(payload))
	e.ID = event.ID(uuid.NewSHA1(eventIDs, []byte(typ+" "+id)))
	if !h.Put(e) {
		h.logger.Warn("an event of the history of backups is left out: too many wait to be written, or the node ends", logkey.Backup, id, logkey.Type, typ)
	}
}

func (h *history) work(ctx context.Context) {
	journal := h.Journal(Stream)
	for next := h.Next(1); len(next) > 0 && ctx.Err() == nil; next = h.Next(1) {
		if _, err := journal.Append(ctx, next...); err != nil {
			h.logger.Warn("an event of the history of backups is given up", logkey.Type, next[0].Type, "data", string(next[0].Data), logkey.Error, err)
		}
	}
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
