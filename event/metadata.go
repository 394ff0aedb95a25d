package event

import (
	"bytes"
	"encoding/json"
	"errors"
	"strconv"
	"time"
)

// Keys of stream metadata that the database itself reads.
const (
	KeyMaxCount       = "$maxCount"
	KeyMaxAge         = "$maxAge"
	KeyTruncateBefore = "$tb"
	KeyCacheControl   = "$cacheControl"
	KeyACL            = "$acl"
)

// Metadata is what the database reads out of a stream's metadata. Zero fields are absent.
type Metadata struct {
	MaxCount       int64         // only the last so many events are visible
	MaxAge         time.Duration // older events are invisible
	TruncateBefore int64         // events below are invisible; TombstoneNumber: soft-deleted
	CacheControl   time.Duration // max-age of the head feed
	ACL            ACL
}

// Roles is the list of one right. Nil: the list does not mention the right.
type Roles []string

// ACL is the access list of a stream.
type ACL struct {
	Read, Write, Delete, MetaRead, MetaWrite Roles
}

// SoftDeleted reports whether the stream is soft-deleted.
func (m *Metadata) SoftDeleted() bool { return m.TruncateBefore == TombstoneNumber }

// MinVisible returns the lowest event number not hidden by $tb and $maxCount, for
// a stream whose last event has the number last.
func (m *Metadata) MinVisible(last int64) int64 {
	low := max(0, m.TruncateBefore)
	if m.MaxCount > 0 {
		low = max(low, last-m.MaxCount+1)
	}
	return low
}

// ParseMetadata reads the data of a metadata event. Values out of range count
// as absent; anything of the wrong type in the keys above, or data that is no
// JSON object, makes the whole count as empty.
func ParseMetadata(data []byte) Metadata {
	m, err := parseMetadata(data)
	if err != nil {
		return Metadata{}
	}
	return m
}

var errWrongType = errors.New("wrong type")

func parseMetadata(data []byte) (m Metadata, err error) {
	var doc map[string]json.RawMessage
	if err := json.Unmarshal(data, &doc); err != nil {
		return m, err
	}
	number := func(key string, lowest int64) (n int64) {
		raw, ok := doc[key]
		if !ok || err != nil || isNull(raw) {
			return 0
		}
		if n, err = strconv.ParseInt(string(raw), 10, 64); err != nil || n < lowest {
			return 0
		}
		return n
	}
	seconds := func(key string) time.Duration {
		n := number(key, 1)
		if n > int64(maxDuration/time.Second) {
			return maxDuration
		}
		return time.Duration(n) * time.Second
	}
	m.MaxCount = number(KeyMaxCount, 1)
	m.MaxAge = seconds(KeyMaxAge)
	m.TruncateBefore = number(KeyTruncateBefore, 0)
	m.CacheControl = seconds(KeyCacheControl)
	if raw, ok := doc[KeyACL]; ok && err == nil {
		m.ACL, err = ParseACL(raw)
	}
	return m, err
}

const maxDuration = time.Duration(1<<63 - 1)

func isNull(raw []byte) bool { return bytes.Equal(raw, []byte("null")) }

// ParseACL reads an access list: an object with any of $r, $w, $d, $mr, $mw, each a role or a list of roles.
func ParseACL(data []byte) (ACL, error) {
	var a ACL
	if isNull(data) {
		return a, nil
	}
	var doc map[string]json.RawMessage
	if err := json.Unmarshal(data, &doc); err != nil {
		return a, err
	}
	for key, list := range map[string]*Roles{"$r": &a.Read, "$w": &a.Write, "$d": &a.Delete, "$mr": &a.MetaRead, "$mw": &a.MetaWrite} {
		raw, ok := doc[key]
		if !ok || isNull(raw) {
			continue
		}
		var one string
		if json.Unmarshal(raw, &one) == nil {
			*list = Roles{one}
			continue
		}
		many := Roles{}
		if err := json.Unmarshal(raw, &many); err != nil {
			return ACL{}, errWrongType
		}
		*list = many
	}
	return a, nil
}

// WithTruncateBefore returns the metadata document with $tb set to n and all
// other members as they were. A document that is no JSON object counts as {}.
func WithTruncateBefore(data []byte, n int64) []byte {
	var doc map[string]json.RawMessage
	if json.Unmarshal(data, &doc) != nil || doc == nil {
		doc = map[string]json.RawMessage{}
	}
	doc[KeyTruncateBefore] = strconv.AppendInt(nil, n, 10)
	out, err := json.Marshal(doc)
	if err != nil { // Raw members came out of a parsed document.
		panic(err)
	}
	return out
}
