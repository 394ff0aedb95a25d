package config

// LogLevel is the least severity that is logged.
type LogLevel string

// The log levels. Default means Information; unlike the others it lets a reload
// of the configuration leave the level as it is.
const (
	LogLevelDefault     LogLevel = "Default"
	LogLevelVerbose     LogLevel = "Verbose"
	LogLevelDebug       LogLevel = "Debug"
	LogLevelInformation LogLevel = "Information"
	LogLevelWarning     LogLevel = "Warning"
	LogLevelError       LogLevel = "Error"
	LogLevelFatal       LogLevel = "Fatal"
)

// LogFormat is the form of a log line.
type LogFormat string

// The log formats.
const (
	LogFormatPlain LogFormat = "Plain"
	LogFormatJSON  LogFormat = "Json"
)

// LogInterval is how often a new log file is begun.
type LogInterval string

// The log intervals.
const (
	LogIntervalInfinite LogInterval = "Infinite"
	LogIntervalYear     LogInterval = "Year"
	LogIntervalMonth    LogInterval = "Month"
	LogIntervalDay      LogInterval = "Day"
	LogIntervalHour     LogInterval = "Hour"
	LogIntervalMinute   LogInterval = "Minute"
)

// ProjectionMode says which projections run.
type ProjectionMode string

// The projection modes.
const (
	ProjectionsNone   ProjectionMode = "None"
	ProjectionsSystem ProjectionMode = "System"
	ProjectionsAll    ProjectionMode = "All"
)

// FollowerWriteMode is what a follower does with a request that only the leader can serve.
type FollowerWriteMode string

// The follower write modes.
const (
	FollowerWritesRedirect FollowerWriteMode = "Redirect"
	FollowerWritesForward  FollowerWriteMode = "Forward"
)

// WebTone says what kind of data the user interface warns of.
type WebTone string

// The tones of the user interface.
const (
	WebToneNone       WebTone = "None"
	WebToneTest       WebTone = "Test"
	WebToneProduction WebTone = "Production"
)

// LogStore is the library that keeps the Raft log.
type LogStore string

// The Raft log stores.
const (
	LogStoreBoltDB LogStore = "BoltDB"
	LogStoreWal    LogStore = "Wal"
)
