//go:build race

package scavenge_test

// raced says that the race detector is on, which slows everything down.
const raced = true
