//go:build race

package eventlog

// everyCut is how many operations lie between two power cuts: the race detector makes each of them slow.
const everyCut = 6

const raceDetector = true
