package verify

import (
	"fmt"
	"strings"
	"time"
)

// Line writes a finding on one line.
func Line(f Finding) string {
	var b strings.Builder
	fmt.Fprintf(&b, "%s %s %s", f.Severity, f.Kind, f.File)
	if f.Offset >= 0 {
		fmt.Fprintf(&b, " offset %d", f.Offset)
	}
	if f.Position >= 0 {
		fmt.Fprintf(&b, " position %d", f.Position)
	}
	b.WriteString(": ")
	b.WriteString(strings.ReplaceAll(f.Detail, "\n", " "))
	return b.String()
}

// Text writes the end of a report for people: a summary and the verdict.
func (r *Report) Text() string {
	s := &r.Summary
	took := time.Duration(r.Seconds * float64(time.Second)).Round(time.Millisecond)
	verdict := "no errors"
	if r.Problems > 0 {
		verdict = fmt.Sprintf("%d errors", r.Problems)
	}
	if r.Notices > 0 {
		verdict += fmt.Sprintf(", %d notices", r.Notices)
	}
	return fmt.Sprintf("log: up to position %d in %d chunks (%d scavenged), %d frames, %d records (%d redacted), %d stubs, %d streams\n"+
		"index: %d entries in %d tables\n"+
		"read %d bytes in %v\n%s\n",
		s.End, s.Chunks, s.Scavenged, s.Frames, s.Records, s.Redacted, s.Stubs, s.Streams, s.IndexEntries, s.IndexTables, s.Bytes, took, verdict)
}
