package projection

import (
	"encoding/json"
	"fmt"
)

// ParseConfig reads settings. Names match in any case, and what is absent is 0,
// false or null. Errors are *BadInput.
func ParseConfig(data []byte) (Config, error) {
	var c *Config
	if err := json.Unmarshal(data, &c); err != nil || c == nil {
		return Config{}, &BadInput{"Failed to parse the projection config"}
	}
	return *c, c.validate()
}

func (c *Config) validate() error {
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
