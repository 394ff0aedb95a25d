package history

import (
	"fmt"
	"strings"
	"time"

	"github.com/annalsdb/annals/admin/record"
	"github.com/annalsdb/annals/event"
)

// Names of streams and types of events. Clients read them: do not change.
const (
	IndexStream  = "$scavenges"  // links to the first and the last event of every run
	StreamPrefix = "$scavenges-" // and the id of the run

	TypeStarted         = "$scavengeStarted"
	TypeChunksCompleted = "$scavengeChunksCompleted"
	TypeMergeCompleted  = "$scavengeMergeCompleted"
	TypeIndexCompleted  = "$scavengeIndexCompleted"
	TypeCompleted       = "$scavengeCompleted"
)

// What the result of a run is called here. It is not always what the last run
// is said to have been elsewhere: the UI knows these three alone.
const (
	Success = "Success"
	Stopped = "Stopped"
	Failed  = "Failed"
)

// Texts of errors that clients know.
const (
	// ErrorCancelled is the error of the index event of a run that was stopped
	// meanwhile; its level and its index are -1.
	ErrorCancelled = "Scavenge cancelled"

	failedPrefix     = "Error while scavenging DB: "
	errorInterrupted = "The node was restarted."
)

// maxErrorBytes is how much of an error's text is kept, so that the memory that
// waiting events take is bounded. No error of a run comes near it.
const maxErrorBytes = 4 << 10

// These types are stored as they are encoded: names, order and types are those that clients of
// EventStoreDB read. Do not change. A Run sets the first field and NodeEndpoint.
type (
	// Started says how a run was started.
	Started struct {
		ScavengeID          event.ID `json:"scavengeId"`
		NodeEndpoint        string   `json:"nodeEndpoint"`
		AlwaysKeepScavenged bool     `json:"alwaysKeepScavenged"`
		MergeChunks         bool     `json:"mergeChunks"`
		StartFromChunk      int      `json:"startFromChunk"`
		Threads             int      `json:"threads"`
	}
	// ChunkCompleted is about one chunk file that was executed.
	ChunkCompleted struct {
		ScavengeID   event.ID `json:"scavengeId"`
		First        int      `json:"chunkStartNumber"` // logical chunks that it covers
		Last         int      `json:"chunkEndNumber"`
		Took         Ticks    `json:"timeTaken"`
		Scavenged    bool     `json:"wasScavenged"`
		Saved        int64    `json:"spaceSaved"` // bytes, may be negative
		NodeEndpoint string   `json:"nodeEndpoint"`
		Error        string   `json:"errorMessage"` // "" if there was none
	}
	// MergeCompleted is about one group of neighbours among the chunk files.
	MergeCompleted struct {
		ScavengeID   event.ID `json:"scavengeId"`
		First        int      `json:"chunkStartNumber"` // logical chunks that they cover
		Last         int      `json:"chunkEndNumber"`
		Took         Ticks    `json:"timeTaken"`
		Saved        int64    `json:"spaceSaved"` // bytes, may be negative
		Merged       bool     `json:"wasMerged"`
		NodeEndpoint string   `json:"nodeEndpoint"`
		Error        string   `json:"errorMessage"` // "" if there was none
	}
	// IndexCompleted is about one table of the index.
	IndexCompleted struct {
		ScavengeID   event.ID `json:"scavengeId"`
		Level        int      `json:"level"`
		Index        int      `json:"index"`
		Took         Ticks    `json:"timeTaken"`
		Deleted      int64    `json:"entriesDeleted"`
		Kept         int64    `json:"entriesKept"`
		Saved        int64    `json:"spaceSaved"`   // bytes
		Scavenged    bool     `json:"wasScavenged"` // false without Error: nothing had to go
		NodeEndpoint string   `json:"nodeEndpoint"`
		Error        string   `json:"errorMessage"`
	}
	// Completed says how a run ended.
	Completed struct {
		ScavengeID   event.ID `json:"scavengeId"`
		NodeEndpoint string   `json:"nodeEndpoint"`
		Result       string   `json:"result"` // Success, Stopped or Failed
		Error        Reason   `json:"error"`  // that of Failed is put into a sentence
		Took         Ticks    `json:"timeTaken"`
		Saved        int64    `json:"spaceSaved"`        // bytes in all, may be negative
		MaxChunk     int      `json:"maxChunkScavenged"` // the last logical chunk that was executed
	}
)

// Reason is a text, null if it is empty.
type Reason string

// MarshalJSON encodes it.
func (r Reason) MarshalJSON() ([]byte, error) {
	if r == "" {
		return []byte("null"), nil
	}
	return record.Encode(string(r)), nil
}

// StreamOf returns the name of the stream of a run.
func StreamOf(id event.ID) string { return StreamPrefix + id.String() }

// runOf returns the run that a stream is about.
func runOf(stream string) (event.ID, bool) {
	text, ok := strings.CutPrefix(stream, StreamPrefix)
	if !ok {
		return event.ID{}, false
	}
	id, err := event.ParseID(text)
	return id, err == nil && id.String() == text
}

// Ticks is a duration, in ticks of 100 ns.
type Ticks time.Duration

// MarshalText writes it as [d.]hh:mm:ss[.fffffff].
func (t Ticks) MarshalText() ([]byte, error) {
	d := max(time.Duration(t), 0)
	var text string
	if days := d / (24 * time.Hour); days > 0 {
		text = fmt.Sprintf("%d.", days)
		d -= days * 24 * time.Hour
	}
	text += fmt.Sprintf("%02d:%02d:%02d", d/time.Hour, d/time.Minute%60, d/time.Second%60)
	if ticks := d % time.Second / 100; ticks > 0 {
		text += fmt.Sprintf(".%07d", int64(ticks))
	}
	return []byte(text), nil
}

// failure puts the reason why a run failed into the sentence that clients know,
// unless it is there already.
func failure(reason string) string {
	if reason == "" || strings.HasPrefix(reason, failedPrefix) {
		return reason
	}
	return failedPrefix + strings.TrimSuffix(reason, ".") + "."
}
