package position

import (
	"errors"
	"fmt"
	"strconv"
	"strings"

	"github.com/annalsdb/annals/internal/jsontext"
)

// subsystemVersion ends the text of a version: that of the whole of projections. Do not change.
const subsystemVersion = "4"

// What Parse and ParseStored can find instead of a position.
var (
	ErrNoPosition = errors.New("no position") // a JSON object without one, or no JSON object
	ErrNoVersion  = errors.New("no version")  // a position without one
	// its names are there, and their values are not what they must be
	ErrMalformed  = errors.New("malformed position")
	errNotVersion = errors.New("not a version: want <id>:<epoch>:<version>:" + subsystemVersion)
)

// String is the version as "$v" has it.
func (v Version) String() string { return string(v.append(nil)) }

func (v Version) append(dst []byte) []byte {
	for _, n := range [...]int64{v.Projection, v.Epoch, v.Version} {
		dst = append(strconv.AppendInt(dst, n, 10), ':')
	}
	return append(dst, subsystemVersion...)
}

// IsOurs reports whether the output of another version is ours, now that we are version v: the
// projection is the same, and was not reset since.
func (v Version) IsOurs(other Version) bool {
	return other.Projection == v.Projection && other.Version >= v.Epoch
}

// ParseVersion reads what String writes. Any number may stand for that of the
// subsystem, and older data have none.
func ParseVersion(text string) (v Version, err error) {
	parts := strings.Split(text, ":")
	if len(parts) != 3 && len(parts) != 4 {
		return v, fmt.Errorf("%w: %q", errNotVersion, text)
	}
	var numbers [4]int64
	for i, part := range parts {
		if numbers[i], err = strconv.ParseInt(part, 10, 64); err != nil {
			return Version{}, fmt.Errorf("%w: %q", errNotVersion, text)
		}
	}
	return Version{numbers[0], numbers[1], numbers[2]}, nil
}

// AppendMembers appends the position as members of a JSON object, without the
// braces. With a version "$v" comes first.
func (p Position) AppendMembers(dst []byte, v *Version) []byte {
	if v != nil {
		dst = append(v.append(append(dst, `"$v":"`...)), `",`...)
	}
	if p.Phase != 0 {
		dst = strconv.AppendInt(append(dst, `"$ph":`...), int64(p.Phase), 10)
		return strconv.AppendBool(append(dst, `,"$cp":`...), p.Completed)
	}
	if p.Log {
		dst = strconv.AppendInt(append(dst, `"$c":`...), p.Commit, 10)
		dst = strconv.AppendInt(append(dst, `,"$p":`...), p.Prepare, 10)
		if len(p.Numbers) == 0 {
			return dst
		}
		dst = append(dst, ',')
	}
	dst = append(dst, `"$s":{`...)
	for i, n := range p.Numbers {
		if i > 0 {
			dst = append(dst, ',')
		}
		dst = append(jsontext.AppendString(dst, n.Name), ':')
		dst = strconv.AppendInt(dst, n.Number, 10)
	}
	return append(dst, '}')
}

// AppendJSON appends the position as a JSON object; with a version as stored metadata have it.
func (p Position) AppendJSON(dst []byte, v *Version) []byte {
	return append(p.AppendMembers(append(dst, '{'), v), '}')
}

// MarshalJSON writes the position as ES-Position and read-events show it.
func (p Position) MarshalJSON() ([]byte, error) { return p.AppendJSON(nil, nil), nil }

// Parse reads a position, whichever names it is written with: $c or c or
// commitPosition, $p or p or preparePosition, $s or s or streams. Names without
// "$" act only where none with it is there, as an emitted event may have members
// of its own. Other members are passed over.
func Parse(data []byte) (Position, error) {
	p, _, err := parse(data)
	return p, err
}

// ParseStored reads the position and the version out of the metadata of an event that a projection
// wrote.
func ParseStored(data []byte) (Position, Version, error) {
	p, v, err := parse(data)
	if err == nil && v == nil {
		err = ErrNoVersion
	}
	if err != nil {
		return Position{}, Version{}, err
	}
	version, err := ParseVersion(string(v))
	if err != nil {
		return Position{}, Version{}, fmt.Errorf("%w: %w", ErrMalformed, err)
	}
	return p, version, nil
}

// The members of a position.
const (
	commit = iota
	prepare
	streams
	phase
	completed
	version
	memberCount
)

// members are the values found; a nil one is not there.
type members [memberCount][]byte

func (m *members) isPosition() bool {
	return m[commit] != nil || m[prepare] != nil || m[streams] != nil || m[phase] != nil || m[completed] != nil
}

// named are the names of members, with those without "$" marked plain.
var named = map[string]struct {
	which   int
	isPlain bool
}{
	`"$c"`: {commit, false}, `"$p"`: {prepare, false}, `"$s"`: {streams, false},
	`"$ph"`: {phase, false}, `"$cp"`: {completed, false}, `"$v"`: {version, false},
	`"c"`: {commit, true}, `"commitPosition"`: {commit, true}, `"p"`: {prepare, true}, `"preparePosition"`: {prepare, true},
	`"s"`: {streams, true}, `"streams"`: {streams, true}, `"v"`: {version, true},
}

// parse returns the position and the text of the version, nil if there is none.
func parse(data []byte) (p Position, v []byte, err error) {
	var proper, plain members
	walk := jsontext.ObjectAt(data, jsontext.Space(data, 0))
	for walk.Next() {
		if m, ok := named[string(walk.Name)]; !ok || walk.Kind == jsontext.Null {
			continue
		} else if m.isPlain {
			plain[m.which] = walk.Value
		} else {
			proper[m.which] = walk.Value
		}
	}
	if end, ok := walk.End(); !ok || jsontext.Space(data, end) != len(data) {
		return p, nil, ErrNoPosition
	}
	m := proper
	if !proper.isPosition() {
		m = plain
	}
	if v = proper[version]; v == nil {
		v = plain[version]
	}
	if v != nil {
		if v[0] != '"' {
			return p, nil, fmt.Errorf("%w: the version is not a text", ErrMalformed)
		}
		v = jsontext.Unquote(nil, v)
	}
	if !m.isPosition() {
		return p, v, ErrNoPosition
	}
	p, err = m.position()
	return p, v, err
}

func (m *members) position() (p Position, err error) {
	if m[phase] != nil || m[completed] != nil {
		n, err := m.number(phase, 0)
		if err != nil {
			return p, err
		}
		if n != 0 {
			done := string(m[completed])
			if n != 1 || done != "" && done != "true" && done != "false" {
				return p, fmt.Errorf("%w: phase %d, completed %s", ErrMalformed, n, done)
			}
			return Position{Phase: 1, Completed: done == "true"}, nil
		}
	}
	if p.Log = m[commit] != nil || m[prepare] != nil; p.Log {
		if p.Commit, err = m.number(commit, 0); err != nil {
			return Position{}, err
		}
		if p.Prepare, err = m.number(prepare, p.Commit); err != nil {
			return Position{}, err
		}
	} else if m[streams] == nil {
		return Position{}, ErrNoPosition
	}
	if m[streams] == nil {
		return p, nil
	}
	p.Numbers = []Number{}
	var seen map[string]int // where a name stands, once there are many
	walk := jsontext.ObjectAt(m[streams], 0)
	for walk.Next() {
		n, err := strconv.ParseInt(string(walk.Value), 10, 64)
		if err != nil {
			return Position{}, fmt.Errorf("%w: %.40s is not the number of an event", ErrMalformed, walk.Value)
		}
		name := string(jsontext.Unquote(nil, walk.Name))
		if seen == nil {
			seen = map[string]int{}
		}
		if at, twice := seen[name]; twice {
			p.Numbers[at].Number = n // The last one counts, as in all JSON.
			continue
		}
		seen[name] = len(p.Numbers)
		p.Numbers = append(p.Numbers, Number{name, n})
	}
	if _, ok := walk.End(); !ok {
		return Position{}, fmt.Errorf("%w: the streams are not an object", ErrMalformed)
	}
	if p.Log && len(p.Numbers) == 0 {
		p.Numbers = nil
	}
	return p, nil
}

func (m *members) number(which int, absent int64) (int64, error) {
	if m[which] == nil {
		return absent, nil
	}
	n, err := strconv.ParseInt(string(m[which]), 10, 64)
	if err != nil {
		return 0, fmt.Errorf("%w: %.40s is not a whole number of 64 bits", ErrMalformed, m[which])
	}
	return n, nil
}
