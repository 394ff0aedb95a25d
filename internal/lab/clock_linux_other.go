//go:build linux && !amd64

package lab

// clockCode exists for amd64 alone: SkewClock returns ErrNoClock.
var clockCode []byte

// clockOffsetAt is where in the code the offset stands.
const clockOffsetAt = 0
