package history

import (
	"fmt"
	"strings"
	"time"
	"unicode/utf8"

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

// Started says how a run was started.
type Started struct {
	AlwaysKeepScavenged bool
	MergeChunks         bool
	StartFromChunk      int
	Threads             int
}

// ChunkCompleted is about one chunk file that was executed.
type ChunkCompleted struct {
	First, Last int // logical chunks that it covers
	Took        time.Duration
	Scavenged   bool
	Saved       int64  // bytes, may be negative
	Error       string // "" if there was none
}

// MergeCompleted is about one group of neighbours among the chunk files.
type MergeCompleted struct {
	First, Last int // logical chunks that they cover
	Took        time.Duration
	Saved       int64 // bytes, may be negative
	Merged      bool
	Error       string // "" if there was none
}

// IndexCompleted is about one table of the index.
type IndexCompleted struct {
	Level, Index         int
	Took                 time.Duration
	Deleted, Kept, Saved int64 // entries, entries, bytes
	Scavenged            bool  // false without Error: nothing had to go
	Error                string
}

// Completed says how a run ended.
type Completed struct {
	Result   string // Success, Stopped or Failed
	Error    string // the reason, "" if there is none; that of Failed is put into a sentence
	Took     time.Duration
	Saved    int64 // bytes in all, may be negative
	MaxChunk int   // the last logical chunk that was executed
}

// The payloads as they are stored: names, order and types are those that clients
// of the reference read. Do not change.
type (
	startedData struct {
		ScavengeID          string `json:"scavengeId"`
		NodeEndpoint        string `json:"nodeEndpoint"`
		AlwaysKeepScavenged bool   `json:"alwaysKeepScavenged"`
		MergeChunks         bool   `json:"mergeChunks"`
		StartFromChunk      int    `json:"startFromChunk"`
		Threads             int    `json:"threads"`
	}
	chunksCompletedData struct {
		ScavengeID       string `json:"scavengeId"`
		ChunkStartNumber int    `json:"chunkStartNumber"`
		ChunkEndNumber   int    `json:"chunkEndNumber"`
		TimeTaken        string `json:"timeTaken"`
		WasScavenged     bool   `json:"wasScavenged"`
		SpaceSaved       int64  `json:"spaceSaved"`
		NodeEndpoint     string `json:"nodeEndpoint"`
		ErrorMessage     string `json:"errorMessage"`
	}
	mergeCompletedData struct {
		ScavengeID       string `json:"scavengeId"`
		ChunkStartNumber int    `json:"chunkStartNumber"`
		ChunkEndNumber   int    `json:"chunkEndNumber"`
		TimeTaken        string `json:"timeTaken"`
		SpaceSaved       int64  `json:"spaceSaved"`
		WasMerged        bool   `json:"wasMerged"`
		NodeEndpoint     string `json:"nodeEndpoint"`
		ErrorMessage     string `json:"errorMessage"`
	}
	indexCompletedData struct {
		ScavengeID     string `json:"scavengeId"`
		Level          int    `json:"level"`
		Index          int    `json:"index"`
		TimeTaken      string `json:"timeTaken"`
		EntriesDeleted int64  `json:"entriesDeleted"`
		EntriesKept    int64  `json:"entriesKept"`
		SpaceSaved     int64  `json:"spaceSaved"`
		WasScavenged   bool   `json:"wasScavenged"`
		NodeEndpoint   string `json:"nodeEndpoint"`
		ErrorMessage   string `json:"errorMessage"`
	}
	completedData struct {
		ScavengeID        string  `json:"scavengeId"`
		NodeEndpoint      string  `json:"nodeEndpoint"`
		Result            string  `json:"result"`
		Error             *string `json:"error"`
		TimeTaken         string  `json:"timeTaken"`
		SpaceSaved        int64   `json:"spaceSaved"`
		MaxChunkScavenged int     `json:"maxChunkScavenged"`
	}
)

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

// timeTaken writes a duration as [d.]hh:mm:ss[.fffffff], in ticks of 100 ns.
func timeTaken(d time.Duration) string {
	d = max(d, 0)
	var text string
	if days := d / (24 * time.Hour); days > 0 {
		text = fmt.Sprintf("%d.", days)
		d -= days * 24 * time.Hour
	}
	text += fmt.Sprintf("%02d:%02d:%02d", d/time.Hour, d/time.Minute%60, d/time.Second%60)
	if ticks := d % time.Second / 100; ticks > 0 {
		text += fmt.Sprintf(".%07d", int64(ticks))
	}
	return text
}

// clip shortens the text of an error to what is kept of it, at the border of a character.
func clip(text string) string {
	if len(text) <= maxErrorBytes {
		return text
	}
	end := maxErrorBytes
	for end > maxErrorBytes-utf8.UTFMax && !utf8.RuneStart(text[end]) {
		end--
	}
	return text[:end]
}

// failure puts the reason why a run failed into the sentence that clients know,
// unless it is there already.
func failure(reason string) string {
	if reason == "" || strings.HasPrefix(reason, failedPrefix) {
		return reason
	}
	return failedPrefix + strings.TrimSuffix(reason, ".") + "."
}

// data returns the payload of the event, with the text of the error as it is to be.
func (c *Completed) data(id event.ID, endpoint, text string) completedData {
	d := completedData{
		ScavengeID: id.String(), NodeEndpoint: endpoint, Result: c.Result,
		TimeTaken: timeTaken(c.Took), SpaceSaved: c.Saved, MaxChunkScavenged: c.MaxChunk,
	}
	if text != "" {
		d.Error = &text
	}
	return d
}
