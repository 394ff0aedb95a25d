package event

import "strconv"

// Expected versions with a meaning of their own; any other value, zero or
// above, is the number of the stream's last event.
const (
	AnyVersion   int64 = -2 // no expectation
	NoStream     int64 = -1 // the stream has no events, or is soft-deleted
	StreamExists int64 = -4 // the stream has events or metadata
)

// What a Check may expect in addition, and what may be found.
const (
	SoftDeleted int64 = -5 // hidden until it is written to again
	Tombstoned  int64 = -6 // gone for good
)

// MinExpectedVersion is the lowest value a client may send. -3 is allowed and never holds.
const MinExpectedVersion int64 = -4

// versionWords are the words that clients of AppendMany write for versions.
var versionWords = map[string]int64{"any": AnyVersion, "none": NoStream, "exists": StreamExists, "deleted": SoftDeleted, "tombstoned": Tombstoned}

// VersionOf is the version that a word means.
func VersionOf(word string) (version int64, ok bool) {
	version, ok = versionWords[word]
	return version, ok
}

// VersionText is an expected version as clients of AppendMany write it: a number, or a word.
func VersionText(version int64) string {
	for word, v := range versionWords {
		if v == version {
			return word
		}
	}
	return strconv.FormatInt(version, 10)
}
