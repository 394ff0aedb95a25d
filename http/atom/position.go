package atom

import "strconv"

// positionDigits is the length of a position: 16 digits for the commit and 16
// for the prepare position, which are the same here.
const positionDigits = 32

// AppendPosition appends a position.
func AppendPosition(b []byte, p int64) []byte {
	const digits = "0123456789ABCDEF"
	for range 2 {
		for shift := 60; shift >= 0; shift -= 4 {
			b = append(b, digits[uint64(p)>>shift&15])
		}
	}
	return b
}

// ParsePosition reads a position. The commit position counts; the other one must
// only be of the right shape.
func ParsePosition(s string) (int64, bool) {
	if len(s) != positionDigits {
		return 0, false
	}
	p, err := strconv.ParseUint(s[:positionDigits/2], 16, 63)
	_, other := strconv.ParseUint(s[positionDigits/2:], 16, 64)
	return int64(p), err == nil && other == nil
}
