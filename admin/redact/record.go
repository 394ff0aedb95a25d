package redact

import (
	"context"
	"encoding/json"
	"time"

	"github.com/annalsdb/annals/admin/record"
)

// Names of the record in the database. They are part of the wire contract: do not change.
const (
	Stream       = "$redactions"
	typeRedacted = "$redacted"

	// recordMetadata: readable by operators, writable by admins alone.
	recordMetadata = `{` + record.ACL + `}`
)

// recorded is the data of the event that records a redaction. Never any data of events.
type recorded struct {
	NodeEndpoint string         `json:"nodeEndpoint"`
	User         string         `json:"user"`
	Reason       string         `json:"reason"`
	Events       []pendingEvent `json:"events"`
	Time         time.Time      `json:"time"`
}

// record writes the record. Its id makes sure that it is written only once, however often it is
// tried.
func (s *Service) record(ctx context.Context, p *pending) error {
	data, err := json.Marshal(recorded{NodeEndpoint: s.opts.Endpoint(), User: p.User, Reason: p.Reason, Events: p.Events, Time: p.Time})
	if err != nil {
		return err
	}
	redacted := record.Proposed(typeRedacted, data)
	redacted.ID = p.ID
	return record.NewJournal(record.Options{Store: s.opts.Records, Metadata: recordMetadata, KeepMetadata: true}, Stream).Try(ctx, redacted)
}
