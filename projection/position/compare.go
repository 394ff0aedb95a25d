package position

import (
	"cmp"
	"errors"
	"fmt"
)

// ErrOtherSource says that a position is one of another kind of source, so that
// it does not tell where to begin.
var ErrOtherSource = errors.New("the position is one of another kind of source")

// Compare tells whether a is before b (-1), equal (0) or after it (1). Places in the log are
// ordered, and so are the numbers of one stream. Of several streams a position is behind another if
// it is so in one stream and before it in none. It is not ok when there is no order: other kinds,
// other streams, or later in one stream and earlier in another.
func Compare(a, b Position) (c int, ok bool) {
	switch {
	case a.Phase != b.Phase:
		return cmp.Compare(a.Phase, b.Phase), true
	case a.Phase != 0:
		return cmp.Compare(asInt(a.Completed), asInt(b.Completed)), true
	case a.Log != b.Log:
		return 0, false
	case a.Log:
		return cmp.Or(cmp.Compare(a.Commit, b.Commit), cmp.Compare(a.Prepare, b.Prepare)), true
	case len(a.Numbers) != len(b.Numbers):
		return 0, false
	}
	for i, n := range a.Numbers {
		other := b.Numbers[i].Number
		if b.Numbers[i].Name != n.Name { // The streams may be named in another order.
			if other, ok = b.Number(n.Name); !ok {
				return 0, false
			}
		}
		switch one := cmp.Compare(n.Number, other); {
		case one == 0:
		case c == 0:
			c = one
		case c != one:
			return 0, false
		}
	}
	return c, true
}

func asInt(b bool) int {
	if b {
		return 1
	}
	return 0
}

// Convert makes of a position one of another source, given by its zero position:
// streams keep the numbers that they share and new ones begin at their start; the
// log keeps its place, whichever types are named. All else is ErrOtherSource.
func Convert(p, zero Position) (Position, error) {
	switch {
	case p.Phase != 0 || zero.Phase != 0 || p.Log != zero.Log:
		return Position{}, fmt.Errorf("%w: %s instead of %s", ErrOtherSource, p.kind(), zero.kind())
	case p.Log:
		zero.Commit, zero.Prepare = p.Commit, p.Prepare
		return zero, nil
	}
	numbers := make([]Number, len(zero.Numbers))
	for i, n := range zero.Numbers {
		if had, ok := p.Number(n.Name); ok {
			n.Number = max(had, -1)
		}
		numbers[i] = n
	}
	return Position{Numbers: numbers}, nil
}

func (p Position) kind() string {
	switch {
	case p.Phase != 0:
		return "the second phase of a query"
	case p.Log:
		return "a place in the log"
	}
	return "numbers of streams"
}
