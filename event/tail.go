package event

import "encoding/hex"

// Chain is the running hash of the log at one of its ends. Equal chains mean equal histories.
type Chain [16]byte

// String returns the chain as 32 hexadecimal digits.
func (c Chain) String() string { return hex.EncodeToString(c[:]) }

// ParseChain reads what String writes.
func ParseChain(text string) (c Chain, err error) {
	err = c.UnmarshalText([]byte(text))
	return c, err
}

// MarshalText writes the chain as 32 hexadecimal digits.
func (c Chain) MarshalText() ([]byte, error) { return hex.AppendEncode(nil, c[:]), nil }

// UnmarshalText reads what MarshalText wrote.
func (c *Chain) UnmarshalText(text []byte) error {
	id, err := ParseID(text)
	if err != nil {
		return err
	}
	*c = Chain(id)
	return nil
}

// Tail describes the end of a node's log: what is applied and can be read.
type Tail struct {
	End   int64  `json:"end"`   // next write position
	Chain Chain  `json:"chain"` // hash of the history before End
	Index uint64 `json:"index"` // Raft index of the last frame, 0 for an empty log
	Term  uint64 `json:"term"`  // Raft term of the last frame
	Time  int64  `json:"time"`  // time of the last frame, nanoseconds since 1970
}

// Snapshot is what a Raft snapshot holds: no data, only which data the node has made durable.
type Snapshot struct {
	Tail   Tail            `json:"tail"`
	Chunks []SnapshotChunk `json:"chunks"` // complete chunks, in order
}

// SnapshotChunk names one complete chunk file.
type SnapshotChunk struct {
	First    int    `json:"first"` // logical chunk numbers, both included
	Last     int    `json:"last"`
	Version  int    `json:"version"`
	Checksum string `json:"checksum"` // hexadecimal, of the whole file
}
