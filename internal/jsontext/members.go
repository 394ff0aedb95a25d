package jsontext

import "strconv"

// Text appends a JSON string, after what stands before it: the name of its member, mostly.
func Text[T ~string | ~[]byte](b []byte, before string, s T) []byte {
	return AppendString(append(b, before...), s)
}

// Int is Text for a number.
func Int(b []byte, before string, n int64) []byte {
	return strconv.AppendInt(append(b, before...), n, 10)
}

// Bool is Text for true or false.
func Bool(b []byte, before string, v bool) []byte {
	return strconv.AppendBool(append(b, before...), v)
}

// Raw is Text for what needs no escapes, without quotes.
func Raw[T ~string | ~[]byte](b []byte, before string, s T) []byte {
	return append(append(b, before...), s...)
}
