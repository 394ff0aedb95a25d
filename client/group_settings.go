package client

import (
	"encoding/json"
	"time"
)

// Consumer strategies: which reader gets a message. They matter to readers over gRPC alone.
const (
	RoundRobin          = "RoundRobin"
	DispatchToSingle    = "DispatchToSingle"
	Pinned              = "Pinned"
	PinnedByCorrelation = "PinnedByCorrelation"
)

// FromEnd is a GroupSettings.StartFrom: only events that are appended after the group was made.
const FromEnd int64 = -1

// GroupSettings are the settings of a group. A field that is zero has its default. Where zero is a
// setting of its own, any negative value says so.
type GroupSettings struct {
	StartFrom      int64         // number of the first event, or FromEnd
	ResolveLinks   bool          // hand out the events that links lead to
	MessageTimeout time.Duration // for an answer, until a message is handed out again: 10 s
	// times that a message is handed out again before it is parked: 10
	MaxRetryCount   int
	ExtraStatistics bool // measure how long readers over gRPC take

	BufferSize     int // events that are read ahead: 500. It is larger than ReadBatchSize
	LiveBufferSize int // newest events that are kept in memory: 500
	ReadBatchSize  int // events that are read at once: 20

	CheckpointAfter    time.Duration // least time between checkpoints: 1 s; negative: none by time
	MinCheckpointCount int           // answered messages that are worth a checkpoint by time: 10
	MaxCheckpointCount int           // answered messages after which a checkpoint is written: 500

	MaxSubscribers int    // readers over gRPC: 10; negative: any number
	Strategy       string // by default RoundRobin

	RetryDelay   time.Duration // before a message is handed out again: none, at most a day
	RetryBackoff Backoff       // how the delay grows with each retry: not at all
	// time after which few answered messages get a checkpoint too: none, at most a day
	CheckpointAtLeastEvery time.Duration

	// Source is what the group reads, if that is not its own stream: another one, $all or an index.
	// When it is empty, Update leaves it as it is.
	Source string
	// Filter chooses events of $all. When it is nil, Update leaves it as it is, and one without
	// fields takes it away.
	Filter *GroupFilter
}

// GroupFilter chooses events of $all by their streams or types, which begin with one of some
// prefixes, or match a regular expression.
type GroupFilter struct {
	Of       string   `json:"of,omitempty"` // stream or type
	Prefixes []string `json:"prefixes,omitempty"`
	Regex    string   `json:"regex,omitempty"`
}

// Backoff is how delays grow from one retry of a message to the next.
type Backoff struct {
	Factor float64       // of each delay to the one before, from 1 to 100
	AtMost time.Duration // of a delay: 1 minute, or the first delay if that is longer
}

// groupSettings are the settings as the wire has them.
type groupSettings struct {
	StartFrom          int64   `json:"startFrom,omitempty"`
	ResolveLinks       bool    `json:"resolveLinktos,omitempty"`
	MessageTimeout     *int64  `json:"messageTimeoutMilliseconds,omitempty"`
	MaxRetryCount      *int64  `json:"maxRetryCount,omitempty"`
	ExtraStatistics    bool    `json:"extraStatistics,omitempty"`
	BufferSize         *int64  `json:"bufferSize,omitempty"`
	LiveBufferSize     *int64  `json:"liveBufferSize,omitempty"`
	ReadBatchSize      *int64  `json:"readBatchSize,omitempty"`
	CheckpointAfter    *int64  `json:"checkPointAfterMilliseconds,omitempty"`
	MinCheckpointCount *int64  `json:"minCheckPointCount,omitempty"`
	MaxCheckpointCount *int64  `json:"maxCheckPointCount,omitempty"`
	MaxSubscribers     *int64  `json:"maxSubscriberCount,omitempty"`
	Strategy           *string `json:"namedConsumerStrategy,omitempty"`

	RetryDelay             int64         `json:"retryDelayMilliseconds,omitempty"`
	RetryBackoff           *groupBackoff `json:"retryBackoff,omitempty"`
	CheckpointAtLeastEvery int64         `json:"checkpointAtLeastEveryMilliseconds,omitempty"`
	Source                 string        `json:"source,omitempty"`
	Filter                 *GroupFilter  `json:"filter,omitempty"`
}

type groupBackoff struct {
	Factor float64 `json:"factor"`
	AtMost int64   `json:"atMostMilliseconds,omitempty"`
}

// MarshalJSON writes the settings as the cluster reads them.
func (s GroupSettings) MarshalJSON() ([]byte, error) {
	wire := func(n int64) *int64 {
		if n == 0 {
			return nil
		}
		return new(max(0, n))
	}
	w := groupSettings{
		StartFrom: s.StartFrom, ResolveLinks: s.ResolveLinks, ExtraStatistics: s.ExtraStatistics,
		MessageTimeout: wire(milliseconds(s.MessageTimeout)), CheckpointAfter: wire(milliseconds(s.CheckpointAfter)),
		MaxRetryCount: wire(int64(s.MaxRetryCount)), MaxSubscribers: wire(int64(s.MaxSubscribers)),
		BufferSize: wire(int64(s.BufferSize)), LiveBufferSize: wire(int64(s.LiveBufferSize)), ReadBatchSize: wire(int64(s.ReadBatchSize)),
		MinCheckpointCount: wire(int64(s.MinCheckpointCount)), MaxCheckpointCount: wire(int64(s.MaxCheckpointCount)),
	}
	if s.Strategy != "" {
		w.Strategy = &s.Strategy
	}
	w.Source, w.Filter = s.Source, s.Filter
	w.RetryDelay, w.CheckpointAtLeastEvery = milliseconds(s.RetryDelay), milliseconds(s.CheckpointAtLeastEvery)
	if b := s.RetryBackoff; b != (Backoff{}) {
		w.RetryBackoff = &groupBackoff{b.Factor, milliseconds(b.AtMost)}
	}
	return json.Marshal(w)
}

// milliseconds rounds away from zero, which is the default.
func milliseconds(d time.Duration) int64 {
	if d > 0 {
		return int64((d + time.Millisecond - 1) / time.Millisecond)
	}
	return int64((d - time.Millisecond + 1) / time.Millisecond)
}

// UnmarshalJSON reads the settings as the cluster writes them.
func (s *GroupSettings) UnmarshalJSON(b []byte) error {
	var w groupSettings
	if err := json.Unmarshal(b, &w); err != nil {
		return err
	}
	number := func(n *int64) int64 {
		switch {
		case n == nil:
			return 0
		case *n == 0:
			return -1
		}
		return *n
	}
	*s = GroupSettings{
		StartFrom: w.StartFrom, ResolveLinks: w.ResolveLinks, ExtraStatistics: w.ExtraStatistics,
		MessageTimeout: time.Duration(number(w.MessageTimeout)) * time.Millisecond, CheckpointAfter: time.Duration(number(w.CheckpointAfter)) * time.Millisecond,
		MaxRetryCount: int(number(w.MaxRetryCount)), MaxSubscribers: int(number(w.MaxSubscribers)),
		BufferSize: int(number(w.BufferSize)), LiveBufferSize: int(number(w.LiveBufferSize)), ReadBatchSize: int(number(w.ReadBatchSize)),
		MinCheckpointCount: int(number(w.MinCheckpointCount)), MaxCheckpointCount: int(number(w.MaxCheckpointCount)),
	}
	if w.Strategy != nil {
		s.Strategy = *w.Strategy
	}
	s.Source, s.Filter = w.Source, w.Filter
	s.RetryDelay = time.Duration(w.RetryDelay) * time.Millisecond
	s.CheckpointAtLeastEvery = time.Duration(w.CheckpointAtLeastEvery) * time.Millisecond
	if b := w.RetryBackoff; b != nil {
		s.RetryBackoff = Backoff{b.Factor, time.Duration(b.AtMost) * time.Millisecond}
	}
	return nil
}

// GroupPause says who paused a group, and when.
type GroupPause struct {
	By string    `json:"by"`
	At time.Time `json:"at"`
}

// GroupInfo is the state of a group.
type GroupInfo struct {
	Stream string `json:"eventStreamId"`
	Name   string `json:"groupName"`
	// Status is Live when the group has read its stream to the end, and others.
	Status   string        `json:"status"`
	Paused   *GroupPause   `json:"paused"` // nil: it is not
	Settings GroupSettings `json:"config"`

	// messages handed out since the group was loaded
	Processed  int64   `json:"totalItemsProcessed"`
	PerSecond  float64 `json:"averageItemsPerSecond"`
	Checkpoint int64   `json:"lastProcessedEventNumber"` // number of an event, 0 if there is none
	LastEvent  int64   `json:"lastKnownEventNumber"`     // of the stream, 0 if there is none
	Parked     int64   `json:"parkedMessageCount"`
	Replaying  *struct {
		Remaining int64 `json:"remaining"`         // messages that were not handed back yet
		PerSecond int   `json:"messagesPerSecond"` // 0: as fast as the group can
	} `json:"replaying"` // nil: no parked messages are being replayed
	// why the group makes no progress, empty: it does
	Stalled     string `json:"stalled"`
	Unanswered  int    `json:"totalInFlightMessages"` // handed out
	Retrying    int    `json:"retryBufferCount"`      // to be handed out again
	Delayed     int    `json:"delayedMessages"`       // of those, ones whose delay is not over
	ReadAhead   int    `json:"readBufferCount"`       // to be handed out
	Connections []struct {
		From      string  `json:"from"`
		User      string  `json:"username"`
		Name      string  `json:"connectionName"`
		PerSecond float64 `json:"averageItemsPerSecond"`
		Processed int64   `json:"totalItemsProcessed"`
		InFlight  int     `json:"inFlightMessages"`
	} `json:"connections"` // of readers over gRPC
}
