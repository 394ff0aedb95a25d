//go:build !race

package eventlog

// everyCut is how many operations lie between two power cuts.
const everyCut = 1

const raceDetector = false
