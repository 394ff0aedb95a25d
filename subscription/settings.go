package subscription

import "fmt"

// maxBatch bounds one read of the stream, also if ReadBatchSize is larger.
const maxBatch = 100

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
		return nil
	}
	return &SettingsError{Text: text, Plain: true}
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
