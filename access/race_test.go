//go:build race

package access_test

// raceDetector says that pools drop some of what is put into them.
const raceDetector = true
