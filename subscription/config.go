package subscription

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/annalsdb/annals/event"
	"github.com/annalsdb/annals/internal/logkey"
	"github.com/annalsdb/annals/internal/match"
)

// definition is one group as it is stored.
type definition struct {
	Key
	Settings Settings
	// startAt is the number at which a group with StartFrom -1 begins, resolved when
	// it was created; -1: not known, as other versions do not store it.
	startAt int64
	// storedIn is the number of the event that stored that start. This event itself does not count
	// as later than the start; -1: not known, or the group does not begin at the end.
	storedIn int64
	names    *match.Names // the compiled filter, nil: there is none
	paused   *Pause       // nil: it is not
	place    place        // zero: its source was never changed
	// stored is set for an entry that this version does not run: it is kept as it is.
	stored json.RawMessage
	// encoded is the entry, made when it is stored for the first time.
	encoded json.RawMessage
}

func (d *definition) runs() bool { return d.stored == nil }

// first returns the number at which the group begins without a checkpoint.
func (d *definition) first() int64 {
	if d.Settings.StartFrom < 0 {
		return d.startAt
	}
	return d.Settings.StartFrom
}

// document and entry are the stored form. Other versions read and write it: do not change. The
// members of an entry that are zero, false or null are left out.
type document struct {
	Version   string            `json:"version"`
	Updated   string            `json:"updated"`
	UpdatedBy string            `json:"updatedBy"`
	Entries   []json.RawMessage `json:"entries,omitempty"`
}

type entry struct {
	Stream                string `json:"stream"`
	Group                 string `json:"group"`
	ResolveLinkTos        bool   `json:"resolveLinkTos,omitempty"`
	ExtraStatistics       bool   `json:"extraStatistics,omitempty"`
	MessageTimeout        int64  `json:"messageTimeout,omitempty"` // milliseconds
	StartFrom             int64  `json:"startFrom,omitempty"`
	StartPosition         string `json:"startPosition,omitempty"`
	LiveBufferSize        int    `json:"liveBufferSize,omitempty"`
	HistoryBufferSize     int    `json:"historyBufferSize,omitempty"`
	MaxRetryCount         int    `json:"maxRetryCount,omitempty"`
	ReadBatchSize         int    `json:"readBatchSize,omitempty"`
	PreferRoundRobin      bool   `json:"preferRoundRobin,omitempty"` // of version 1
	CheckPointAfter       int64  `json:"checkPointAfter,omitempty"`  // milliseconds
	MinCheckPointCount    int    `json:"minCheckPointCount,omitempty"`
	MaxCheckPointCount    int    `json:"maxCheckPointCount,omitempty"`
	MaxSubscriberCount    int    `json:"maxSubscriberCount,omitempty"`
	NamedConsumerStrategy string `json:"namedConsumerStrategy,omitempty"`

	Filter *storedFilter `json:"filter,omitempty"`

	// The rest is ours; other versions pass it over.
	ResolvedStart *int64 `json:"resolvedStart,omitempty"`
	ResolvedIn    *int64 `json:"resolvedIn,omitempty"`

	RetryDelay             int64          `json:"retryDelayMilliseconds,omitempty"`
	RetryBackoff           *storedBackoff `json:"retryBackoff,omitempty"`
	CheckpointAtLeastEvery int64          `json:"checkpointAtLeastEveryMilliseconds,omitempty"`
	Paused                 *Pause         `json:"paused,omitempty"`
	Source                 string         `json:"source,omitempty"`
	Place                  *place         `json:"place,omitempty"`
}

type storedBackoff struct {
	Factor float64 `json:"factor"`
	AtMost int64   `json:"atMostMilliseconds,omitempty"`
}

// entry returns the stored form of the group. All entries are stored with each change of one, so
// each is encoded once. The caller holds changing.
func (d *definition) entry() (_ json.RawMessage, err error) {
	switch {
	case d.stored != nil:
		return d.stored, nil
	case d.encoded != nil:
		return d.encoded, nil
	}
	s := &d.Settings
	e := entry{
		Stream: d.Stream, Group: d.Group, ResolveLinkTos: s.ResolveLinks, ExtraStatistics: s.ExtraStatistics,
		MessageTimeout: s.MessageTimeout.Milliseconds(), StartPosition: d.Position(s.StartFrom), Filter: s.Filter.stored(),
		LiveBufferSize: s.LiveBufferSize, HistoryBufferSize: s.BufferSize, MaxRetryCount: s.MaxRetryCount,
		ReadBatchSize: s.ReadBatchSize, CheckPointAfter: s.CheckpointAfter.Milliseconds(),
		MinCheckPointCount: s.MinCheckpointCount, MaxCheckPointCount: s.MaxCheckpointCount,
		MaxSubscriberCount: s.MaxSubscriberCount, NamedConsumerStrategy: string(s.Strategy),
		RetryDelay: s.RetryDelay.Milliseconds(), CheckpointAtLeastEvery: s.CheckpointAtLeastEvery.Milliseconds(), Paused: d.paused, Source: s.Source,
	}
	if d.place.Since > 0 {
		e.Place = &d.place
		e.NamedConsumerStrategy += movedMark
	}
	if b := s.RetryBackoff; b != (Backoff{}) {
		e.RetryBackoff = &storedBackoff{b.Factor, b.AtMost.Milliseconds()}
	}
	if d.reads().Stream != event.AllStream { // For $all the start is a position, not a number.
		e.StartFrom = s.StartFrom
	}
	if s.StartFrom < 0 && d.startAt >= 0 {
		e.ResolvedStart = &d.startAt
		if d.storedIn >= 0 {
			e.ResolvedIn = &d.storedIn
		}
	}
	d.encoded, err = json.Marshal(&e)
	return d.encoded, err
}

// decodeEntry reads an entry. One that cannot be run, for example because its
// strategy is not known here, is kept as it is; why says so.
func decodeEntry(raw json.RawMessage) (d *definition, why error) {
	var e entry
	if err := json.Unmarshal(raw, &e); err != nil {
		return &definition{stored: raw}, err
	}
	d = &definition{Key: Key{e.Stream, e.Group}, startAt: -1, storedIn: -1, paused: e.Paused, Settings: Settings{
		ResolveLinks: e.ResolveLinkTos, ExtraStatistics: e.ExtraStatistics, StartFrom: e.StartFrom,
		MessageTimeout: milliseconds(e.MessageTimeout), MaxRetryCount: e.MaxRetryCount, LiveBufferSize: e.LiveBufferSize,
		BufferSize: e.HistoryBufferSize, ReadBatchSize: e.ReadBatchSize, CheckpointAfter: milliseconds(e.CheckPointAfter),
		MinCheckpointCount: e.MinCheckPointCount, MaxCheckpointCount: e.MaxCheckPointCount, MaxSubscriberCount: e.MaxSubscriberCount,
		Strategy: Strategy(e.NamedConsumerStrategy), RetryDelay: milliseconds(e.RetryDelay), CheckpointAtLeastEvery: milliseconds(e.CheckpointAtLeastEvery),
	}}
	s := &d.Settings
	if s.Source = e.Source; e.Place != nil {
		d.place = *e.Place
		s.Strategy = Strategy(strings.TrimSuffix(e.NamedConsumerStrategy, movedMark))
	}
	if b := e.RetryBackoff; b != nil {
		s.RetryBackoff = Backoff{b.Factor, milliseconds(b.AtMost)}
	}
	if e.StartPosition != "" {
		n, ok := d.parsePosition(e.StartPosition)
		if !ok {
			return &definition{Key: d.Key, stored: raw}, fmt.Errorf("start position %q is not one", e.StartPosition)
		}
		s.StartFrom = n
	}
	if s.Strategy == "" {
		if s.Strategy = DispatchToSingle; e.PreferRoundRobin {
			s.Strategy = RoundRobin
		}
	}
	if e.ResolvedStart != nil {
		d.startAt = *e.ResolvedStart
	}
	if e.ResolvedIn != nil {
		d.storedIn = *e.ResolvedIn
	}
	if s.Filter, why = e.Filter.filter(); why == nil {
		d.names, why = s.Filter.compile()
	}
	switch {
	case why != nil:
	case !s.Strategy.Known():
		why = fmt.Errorf("strategy %q is not known", s.Strategy)
	case s.BufferSize <= 0:
		why = fmt.Errorf("a buffer of size %d holds no message", s.BufferSize)
	case s.StartFrom < -1:
		why = fmt.Errorf("start %s is before the first event", d.Position(s.StartFrom))
	case s.wrongDelays() != "":
		why = errors.New(s.wrongDelays())
	}
	if why != nil {
		return &definition{Key: d.Key, stored: raw}, why
	}
	return d, nil
}

func milliseconds(n int64) time.Duration {
	const most = int64(1<<63-1) / int64(time.Millisecond)
	return time.Duration(max(-most, min(most, n))) * time.Millisecond
}

// readConfig returns the stored groups and the number of the event that holds them, -1: none.
func (t *term) readConfig(ctx context.Context) (all []*definition, version int64, err error) {
	s := t.opts.Store
	r, err := s.ReadEvent(ctx, configStream, event.Head, nil)
	switch {
	case errors.Is(err, event.ErrStreamNotFound), errors.Is(err, event.ErrStreamDeleted):
		return nil, -1, nil
	case errors.Is(err, event.ErrEventNotFound): // Truncated: the numbers continue.
		info, err := s.StreamInfo(ctx, configStream)
		return nil, info.Last, err
	case err != nil:
		return nil, 0, fmt.Errorf("read stream %s: %w", configStream, err)
	}
	var doc document
	if err := json.Unmarshal(r.Data, &doc); err != nil {
		return nil, 0, fmt.Errorf("event %d of stream %s: %w", r.Number, configStream, err)
	}
	if doc.Version != "1" && doc.Version != "2" {
		return nil, 0, fmt.Errorf("event %d of stream %s has version %q, which is not known", r.Number, configStream, doc.Version)
	}
	seen := map[Key]bool{}
	for _, raw := range doc.Entries {
		d, why := decodeEntry(raw)
		switch {
		case why != nil:
			t.opts.Logger.Warn("a stored group is not run", "group", d.Key.String(), logkey.Error, why)
		case seen[d.Key]:
			t.opts.Logger.Warn("a group is stored twice, the first entry is used", "group", d.Key.String())
			continue
		}
		seen[d.Key] = d.runs()
		all = append(all, d)
	}
	return all, r.Number, nil
}

// writeConfig stores the groups directly after the event of a version, so that the change of
// another node is not lost.
func (t *term) writeConfig(ctx context.Context, all []*definition, version int64, by string) (int64, error) {
	s := t.opts.Store
	data, err := encodeConfig(all, t.opts.Now(), by)
	if err != nil {
		return 0, err
	}
	if err := bound(ctx, s, configStream, configMetadata); err != nil {
		return 0, err
	}
	written, err := s.Write(ctx, &event.Write{Stream: configStream, ExpectedVersion: version,
		Events: []event.Proposed{{ID: newID(), Type: typeConfig, Flags: event.FlagJSON, Data: data}}})
	if err != nil {
		return 0, fmt.Errorf("write stream %s: %w", configStream, err)
	}
	return written.Last, nil
}

// encodeConfig returns the document that holds all groups. It may be large, and
// a copy of it is in the Raft log with each change: nothing else is allocated.
func encodeConfig(all []*definition, now time.Time, by string) ([]byte, error) {
	head, err := json.Marshal(&document{Version: "2", Updated: now.UTC().Format(time.RFC3339Nano), UpdatedBy: by})
	if err != nil {
		return nil, fmt.Errorf("groups as JSON: %w", err)
	}
	head = head[:len(head)-1] // The entries come before its end.
	size := len(head) + len(`,"entries":[]}`)
	for _, d := range all {
		entry, err := d.entry()
		if err != nil {
			return nil, fmt.Errorf("entry of group %s: %w", d.Key, err)
		}
		size += len(entry) + 1
	}
	data := append(make([]byte, 0, size), head...)
	data = append(data, `,"entries":[`...)
	for i, d := range all {
		if i > 0 {
			data = append(data, ',')
		}
		entry, _ := d.entry() // It was made above.
		data = append(data, entry...)
	}
	return append(data, "]}"...), nil
}
