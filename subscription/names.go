package subscription

import (
	"strconv"
	"strings"

	"github.com/annalsdb/annals/event"
)

// Names and shapes of stored data. Other versions read and write them: do not change.
const (
	configStream = "$persistentSubscriptionConfig"
	typeConfig   = "$PersistentConfig"

	configMetadata = `{"$maxCount":2}`

	typeCheckpoint    = "SubscriptionCheckpoint"
	typeCheckpointNew = "$SubscriptionCheckpoint" // of later versions

	typeDesk = "$SubscriptionDesk" // ours alone, as its stream

	streamPrefix     = "$persistentsubscription-"
	checkpointSuffix = "-checkpoint"
	parkedSuffix     = "-parked"
	replayingSuffix  = "-replaying" // ours alone: see DESIGN.md
	deskSuffix       = "-desk"      // likewise
)

// accessList is the access list of a group's streams.
const accessList = `{"$r":"$admins","$w":"$admins","$d":"$admins","$mr":"$admins","$mw":"$admins"}`

// Position returns the number of an event as texts about the group have it: for one on
// $all, as a position of the log. -1 is the end.
func (k Key) Position(number int64) string {
	text := strconv.FormatInt(number, 10)
	if k.Stream != event.AllStream {
		return text
	}
	return "C:" + text + "/P:" + text
}

// parsePosition reads what Position returns.
func (k Key) parsePosition(text string) (int64, bool) {
	if k.Stream == event.AllStream {
		return ParsePosition(text)
	}
	n, err := strconv.ParseInt(text, 10, 64)
	return n, err == nil
}

// ParsePosition reads a position of the log, as C:1234/P:1234. The second number is at most the
// first, which alone counts.
func ParsePosition(text string) (int64, bool) {
	text, isMarked := strings.CutPrefix(text, "C:")
	text, prepare, isPair := strings.Cut(text, "/")
	prepare, isSecond := strings.CutPrefix(prepare, "P:")
	_, other := strconv.ParseInt(prepare, 10, 64)
	n, err := strconv.ParseInt(text, 10, 64)
	return n, isMarked && isPair && isSecond && other == nil && err == nil
}

// CheckpointStream returns the stream that keeps how far a group got.
func (k Key) CheckpointStream() string { return streamPrefix + k.String() + checkpointSuffix }

// ParkedStream returns the stream of links to the messages that a group gave up.
func (k Key) ParkedStream() string { return streamPrefix + k.String() + parkedSuffix }

// replayingStream returns the stream of parked messages that are being handed
// out again and are not answered yet.
func (k Key) replayingStream() string { return streamPrefix + k.String() + replayingSuffix }

// DeskStream returns the stream that records parked messages that were settled one by one, and
// notes.
func (k Key) DeskStream() string { return streamPrefix + k.String() + deskSuffix }
