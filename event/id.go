package event

import "errors"

// ID identifies an event: the 16 bytes of a GUID in the order its text shows them.
type ID [16]byte

// ErrBadID says that a text is not a GUID.
var ErrBadID = errors.New("not a GUID")

// IsZero reports whether all 16 bytes are zero.
func (id ID) IsZero() bool { return id == ID{} }

// String returns the canonical form: lower case, with dashes, without braces.
func (id ID) String() string {
	var b [36]byte
	return string(id.AppendTo(b[:0]))
}

// AppendTo appends the canonical form to dst.
func (id ID) AppendTo(dst []byte) []byte {
	const digits = "0123456789abcdef"
	var text [36]byte
	at := 0
	for i, v := range id {
		if i == 4 || i == 6 || i == 8 || i == 10 {
			text[at] = '-'
			at++
		}
		text[at], text[at+1] = digits[v>>4], digits[v&15]
		at += 2
	}
	return append(dst, text[:]...)
}

// MarshalText writes the canonical form.
func (id ID) MarshalText() ([]byte, error) { return id.AppendTo(nil), nil }

// UnmarshalText reads a GUID in any of its usual forms.
func (id *ID) UnmarshalText(text []byte) (err error) {
	*id, err = ParseID(text)
	return err
}

// ParseID reads a GUID in any of its usual forms: 32 digits, the same with
// dashes at the canonical places, either of them within braces or round
// brackets; digits in any case.
func ParseID[T ~string | ~[]byte](text T) (ID, error) {
	var id ID
	s := text
	if len(s) >= 2 && (s[0] == '{' && s[len(s)-1] == '}' || s[0] == '(' && s[len(s)-1] == ')') {
		s = s[1 : len(s)-1]
	}
	dashed := len(s) == 36
	if !dashed && len(s) != 32 {
		return ID{}, ErrBadID
	}
	at := 0
	for i := range id {
		if dashed && (at == 8 || at == 13 || at == 18 || at == 23) {
			if s[at] != '-' {
				return ID{}, ErrBadID
			}
			at++
		}
		hi, lo := digitValues[s[at]], digitValues[s[at+1]]
		if hi|lo > 15 {
			return ID{}, ErrBadID
		}
		id[i] = hi<<4 | lo
		at += 2
	}
	return id, nil
}

// digitValues are the values of hexadecimal digits, 0xff for any other byte.
var digitValues = func() (values [256]byte) {
	for i := range values {
		values[i] = 0xff
	}
	for i := range byte(10) {
		values['0'+i] = i
	}
	for i := range byte(6) {
		values['a'+i], values['A'+i] = 10+i, 10+i
	}
	return values
}()
