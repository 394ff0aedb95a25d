// Package subscription runs persistent subscriptions: groups of competing
// consumers of one stream or of the log, each message of which is handed to one reader, waits
// for its answer, is tried again, and is parked when it keeps failing.
package subscription

import (
	"errors"
	"fmt"
	"time"

	"github.com/annalsdb/annals/event"
)

// Strategy is how messages are spread over consumers that are pushed to. Readers that pull take the
// next messages, with any strategy.
type Strategy string

// The strategies. Names are stored and compared by case: do not change.
const (
	RoundRobin          Strategy = "RoundRobin"
	DispatchToSingle    Strategy = "DispatchToSingle"
	Pinned              Strategy = "Pinned"
	PinnedByCorrelation Strategy = "PinnedByCorrelation"
)

// Settings of a group.
type Settings struct {
	ResolveLinks    bool
	ExtraStatistics bool
	// StartFrom is the first event number when there is no checkpoint, of a group on $all a
	// position of the log; -1: events appended after the creation.
	StartFrom          int64
	MessageTimeout     time.Duration
	MaxRetryCount      int
	LiveBufferSize     int
	BufferSize         int
	ReadBatchSize      int
	CheckpointAfter    time.Duration // 0: no checkpoints by time
	MinCheckpointCount int
	MaxCheckpointCount int
	MaxSubscriberCount int // consumers that are pushed to; 0: any number
	Strategy           Strategy

	// RetryDelay is waited before a message is tried again for the first time, 0: it is handed out
	// at once.
	RetryDelay   time.Duration
	RetryBackoff Backoff
	// CheckpointAtLeastEvery is the time after which a checkpoint is written however few messages
	// were answered, 0: few messages get none.
	CheckpointAtLeastEvery time.Duration

	// Source is what the group reads, if that is not its own stream: another one, $all or an index.
	// An update keeps it if it is empty.
	Source string
	// Filter is of a group that reads $all, nil: it gets every event. An update keeps it if it is
	// nil, and takes it away if it chooses nothing.
	Filter *Filter
}

// Filter chooses events of the log by their own stream or type: links are not followed for that.
type Filter struct {
	OfStream bool     // by the names of streams, else by event types
	Regex    string   // an expression that matches anywhere, as package match has them
	Prefixes []string // one of them is enough; they count if there is no Regex
}

// Backoff is how delays grow from one retry of a message to the next. The zero value: they do not.
type Backoff struct {
	Factor float64       // of each delay to the one before
	AtMost time.Duration // of delays; 0: a minute, or RetryDelay if that is longer
}

// DefaultSettings returns the values of properties that are not given.
func DefaultSettings() Settings {
	return Settings{
		MessageTimeout: 10 * time.Second, MaxRetryCount: 10, LiveBufferSize: 500, BufferSize: 500, ReadBatchSize: 20,
		CheckpointAfter: time.Second, MinCheckpointCount: 10, MaxCheckpointCount: 500, MaxSubscriberCount: 10, Strategy: RoundRobin,
	}
}

// Key names a group. One on the stream $all gets the events of the log.
type Key struct{ Stream, Group string }

// String returns the key as texts have it.
func (k Key) String() string { return k.Stream + "::" + k.Group }

// Action is what becomes of a message that a consumer could not process.
type Action uint8

// The actions.
const (
	Retry Action = iota // hand it out again, or park it when that was done often enough
	Park
	Skip // as an acknowledgement
	Stop // likewise
)

// Message is one message handed out.
type Message struct {
	// what its answer names: of the event in the subscribed stream, or of the link in the parked
	// stream
	ID      event.ID
	Event   *event.Resolved // must not be changed; a large one may be bare
	Retries int             // 0 when it is handed out for the first time
}

// Info describes a group at one moment. Numbers of events are positions of the log where the group
// is on $all: Key.Position makes texts of them.
type Info struct {
	Key
	Settings Settings
	Status   string // flags in words, "NotReady" when there is none

	PerSecond float64 // messages handed out since the last request for statistics
	// messages handed out since the group was loaded, and since the last request for statistics
	Total, SinceLast int64
	Checkpoint       int64 // event number, -1: none
	LastKnown        int64 // newest event number seen in the stream, -1: none
	ReadBuffer       int
	LiveBuffer       int
	RetryBuffer      int // delayed ones included
	Delayed          int
	Outstanding      int
	Parked           int64
	// when the oldest unanswered message was handed out first; zero: none
	OldestOutstanding time.Time
	OldestParked      time.Time  // zero: none
	Replaying         *Replaying // nil: no parked messages are being fetched to be replayed
	Connections       []ConnectionInfo
	// why a group with messages and readers makes no progress; empty: it does
	Stalled string
	Paused  *Pause // nil: it is not
}

// Replaying is a replay of parked messages that is not done.
type Replaying struct {
	Remaining int64 // messages that were not handed back yet
	Rate      int   // of messages a second; 0: as fast as it can
}

// ConnectionInfo is a consumer that is pushed to.
type ConnectionInfo struct {
	From, User, Name         string
	PerSecond                float64
	Total, SinceLast         int64
	Latencies                []Latency // with ExtraStatistics only
	AvailableSlots, InFlight int
}

// Latency is one statistic of how long a consumer takes, in milliseconds.
type Latency struct {
	Name  string
	Value float64
}

// Errors of requests. event.ErrNotReady is returned while this node does not lead or has not loaded
// its groups.
var (
	ErrExists   = errors.New("group exists")
	ErrNotFound = errors.New("no such group")
)

// SettingsError describes settings that are not valid.
type SettingsError struct {
	Text string
	// Plain is set for an answer that is a text rather than a result.
	Plain bool
}

func (e *SettingsError) Error() string { return fmt.Sprintf("settings: %s", e.Text) }
