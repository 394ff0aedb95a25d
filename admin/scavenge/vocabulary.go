package scavenge

import (
	"errors"
	"time"

	"github.com/annalsdb/annals/event"
)

// Folder is the name of the folder of the scavenge database, in that of the index.
const Folder = "scavenging"

// Reasons why a run cannot be started or stopped, besides event.ErrNotReady (the log is not open
// yet), event.ErrChunksLocked and event.ErrClosed.
var (
	ErrRunning   = errors.New("a scavenge is running")
	ErrInMemory  = errors.New("a database in memory is not scavenged")
	ErrNoSuchRun = errors.New("no scavenge with this id is running")
)

// MaxThreads is the largest number of threads of a run.
const MaxThreads = 4

// Request says how to run. The zero value but for Threads and ThrottlePercent,
// which are 1 and 100 then, is the usual run.
type Request struct {
	Threads int // that execute chunks; more than MaxThreads count as MaxThreads
	// weight from which on a chunk is executed; 0: above 0; below 0: always. Of the scavenge point,
	// if this run makes one
	Threshold       int
	ThrottlePercent int  // of the time that the run may be active, 1 to 100
	SyncOnly        bool // make no scavenge point
}

// Result is how a run ended.
type Result string

// Results, with the names that EventStoreDB gives them in the answer about the last run.
const (
	ResultUnknown    Result = "Unknown" // there was no run since the process started
	ResultInProgress Result = "InProgress"
	ResultSuccess    Result = "Success"
	ResultStopped    Result = "Stopped"
	ResultErrored    Result = "Errored"
)

// Phase is what a run does, as `eventstore_statuses` names it.
type Phase string

// Phases in order. Starting is before the first and is not among the statuses.
const (
	PhaseIdle         Phase = "Idle"
	PhaseAccumulation Phase = "Accumulation Phase"
	PhaseCalculation  Phase = "Calculation Phase"
	PhaseExecution    Phase = "Chunk execution Phase"
	PhaseMerging      Phase = "Chunk merging Phase"
	PhaseIndex        Phase = "Index execution Phase"
	PhaseCleaning     Phase = "Cleaning Phase"
)

// Phases lists all, Idle last.
var Phases = []Phase{PhaseAccumulation, PhaseCalculation, PhaseExecution, PhaseMerging, PhaseIndex, PhaseCleaning, PhaseIdle}

// Point is a scavenge point: an event in $scavengePoints, and where it stands.
type Point struct {
	Position int64 `json:"position"`
	Number   int64 `json:"number"`
	// the leader's clock when it wrote the record, or this node's if that was earlier; maxAge is
	// judged by it
	EffectiveNow time.Time `json:"effectiveNow"`
	Threshold    int       `json:"threshold"`
}

// Status is what a run is about and how far it is.
type Status struct {
	ID       event.ID // zero: there is none
	Result   Result   // ResultInProgress while it runs
	Error    string   // of ResultErrored
	Started  time.Time
	Ended    time.Time // zero while it runs
	Request  Request
	Resumed  bool   // it resumed a run that was stopped
	Point    *Point // nil until it is known, and with SyncOnly
	Phase    Phase  // PhaseIdle before the first and when it has ended
	Done     int64  // of Total, in Unit
	Total    int64  // 0: not known
	Unit     string // "bytes", "streams", "chunks", "entries"
	Saved    int64  // bytes, may be negative
	Removed  int64  // events
	Executed int    // chunk files rewritten
	Skipped  int    // chunk files left as they are
	Merged   int    // chunk files that are one with others now
}

// Estimate is what a run would do now, if its scavenge point were the end of the
// log. Numbers of bytes are estimates: of records, their trailers stay. The names are those of the
// document that a node answers with.
type Estimate struct {
	End       int64            `json:"end"` // of the log, where the point would be
	Threshold int              `json:"threshold"`
	Bytes     int64            `json:"bytes"`   // that would go
	Events    int64            `json:"events"`  // that would go
	Chunks    []ChunkEstimate  `json:"chunks"`  // all files, in order, the active one too
	Streams   []StreamEstimate `json:"streams"` // with most bytes to gain, as many as asked for
	Kept      []StreamEstimate `json:"kept"`    // the largest of which nothing would go, and why
	Took      time.Duration    `json:"-"`
}

// ChunkEstimate is about one chunk file.
type ChunkEstimate struct {
	File      string `json:"file"`
	First     int    `json:"first"`
	Last      int    `json:"last"`
	FileBytes int64  `json:"fileBytes"`
	Bytes     int64  `json:"bytes"` // that would go
	Events    int64  `json:"events"`
	Weight    int64  `json:"weight"`
	Executed  bool   `json:"executed"` // its weight reaches the threshold
}

// StreamEstimate is about one stream.
type StreamEstimate struct {
	Stream string `json:"stream"`
	Events int64  `json:"events"` // that would go, or of Kept: that it has
	Bytes  int64  `json:"bytes"`  // the same
	// Why is what removes most of them: "$maxCount", "$maxAge", "$tb", "deleted" or "metadata
	// replaced". Of Kept it is a sentence: no metadata limits it; $maxCount 100 is not reached; ...
	Why string `json:"why"`
}

// EstimateOptions say what to estimate.
type EstimateOptions struct {
	Threshold int // as of a Request
	Top       int // streams to name in each list
}
