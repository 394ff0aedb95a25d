package event

import "strings"

// Names that the database itself gives a meaning. They are part of the wire
// contract and of stored data: do not change.
const (
	AllStream      = "$all"      // the whole log, as a stream that is only read
	SettingsStream = "$settings" // the default access lists

	TypeMetadata      = "$metadata"      // metadata of a stream, in its metadata stream
	TypeStreamDeleted = "$streamDeleted" // the tombstone of a hard-deleted stream
	TypeLink          = "$>"             // a link: its data is <number>@<stream>
	TypeScavengePoint = "$scavengePoint" // completes the chunk it is written to

	ScavengePointsStream = "$scavengePoints"

	RedactionsStream = "$redactions" // what was redacted on which node
	TypeRedacted     = "$redacted"   // an event of it

	// KeyEffectiveNow is a key in the metadata of a scavenge point: the leader's clock
	// when it wrote the point, in RFC 3339, where the record's time is later.
	KeyEffectiveNow = "effectiveNow"

	// CorrelationMember is the member of an event's metadata that names what the event
	// belongs to, unless another is configured.
	CorrelationMember = "$correlationId"

	// IndexPrefix begins the names of indexes, which are read like streams and never written to.
	IndexPrefix = "$idx"
	// IndexStream is whose metadata says who may read indexes: everyone, if it says nothing.
	IndexStream = IndexPrefix

	metaPrefix = "$$"
)

// Sizes. They bound what a record can say about itself and are part of the log's format.
const (
	MaxNameBytes  = 60 << 10 // longest stream name or event type
	MaxEventBytes = 4 << 20  // data plus metadata of one event, as HTTP allows it
)

// IsSystemStream reports whether the name begins with "$".
func IsSystemStream(name string) bool { return strings.HasPrefix(name, "$") }

// IsIndexStream reports whether the name is one of those that are kept for indexes.
func IsIndexStream(name string) bool { return strings.HasPrefix(name, IndexPrefix) }

// IsIndex reports whether a name is that of an index, if there is one of that name.
func IsIndex(name string) bool { return strings.HasPrefix(name, IndexPrefix+"-") }

// IsMetaStream reports whether the name is that of a metadata stream ("$$" and a name).
func IsMetaStream(name string) bool { return strings.HasPrefix(name, metaPrefix) }

// MetaStreamOf returns the name of the metadata stream of a stream.
func MetaStreamOf(name string) string { return metaPrefix + name }

// OriginalOf returns the stream that the given metadata stream describes.
func OriginalOf(meta string) string { return strings.TrimPrefix(meta, metaPrefix) }

// RootOf returns the stream that a metadata stream, at any depth, goes back to; of another stream
// the stream itself.
func RootOf(stream string) string {
	for IsMetaStream(stream) {
		stream = OriginalOf(stream)
	}
	return stream
}

// IsLate reports whether an event of a metadata stream was appended after the tombstone of the
// stream it describes, by its number and position. Such an event has its position as number, on all
// nodes: a scavenge may have removed any event before it, so a node may not know the last number.
// All events before the tombstone have lower numbers than the tombstone's position, since each took
// more than a byte.
func IsLate(number, position int64) bool { return number == position && position > 0 }

// ShownInAll reports whether the log shows the events of a stream to those who read all of it. It
// hides EventStoreDB's record of elections. It also hides what subscriptions to $all write for
// themselves: they would receive it in turn.
func ShownInAll(stream string) bool {
	if !strings.HasPrefix(stream, "$") {
		return true
	}
	return stream != "$epoch-information" && !strings.HasPrefix(stream, "$persistentsubscription-$all::")
}
