// Package doctor judges what is known of a node: is all as it should be, and if not,
// what is to be done. It gathers nothing itself and its judgements are pure, so that
// each can be tested with facts that no machine has at hand.
package doctor

import (
	"encoding/json"
	"fmt"
)

// Remedy is what somebody is to do, in words.
type Remedy string

// Line is what one check has come to. It is fine as long as it has no remedy: there is
// no way to make a finding without one.
type Line struct {
	check  string
	text   string
	remedy Remedy
}

// Check names what was looked at.
func (l Line) Check() string { return l.check }

// Text says what was found.
func (l Line) Text() string { return l.text }

// Remedy says what to do, nothing when all is fine.
func (l Line) Remedy() string { return string(l.remedy) }

// Fine reports whether nothing is to be done.
func (l Line) Fine() bool { return l.remedy == "" }

// String is the line for people.
func (l Line) String() string {
	if l.Fine() {
		return fmt.Sprintf("ok    %s: %s", l.check, l.text)
	}
	return fmt.Sprintf("WRONG %s: %s. Remedy: %s", l.check, l.text, l.remedy)
}

// document is a line as others read it.
type document struct {
	Check  string `json:"check"`
	OK     bool   `json:"ok"`
	Text   string `json:"text"`
	Remedy string `json:"remedy"`
}

// MarshalJSON writes the line with its names of the wire.
func (l Line) MarshalJSON() ([]byte, error) {
	return json.Marshal(document{l.check, l.Fine(), l.text, string(l.remedy)})
}

func fine(check, format string, args ...any) Line {
	return Line{check: check, text: fmt.Sprintf(format, args...)}
}

// finding demands a remedy by its type, and that it says something.
func finding(check string, remedy Remedy, format string, args ...any) Line {
	if remedy == "" {
		panic("doctor: a finding without a remedy: " + check)
	}
	return Line{check: check, text: fmt.Sprintf(format, args...), remedy: remedy}
}

// Wrong counts the lines that are not fine.
func Wrong(lines []Line) (n int) {
	for _, l := range lines {
		if !l.Fine() {
			n++
		}
	}
	return n
}

// checks are what is looked at, in the order of their lines.
var checks = []func(*Facts) []Line{
	judgeStart, judgeMembers, judgeClock, judgeSync, judgeVolumes, judgeCertificates, judgeLag, judgeGroups, judgeProjections,
	judgeBackup, judgeChunks, judgePasswords, judgeLimits,
}

// Examine judges all facts. Each check gives at least one line.
func Examine(f *Facts) []Line {
	var lines []Line
	for _, judge := range checks {
		lines = append(lines, judge(f)...)
	}
	return lines
}
