package event

// Expected versions with a meaning of their own; any other value, zero or
// above, is the number of the stream's last event.
const (
	AnyVersion   int64 = -2 // no expectation
	NoStream     int64 = -1 // the stream has no events, or is soft-deleted
	StreamExists int64 = -4 // the stream has events or metadata
)

// MinExpectedVersion is the lowest value a client may send. -3 is allowed and never holds.
const MinExpectedVersion int64 = -4
