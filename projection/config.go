package projection

import (
	"encoding/json"
	"fmt"
	"strconv"
	"strings"
)

// ParseConfig reads settings. Names match in any case, and an absent member is 0, false or null.
// Errors are *BadInput.
func ParseConfig(data []byte) (c Config, err error) {
	bad := &BadInput{"Failed to parse the projection config"}
	var sent map[string]json.RawMessage
	if json.Unmarshal(data, &sent) != nil || sent == nil {
		return c, bad
	}
	for name, value := range sent {
		sent[name] = meant(value)
	}
	if data, err = json.Marshal(sent); err != nil || json.Unmarshal(data, &c) != nil {
		return c, bad
	}
	return c, validate(&c)
}

// meant is the value in a text: some clients send texts of numbers and flags. The empty one is as
// null.
func meant(value json.RawMessage) json.RawMessage {
	if value[0] != '"' {
		return value
	}
	switch text := strings.ToLower(strings.TrimSpace(strings.Trim(string(value), `"`))); text {
	case "", "null":
		return json.RawMessage("null")
	case "true", "false":
		return json.RawMessage(text)
	default:
		if n, err := strconv.ParseInt(text, 10, 64); err == nil {
			return strconv.AppendInt(nil, n, 10)
		}
		return value
	}
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
