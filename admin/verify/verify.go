// Package verify checks a data folder: the log and the index must have the bytes that were written,
// and must agree with each other. It changes nothing in it.
//
// A folder that was scavenged is judged by what a scavenge may do: it removes the first events of a
// stream and their entries, also entries whose records stay, and never the newest event, the newest
// metadata or the tombstone. Anything else that is missing is a problem. Package eventlog knows
// what the bytes mean. This package runs its inspection as a job with an id, progress and
// cancellation, and collects a bounded report.
package verify

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"strings"
	"time"

	"github.com/annalsdb/annals/log/inspect"
)

// What an inspection says, under the names of this package.
type (
	Finding  = inspect.Finding
	Summary  = inspect.Summary
	Progress = inspect.Progress
)

// DefaultMaxFindings is how many findings a report holds unless told otherwise.
const DefaultMaxFindings = 1000

// Options say what to verify. Dir is needed; the zero value of everything else works.
type Options struct {
	inspect.Options
	MaxFindings int // that the report holds, default DefaultMaxFindings; all are counted
	// gets every finding as it is made, on the goroutine of the job; may be nil
	OnFinding func(Finding)
}

// EnsureDefaults sets the fields that are zero.
func (o *Options) EnsureDefaults() {
	o.IndexDir = cmp.Or(o.IndexDir, filepath.Join(o.Dir, "index"))
	if o.MaxFindings <= 0 {
		o.MaxFindings = DefaultMaxFindings
	}
	if o.OnFinding == nil {
		o.OnFinding = func(Finding) {}
	}
}

// Validate reports what is wrong with the options.
func (o *Options) Validate() error {
	if o.Dir == "" {
		return errors.New("no folder to verify")
	}
	if filepath.Clean(o.Dir) == filepath.Clean(o.IndexDir) {
		return errors.New("the index does not lie in the folder of the log itself")
	}
	return nil
}

// Report is the outcome of a verification.
type Report struct {
	Dir      string    `json:"db"`
	IndexDir string    `json:"index"`
	Started  time.Time `json:"started"`
	Seconds  float64   `json:"seconds"`
	Summary  Summary   `json:"summary"`
	Problems int64     `json:"errors"`
	Notices  int64     `json:"notices"`
	Omitted  int64     `json:"omitted"` // findings that are counted, but not listed
	Findings []Finding `json:"findings"`

	Repaired []Repaired `json:"repaired,omitempty"` // before the verification, by who ran it
}

// Clean says that nothing is wrong. Notices are not problems.
func (r *Report) Clean() bool { return r.Problems == 0 }

func (r *Report) add(f Finding, most int) {
	if f.Severity == inspect.Problem {
		r.Problems++
	} else {
		r.Notices++
	}
	if len(r.Findings) < most {
		r.Findings = append(r.Findings, f)
		return
	}
	r.Omitted++
}

// Run verifies a data folder that no process has open. The error says that it could not be judged,
// or that ctx ended the work; the report then holds what was seen so far.
func Run(ctx context.Context, o Options) (*Report, error) {
	o.EnsureDefaults()
	r := &Report{Dir: o.Dir, IndexDir: o.IndexDir, Started: time.Now().UTC(), Findings: []Finding{}}
	if err := o.Validate(); err != nil {
		return r, err
	}
	var err error
	r.Summary, err = inspect.Run(ctx, o.Options, func(f Finding) {
		r.add(f, o.MaxFindings)
		o.OnFinding(f)
	})
	r.Seconds = time.Since(r.Started).Seconds()
	return r, err
}

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
