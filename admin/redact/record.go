package redact

import (
	"context"
	"encoding/json"
	"errors"
	"time"

	"github.com/google/uuid"

	"github.com/annalsdb/annals/event"
)

// Names of the record in the database. They are part of the wire contract: do not change.
const (
	Stream       = "$redactions"
	typeRedacted = "$redacted"

	// recordMetadata: readable by operators, writable by admins alone.
	recordMetadata = `{"$acl":{"$r":"$ops","$w":[],"$d":[],"$mr":[],"$mw":[]}}`
)

// recorded is the data of the event that records a redaction. Never any data of events.
type recorded struct {
	NodeEndpoint string         `json:"nodeEndpoint"`
	User         string         `json:"user"`
	Reason       string         `json:"reason"`
	Events       []pendingEvent `json:"events"`
	Time         time.Time      `json:"time"`
}

// record writes it. Its id makes sure that it stands there once, however often it is tried.
func (s *Service) record(ctx context.Context, p *pending) error {
	_, err := s.opts.Write(ctx, &event.Write{
		Stream: event.MetaStreamOf(Stream), ExpectedVersion: event.NoStream,
		Events: []event.Proposed{{ID: event.ID(uuid.NewSHA1(uuid.Nil, []byte(Stream))), Type: event.TypeMetadata, Flags: event.FlagJSON, Data: []byte(recordMetadata)}},
	})
	var wrong *event.WrongExpectedVersion
	if err != nil && !errors.As(err, &wrong) { // Somebody has set it before.
		return err
	}
	data, err := json.Marshal(recorded{NodeEndpoint: s.opts.Endpoint(), User: p.User, Reason: p.Reason, Events: p.Events, Time: p.Time})
	if err != nil {
		return err
	}
	_, err = s.opts.Write(ctx, &event.Write{
		Stream: Stream, ExpectedVersion: event.AnyVersion,
		Events: []event.Proposed{{ID: p.ID, Type: typeRedacted, Flags: event.FlagJSON, Data: data}},
	})
	return err
}
