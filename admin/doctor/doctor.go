// Package doctor judges the facts about a node: is all as it should be, and if not, what should an
// operator do. It gathers nothing itself, and its judgements are pure functions, so each can be
// tested with facts that are hard to produce on a machine.
package doctor

import (
	"fmt"
	"time"
)

// Remedy is what an operator should do, in words.
type Remedy string

// Line is what one check has come to.
type Line struct {
	Check  string // what was looked at
	Text   string // what was found
	Remedy Remedy // what to do; empty when all is fine
}

// Fine reports whether nothing is to be done.
func (l *Line) Fine() bool { return l.Remedy == "" }

// String is the line for people.
func (l *Line) String() string {
	if l.Fine() {
		return fmt.Sprintf("ok    %s: %s", l.Check, l.Text)
	}
	return fmt.Sprintf("WRONG %s: %s. Remedy: %s", l.Check, l.Text, l.Remedy)
}

// Wrong counts the lines that are not fine.
func Wrong(lines []Line) (n int) {
	for i := range lines {
		if !lines[i].Fine() {
			n++
		}
	}
	return n
}

// report collects the lines of one check after the other.
type report struct {
	check string
	lines []Line
}

func (r *report) fine(format string, args ...any) {
	r.lines = append(r.lines, Line{Check: r.check, Text: fmt.Sprintf(format, args...)})
}

// wrong demands a remedy by its type, and that it says something.
func (r *report) wrong(remedy Remedy, format string, args ...any) {
	if remedy == "" {
		panic("doctor: a finding without a remedy: " + r.check)
	}
	r.lines = append(r.lines, Line{Check: r.check, Text: fmt.Sprintf(format, args...), Remedy: remedy})
}

// checks are what is looked at, in the order of their lines.
var checks = []struct {
	name  string
	judge func(*Facts, *report)
	fine  string // what is said when the judge says nothing
}{
	{"start", judgeStart, "the node serves requests"},
	{"members", judgeMembers, "a node on its own"},
	{"clock", judgeClock, "a node on its own has no clock to differ from"},
	{"fsync", judgeSync, "a database in memory waits for no disk"},
	{"disk space", judgeVolumes, "a database in memory needs none"},
	{"certificates", judgeCertificates, "the node serves without TLS: on loopback, or behind a proxy that has it"},
	{"lag", judgeLag, "this node leads"},
	{"subscription groups", judgeGroups, "none is stalled"},
	{"projections", judgeProjections, "none is faulted"},
	{"backup", judgeBackup, "this node does not back itself up (BackupTo)"},
	{"chunks", judgeChunks, "none is known to be damaged"},
	{"index", judgeIndex, "it is not known to be damaged"},
	{"passwords", judgePasswords, "admin and ops have passwords of their own"},
	{"anonymous access", judgeWriters, "callers without credentials change nothing, or come from this machine alone"},
	{"limits", judgeLimits, "not known on this system"},
}

// Examine judges all facts. Each check gives at least one line.
func Examine(f *Facts) []Line {
	var r report
	for _, c := range checks {
		before := len(r.lines)
		r.check = c.name
		if c.judge(f, &r); len(r.lines) == before {
			r.fine("%s", c.fine)
		}
	}
	return r.lines
}

// Facts are what is known of a node at one moment. Facts that do not concern a node, or that it
// does not know, are nil.
type Facts struct {
	Now   time.Time
	Ready bool   // the node serves requests
	Doing string // what it does instead
	// why there is no leader on a node that serves reads all the same; empty: there is one, or the
	// node serves nothing
	NoLeader string
	Missing  []string // addresses of the voting nodes that cannot be reached

	Members      []Member // of a cluster of several, this node included
	Asking       string   // the flags by which commands ask this node, with a space before each
	Clock        *Clock   // nil: a node on its own
	Sync         *Sync    // nil: a database in memory
	Volumes      []Volume
	Certificates *Certificates // nil: the node serves without
	Insecure     bool          // no one is asked who they are
	// callers without credentials may change streams without an access list, from other machines
	OpenWriters bool

	Lag         *Lag // nil: this node leads, or is on its own
	Leading     bool // groups and projections run here
	Groups      []Stalled
	Projections []Faulted
	Unloaded    string // why groups or projections are not known; empty: they are

	InMemory  bool     // the database is not on disk
	Backup    *Backup  // nil: the node does not back itself up
	Elsewhere *Backup  // what the cluster knows of the last one of another node; nil: of none
	Damaged   []string // chunk files with bytes that differ from those that were written
	Alone     bool     // there is no other node to fetch them from
	Index     string   // the damaged part of the index; empty: no damage is known

	PostingsMissing int64 // bytes of log that the index of categories, types and tags lacks
	MalformedTags   int64 // events in the log whose tags are malformed

	PostingsBytes int64    // about what the whole index will take on disk, while it is built
	HiddenStreams []string // some of those that an earlier version let have the name of an index

	// DefaultPasswords are the users whose password is still the default one. Unchecked says why
	// that is not known.
	DefaultPasswords []string
	Unchecked        string

	Limits *Limits // nil: not known on this system
}

// Member is a node of the cluster as gossip describes it.
type Member struct {
	Address string // where other nodes reach it
	Alive   bool
	Removed bool // from the cluster; gossip shows it for a while
}

// Clock is how the node's clock compares with those of others.
type Clock struct {
	Ahead time.Duration // of the middle one of the members' clocks
	// how much earlier the clock is than the newest event; below 0: it is later
	BehindLog time.Duration
	Wrong     string // why the node does not trust its clock; empty: it does
}

// Sync is how long the disk takes to make a write durable.
type Sync struct {
	Longest time.Duration // of late
	Mean    time.Duration // since the node started
	Hung    bool
}

// Volume is a folder of the node and what is free for it.
type Volume struct {
	Option  string // that names the folder
	Folder  string
	Free    int64
	Reserve int64 // below which writes are refused
	Err     error // why that is not known
}

// Certificates are those in force, and what the files hold.
type Certificates struct {
	Node, Authority time.Time // when they end
	Findings        []Certificate
}

// Certificate is a finding about a certificate; those who judge certificates know the remedy.
type Certificate struct {
	Text   string
	Remedy Remedy
}

// Lag is how far a node lags its leader.
type Lag struct {
	Leader   string // empty: this node knows of no leader
	Behind   int64  // bytes
	CaughtUp bool
}

// Stalled is a subscription group that makes no progress.
type Stalled struct{ Stream, Group, Reason string }

// Faulted is a projection that has stopped by a fault.
type Faulted struct{ Name, Reason string }

// Backup is what the node knows of its own backups.
type Backup struct {
	LastResult string    // of the last run; empty: there was none
	LastError  string    // of it
	Success    time.Time // when the last successful one ended; zero: never
	Due        time.Time // when one was due after that; zero: there is no schedule
}

// Limits are those of the system.
type Limits struct {
	OpenFiles, MaxOpenFiles uint64 // of the process
	MaxMaps                 uint64 // vm.max_map_count; 0: not known
}
