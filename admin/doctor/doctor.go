// Package doctor judges the facts about a node: is all as it should be, and if not, what should an
// operator do. It gathers nothing itself, and its judgements are pure functions, so each can be
// tested with facts that are hard to produce on a machine.
package doctor

import "fmt"

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
