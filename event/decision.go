package event

// Decision is the leader's answer to a proposed write, given before the write
// is replicated: it holds only if the entry that it belongs to is applied.
type Decision struct {
	Written Written
	Err     error // why nothing is to be written: a version conflict, a deleted stream, ...
	Full    bool  // not decided: the entry being built has no room for the write
}
