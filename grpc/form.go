package grpcapi

import (
	"encoding/binary"
	"math"
	"strings"
	"unicode/utf8"

	"github.com/kurrent-io/KurrentDB-Client-Go/protos/kurrentdb/protocols/v1/shared"

	"github.com/annalsdb/annals/event"
)

// Keys and values of an event's metadata map. They are part of the wire contract: do not change.
const (
	mapType        = "type"
	mapCreated     = "created"
	mapContentType = "content-type"

	contentJSON  = "application/json"
	contentBytes = "application/octet-stream"
)

// noRevision is a revision of the wire that is none: the end, or before the first event.
const noRevision uint64 = math.MaxUint64

// uuidOf returns an id as the wire has it.
func uuidOf(id event.ID, asText bool) *shared.UUID {
	if asText {
		return &shared.UUID{Value: &shared.UUID_String_{String_: id.String()}}
	}
	return &shared.UUID{Value: &shared.UUID_Structured_{Structured: &shared.UUID_Structured{
		MostSignificantBits: int64(binary.BigEndian.Uint64(id[:8])), LeastSignificantBits: int64(binary.BigEndian.Uint64(id[8:])),
	}}}
}

// nameOf reads the name of a stream.
func nameOf(s *shared.StreamIdentifier) (string, error) {
	name := string(s.GetStreamName())
	return name, checkName(name)
}

// checkName returns what is wrong with the name of a stream.
func checkName(name string) error {
	switch {
	case len(name) == 0:
		return invalid("the name of the stream is missing")
	case len(name) > event.MaxNameBytes:
		return invalid("the name of the stream has %d bytes, at most %d are possible", len(name), event.MaxNameBytes)
	case !utf8.ValidString(name):
		return invalid("the name of the stream is not UTF-8")
	}
	return nil
}

// streamOf is the reverse of nameOf.
func streamOf(name string) *shared.StreamIdentifier {
	return &shared.StreamIdentifier{StreamName: []byte(name)}
}

// revisionOf reads an event number, which noRevision is not.
func revisionOf(revision uint64) (int64, error) {
	if revision > math.MaxInt64 {
		return 0, invalid("the revision %d is too large", revision)
	}
	return int64(revision), nil
}

// positionOf reads a position of the log; event.End for the end.
func positionOf(commit, prepare uint64) (int64, error) {
	switch {
	case commit == math.MaxUint64 && prepare == math.MaxUint64:
		return event.End, nil
	case prepare > commit:
		return 0, invalid("the prepare position %d is above the commit position %d", prepare, commit)
	case commit > math.MaxInt64:
		return 0, invalid("the commit position %d is too large", commit)
	}
	return int64(commit), nil
}

// typeOf is the type of an event as text that a message may have: a header of HTTP can give any
// bytes.
func typeOf(r *event.Record) string { return validText(r.Type) }

func validText(s string) string { return strings.ToValidUTF8(s, string(utf8.RuneError)) }

// ticksOf turns nanoseconds into the 100 ns ticks of the wire, since 1970 both.
func ticksOf(nanoseconds int64) int64 { return nanoseconds / 100 }
