// Package sabotage breaks promises of the product on purpose, so that the tests
// which watch over these promises can be shown to notice. Only a binary built with the
// tag sabotage can break anything; in any other, On is constantly false.
package sabotage

// Promises that can be broken.
const (
	Fence = "fence" // apply entries that were decided on another end of the log
	Early = "early" // acknowledge before the entry is committed
	Drop  = "drop"  // lose a frame now and then when applying
)
