package main

import (
	"fmt"
	"io"

	"github.com/hashicorp/go-hclog"

	"github.com/annalsdb/annals/config"
)

// newLogger makes the process's logger. The returned function closes its file.
func newLogger(c *config.Config, stderr io.Writer) (hclog.Logger, func() error, error) {
	output, closeLog := stderr, func() error { return nil }
	if c.Log != "" && !c.DisableLogFile {
		f, err := openLogFile(logFileOptions{
			Dir:      c.Log,
			Size:     c.LogFileSize,
			Interval: c.LogFileInterval,
			Keep:     c.LogFileRetentionCount,
		})
		if err != nil {
			return nil, nil, fmt.Errorf("log file: %w", err)
		}
		// Standard error comes first: it gets the line even when the file's disk is full.
		output, closeLog = io.MultiWriter(stderr, f), f.Close
	}
	return hclog.New(&hclog.LoggerOptions{
		Name:       "annals",
		Level:      hclogLevel(c.LogLevel),
		Output:     output,
		JSONFormat: c.LogConsoleFormat == config.LogFormatJSON,
	}), closeLog, nil
}

// hclogLevel translates the level. A fatal error is logged as an error before the process ends.
func hclogLevel(l config.LogLevel) hclog.Level {
	switch l {
	case config.LogLevelVerbose:
		return hclog.Trace
	case config.LogLevelDebug:
		return hclog.Debug
	case config.LogLevelWarning:
		return hclog.Warn
	case config.LogLevelError, config.LogLevelFatal:
		return hclog.Error
	default:
		return hclog.Info
	}
}
