//go:build !race

package eventlog

const raceDetector = false
