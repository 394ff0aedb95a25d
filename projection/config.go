package projection

import (
	"encoding/json"
	"errors"
	"fmt"
	"strconv"
	"strings"
)

// ParseConfig reads settings. Names match in any case, and what is absent is 0,
// false or null. Errors are *BadInput.
func ParseConfig(data []byte) (Config, error) {
	var s *sentConfig
	if err := json.Unmarshal(data, &s); err != nil || s == nil {
		return Config{}, &BadInput{"Failed to parse the projection config"}
	}
	c := s.config()
	return c, validate(&c)
}

// sentConfig is a Config as clients send it: some send texts that hold what is meant.
type sentConfig struct {
	EmitEnabled                       sentFlag
	TrackEmittedStreams               sentFlag
	CheckpointAfterMs                 sentNumber
	CheckpointHandledThreshold        sentNumber
	CheckpointUnhandledBytesThreshold sentNumber
	PendingEventsThreshold            sentNumber
	MaxWriteBatchLength               sentNumber
	MaxAllowedWritesInFlight          sentNumber
	ProjectionExecutionTimeout        sentNumber
}

func (s *sentConfig) config() Config {
	c := Config{
		EmitEnabled: bool(s.EmitEnabled), TrackEmittedStreams: bool(s.TrackEmittedStreams),
		CheckpointAfterMs: s.CheckpointAfterMs.value, CheckpointHandledThreshold: s.CheckpointHandledThreshold.value,
		CheckpointUnhandledBytesThreshold: s.CheckpointUnhandledBytesThreshold.value, PendingEventsThreshold: s.PendingEventsThreshold.value,
		MaxWriteBatchLength: s.MaxWriteBatchLength.value, MaxAllowedWritesInFlight: s.MaxAllowedWritesInFlight.value,
	}
	if s.ProjectionExecutionTimeout.given {
		c.ProjectionExecutionTimeout = &s.ProjectionExecutionTimeout.value
	}
	return c
}

// sentNumber is a number, or a text of one; null and the empty text are as if nothing had been sent.
type sentNumber struct {
	value int64
	given bool
}

func (n *sentNumber) UnmarshalJSON(data []byte) (err error) {
	text := strings.TrimSpace(strings.Trim(string(data), `"`))
	*n = sentNumber{}
	if text == "" || text == "null" {
		return nil
	}
	n.given = true
	n.value, err = strconv.ParseInt(text, 10, 64)
	return err
}

// sentFlag is true or false, or a text of it; null and the empty text are false.
type sentFlag bool

func (f *sentFlag) UnmarshalJSON(data []byte) error {
	switch text := strings.Trim(string(data), `"`); {
	case text == "true", strings.EqualFold(text, "true") && data[0] == '"':
		*f = true
	case text == "false", text == "", text == "null", strings.EqualFold(text, "false") && data[0] == '"':
		*f = false
	default:
		return errors.New("neither true nor false")
	}
	return nil
}

func validate(c *Config) error {
	if t := c.ProjectionExecutionTimeout; t != nil && *t <= 0 {
		return &BadInput{fmt.Sprintf("projectionExecutionTimeout should be positive. Found : %d", *t)}
	}
	for _, f := range []struct {
		name  string
		value int64
		least int64
	}{
		{"checkpointAfterMs", c.CheckpointAfterMs, 0},
		{"checkpointHandledThreshold", c.CheckpointHandledThreshold, 1},
		{"pendingEventsThreshold", c.PendingEventsThreshold, 0},
		{"maxWriteBatchLength", c.MaxWriteBatchLength, 0},
		{"maxAllowedWritesInFlight", c.MaxAllowedWritesInFlight, 0},
	} {
		if f.value < f.least {
			return &BadInput{fmt.Sprintf("%s should be at least %d. Found : %d", f.name, f.least, f.value)}
		}
	}
	if c.CheckpointHandledThreshold > c.CheckpointUnhandledBytesThreshold {
		return &BadInput{fmt.Sprintf("checkpointUnhandledBytesThreshold should be at least checkpointHandledThreshold. Found : %d", c.CheckpointUnhandledBytesThreshold)}
	}
	return nil
}
