package subscription

import (
	"fmt"
	"math"
	"time"
)

// maxBatch bounds one read of the stream, also if ReadBatchSize is larger.
const maxBatch = 100

const (
	// MaxDelay bounds delays, and the time between checkpoints of few messages.
	MaxDelay = 24 * time.Hour

	maxFactor     = 100         // of a backoff
	defaultAtMost = time.Minute // delay that backs off
)

// Known reports whether there is a strategy of that name.
func (s Strategy) Known() bool {
	switch s {
	case RoundRobin, DispatchToSingle, Pinned, PinnedByCorrelation:
		return true
	}
	return false
}

// Validate returns a *SettingsError if the settings are not valid.
func (s *Settings) Validate() error {
	if err := s.ValidateSizes(); err != nil {
		return err
	}
	return s.validateRest()
}

// ValidateSizes is the first part of Validate: it is done before the other properties of a request
// are read.
func (s *Settings) ValidateSizes() error {
	var text string
	switch {
	case s.BufferSize <= 0:
		text = fmt.Sprintf("Buffer Size (%d) must be positive", s.BufferSize)
	case s.LiveBufferSize <= 0:
		text = fmt.Sprintf("Live Buffer Size (%d) must be positive", s.LiveBufferSize)
	case s.ReadBatchSize <= 0:
		text = fmt.Sprintf("Read Batch Size (%d) must be positive", s.ReadBatchSize)
	case s.BufferSize <= s.ReadBatchSize:
		text = fmt.Sprintf("BufferSize (%d) must be larger than ReadBatchSize (%d)", s.BufferSize, s.ReadBatchSize)
	default:
		text = s.wrongDelays()
	}
	if text == "" {
		return nil
	}
	return &SettingsError{Text: text, Plain: true}
}

// wrongDelays says what is wrong with the delays; empty: nothing is.
func (s *Settings) wrongDelays() string {
	b := s.RetryBackoff
	for _, d := range []struct {
		name string
		is   time.Duration
	}{
		{"retryDelayMilliseconds", s.RetryDelay}, {"atMostMilliseconds of retryBackoff", b.AtMost}, {"checkpointAtLeastEveryMilliseconds", s.CheckpointAtLeastEvery},
	} {
		if d.is < 0 || d.is > MaxDelay {
			return fmt.Sprintf("%s (%d) must be between 0 and %d", d.name, d.is.Milliseconds(), MaxDelay.Milliseconds())
		}
	}
	switch {
	case b != (Backoff{}) && !(b.Factor >= 1 && b.Factor <= maxFactor):
		return fmt.Sprintf("factor of retryBackoff (%g) must be between 1 and %d", b.Factor, maxFactor)
	case b.AtMost > 0 && b.AtMost < s.RetryDelay:
		return fmt.Sprintf("atMostMilliseconds of retryBackoff (%d) must not be less than retryDelayMilliseconds (%d)", b.AtMost.Milliseconds(), s.RetryDelay.Milliseconds())
	}
	return ""
}

// delay returns how long a message waits before it is tried again for the n-th time.
func (s *Settings) delay(n int) time.Duration {
	b := s.RetryBackoff
	if b.Factor <= 1 || s.RetryDelay <= 0 {
		return s.RetryDelay
	}
	most := b.AtMost
	if most == 0 {
		most = max(defaultAtMost, s.RetryDelay)
	}
	return time.Duration(min(float64(most), float64(s.RetryDelay)*math.Pow(b.Factor, float64(n-1))))
}

// validateRest is the second part, done once an update is known to have a group.
func (s *Settings) validateRest() error {
	if !s.Strategy.Known() {
		return &SettingsError{Text: fmt.Sprintf("Consumer strategy %s does not exist.", s.Strategy)}
	}
	if s.StartFrom < -1 {
		return &SettingsError{Text: "Invalid Start From position: event number must be greater than or equal to -1."}
	}
	_, err := s.Filter.compile()
	return err
}

// batch is how many events are read at once.
func (s *Settings) batch() int { return max(1, min(s.ReadBatchSize, maxBatch)) }
