package jsontext

// Members walks the members of an object in place and checks the text on the
// way: when End reports true the whole object was valid.
//
//	m := ObjectAt(b, at)
//	for m.Next() {
//		... m.Name, m.Value, m.Kind
//	}
//	end, ok := m.End()
//
// Begin and Resume in place of Next let the caller walk a value itself, so that
// nested values are not scanned twice.
type Members struct {
	walk
	Name []byte // the name as written, quotes included; Unquote gives its text
}

// walk is what walks over objects and arrays have in common.
type walk struct {
	b     []byte
	at    int
	state walkState

	Value []byte // after Next: the value as written
	Kind  Kind   // after Next: what it is
}

// Resume tells where the value ends whose beginning Begin returned.
func (w *walk) Resume(end int) { w.at = end }

// End returns the offset after the object or array, once Next or Begin returned false, and whether
// all of it was valid.
func (w *walk) End() (end int, ok bool) { return w.at, w.state == walkDone }

type walkState uint8

const (
	walkFirst walkState = iota // nothing was looked at
	walkNext                   // after a value
	walkDone
	walkBad
)

// ObjectAt returns a walk over the object that begins at b[at].
func ObjectAt(b []byte, at int) Members {
	if uint(at) >= uint(len(b)) || b[at] != '{' {
		return Members{walk: walk{state: walkBad}}
	}
	return Members{walk: walk{b: b, at: at + 1}}
}

// Next moves to the next member. It returns false after the last one and where the text is not
// valid.
func (m *Members) Next() bool {
	at, ok := m.Begin()
	if !ok {
		return false
	}
	end, kind := End(m.b, at)
	if kind == Invalid {
		m.state = walkBad
		return false
	}
	m.Value, m.Kind, m.at = m.b[at:end:end], kind, end
	return true
}

// Begin moves to the next member, sets its Name and returns where its value
// begins. The value is not looked at: the caller finds its end and tells it to
// Resume before the next call.
func (m *Members) Begin() (at int, ok bool) {
	at, ok = nextItem(m.b, m.at, &m.state, '}')
	m.at = at
	if !ok {
		return 0, false
	}
	b := m.b
	if at < len(b) && b[at] == '"' {
		if end := stringEnd(b, at+1); end >= 0 {
			m.Name = b[at:end:end]
			if at = Space(b, end); at < len(b) && b[at] == ':' {
				m.at = Space(b, at+1)
				return m.at, true
			}
		}
	}
	m.state = walkBad
	return 0, false
}

// Elements walks the elements of an array in place, as Members does with an object.
type Elements struct{ walk }

// ArrayAt returns a walk over the array that begins at b[at].
func ArrayAt(b []byte, at int) Elements {
	if uint(at) >= uint(len(b)) || b[at] != '[' {
		return Elements{walk{state: walkBad}}
	}
	return Elements{walk{b: b, at: at + 1}}
}

// Next moves to the next element. It returns false after the last one and where the text is not
// valid.
func (e *Elements) Next() bool {
	at, ok := e.Begin()
	if !ok {
		return false
	}
	end, kind := End(e.b, at)
	if kind == Invalid {
		e.state = walkBad
		return false
	}
	e.Value, e.Kind, e.at = e.b[at:end:end], kind, end
	return true
}

// Begin returns where the next element begins. The element is not looked at:
// the caller finds its end and tells it to Resume before the next call.
func (e *Elements) Begin() (at int, ok bool) {
	e.at, ok = nextItem(e.b, e.at, &e.state, ']')
	return e.at, ok
}

// nextItem moves from the opening bracket, or from the end of an item, to where the next item must
// begin. At the closing bracket it returns false and the offset after it.
func nextItem(b []byte, at int, state *walkState, closing byte) (int, bool) {
	if *state >= walkDone {
		return at, false
	}
	at = Space(b, at)
	if at < len(b) {
		first := *state == walkFirst
		*state = walkNext
		switch c := b[at]; {
		case c == closing:
			*state = walkDone
			return at + 1, false
		case first:
			return at, true
		case c == ',':
			return Space(b, at+1), true
		}
	}
	*state = walkBad
	return at, false
}
