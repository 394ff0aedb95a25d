package event

import (
	"bytes"
	"encoding/json"
	"errors"
	"math"
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

// Plain names of these keys, which act where the key itself is not there.
const (
	PlainMaxCount       = "maxCount"
	PlainMaxAge         = "maxAge"
	PlainTruncateBefore = "truncateBefore"
	PlainCacheControl   = "cacheControl"
	PlainACL            = "acl"
)

// Metadata is what the database reads out of a stream's metadata. Zero fields are absent.
type Metadata struct {
	Retention
	CacheControl time.Duration // max-age of the head feed
	ACL          ACL
}

// Roles is the list of one right. Nil: the list does not mention the right.
type Roles []string

// ACL is the access list of a stream.
type ACL struct {
	Read, Write, Delete, MetaRead, MetaWrite Roles
}

// ParseMetadata reads the data of a metadata event. Values out of range count as absent, numbers
// that are too large as the largest. If a key above has a value of the wrong type, or the data is
// not a JSON object, all of it counts as empty. A plain name acts where its key is absent, and has
// no effect when its value is of the wrong type.
func ParseMetadata(data []byte) Metadata {
	var doc map[string]json.RawMessage
	if json.Unmarshal(data, &doc) != nil {
		return Metadata{}
	}
	var m Metadata
	for _, k := range metadataKeys {
		raw, ok := doc[k.key]
		if ok && !m.set(k.key, raw) {
			return Metadata{}
		}
		if raw, plain := doc[k.plain]; plain && !ok {
			m.setPlain(k.key, raw)
		}
	}
	return m
}

var metadataKeys = [...]struct{ key, plain string }{
	{KeyMaxCount, PlainMaxCount}, {KeyMaxAge, PlainMaxAge}, {KeyTruncateBefore, PlainTruncateBefore},
	{KeyCacheControl, PlainCacheControl}, {KeyACL, PlainACL},
}

// FitsKey reports whether a JSON value is of the type that a key of metadata wants.
func FitsKey(key string, raw []byte) bool { return new(Metadata).set(key, raw) }

// set takes the value of a key, unless it is of the wrong type.
func (m *Metadata) set(key string, raw []byte) bool {
	if key == KeyACL {
		acl, err := ParseACL(raw)
		if err == nil {
			m.ACL = acl
		}
		return err == nil
	}
	n, beyond, ok := wholeNumber(raw)
	if !ok {
		return false
	}
	switch key {
	case KeyMaxCount:
		m.MaxCount = max(0, n)
	case KeyMaxAge:
		m.MaxAge = seconds(n)
	case KeyTruncateBefore:
		if !beyond { // As the largest it would delete the stream.
			m.TruncateBefore = max(0, n)
		}
	case KeyCacheControl:
		m.CacheControl = seconds(n)
	}
	return true
}

// setPlain takes the value that a plain name has in place of a key. The members
// of a plain access list may be plain, too.
func (m *Metadata) setPlain(key string, raw []byte) {
	if key != KeyACL {
		m.set(key, raw)
		return
	}
	if acl, err := parseACL(raw, true); err == nil {
		m.ACL = acl
	}
}

// wholeNumber reads a JSON value that is a whole number or null. One beyond 64
// bits is the largest of its sign.
func wholeNumber(raw []byte) (n int64, beyond, ok bool) {
	if isNull(raw) {
		return 0, false, true
	}
	n, err := strconv.ParseInt(string(raw), 10, 64)
	if err == nil {
		return n, false, true
	}
	f, err := strconv.ParseFloat(string(raw), 64) // Also 1e21, as JavaScript writes it.
	switch {
	case err != nil && !errors.Is(err, strconv.ErrRange):
		return 0, false, false
	case f >= math.MaxInt64:
		return math.MaxInt64, true, true
	case f <= math.MinInt64:
		return math.MinInt64, true, true
	}
	return 0, false, false
}

func seconds(n int64) time.Duration {
	if n > int64(math.MaxInt64/time.Second) {
		return math.MaxInt64
	}
	return time.Duration(max(0, n)) * time.Second
}

func isNull(raw []byte) bool { return bytes.Equal(raw, []byte("null")) }

var errWrongType = errors.New("wrong type")

// ParseACL reads an access list: an object with any of $r, $w, $d, $mr, $mw, each a role or a list
// of roles.
func ParseACL(data []byte) (ACL, error) { return parseACL(data, false) }

// parseACL reads an access list in which a right may also stand without its $, if plain says so.
func parseACL(data []byte, plain bool) (ACL, error) {
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
		if !ok && plain {
			raw, ok = doc[key[1:]]
		}
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

// WithTruncateBefore returns the metadata document with $tb set to n and all other members as they
// were. A document that is not a JSON object counts as {}.
func WithTruncateBefore(data []byte, n int64) []byte {
	return edited(data, func(doc map[string]json.RawMessage) { doc[KeyTruncateBefore] = strconv.AppendInt(nil, n, 10) })
}

// WithAccessList returns the metadata document with an access list, its own if it has one.
func WithAccessList(data []byte, list string) []byte {
	return edited(data, func(doc map[string]json.RawMessage) {
		if doc[KeyACL] == nil && doc[PlainACL] == nil {
			doc[KeyACL] = json.RawMessage(list)
		}
	})
}

func edited(data []byte, edit func(doc map[string]json.RawMessage)) []byte {
	var doc map[string]json.RawMessage
	if json.Unmarshal(data, &doc) != nil || doc == nil {
		doc = map[string]json.RawMessage{}
	}
	edit(doc)
	out, err := json.Marshal(doc)
	if err != nil { // Raw members came out of a parsed document.
		panic(err)
	}
	return out
}
