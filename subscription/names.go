package subscription

// Names and shapes of what is stored. Other versions read and write them: do not change.
const (
	configStream = "$persistentSubscriptionConfig"
	typeConfig   = "$PersistentConfig"

	typeCheckpoint    = "SubscriptionCheckpoint"
	typeCheckpointNew = "$SubscriptionCheckpoint" // of later versions

	typeDesk = "$SubscriptionDesk" // ours alone, as its stream

	streamPrefix     = "$persistentsubscription-"
	checkpointSuffix = "-checkpoint"
	parkedSuffix     = "-parked"
	replayingSuffix  = "-replaying" // ours alone: see DESIGN.md
	deskSuffix       = "-desk"      // likewise
)

// accessList is what the streams of a group are given.
const accessList = `{"$r":"$admins","$w":"$admins","$d":"$admins","$mr":"$admins","$mw":"$admins"}`

// CheckpointStream returns the stream that keeps how far a group got.
func (k Key) CheckpointStream() string { return streamPrefix + k.String() + checkpointSuffix }

// ParkedStream returns the stream of links to the messages that a group gave up.
func (k Key) ParkedStream() string { return streamPrefix + k.String() + parkedSuffix }

// replayingStream returns the stream of parked messages that are being handed
// out again and are not answered yet.
func (k Key) replayingStream() string { return streamPrefix + k.String() + replayingSuffix }

// DeskStream returns the stream of what was settled of parked messages one by one, and of notes.
func (k Key) DeskStream() string { return streamPrefix + k.String() + deskSuffix }
