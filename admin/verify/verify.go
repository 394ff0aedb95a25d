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
	"io"
	"path/filepath"
	"strings"
	"time"

	"github.com/annalsdb/annals/admin/backup"
	"github.com/annalsdb/annals/admin/redact"
	"github.com/annalsdb/annals/internal/vfs"
	eventlog "github.com/annalsdb/annals/log"
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

// Repaired is a chunk file that was replaced, or could not be.
type Repaired = eventlog.Repaired

// RepairOptions say what to repair, and from where. Dir and Source are needed.
type RepairOptions struct {
	FS       vfs.FS // default: the real file system
	Dir      string
	IndexDir string        // default: Dir/index
	Source   backup.Source // a running node of the cluster; asked only when something is damaged
}

// Repair replaces damaged and missing complete chunks of a folder that no process has open by those
// of a running node, and blanks the events that this node redacted.
func Repair(ctx context.Context, o RepairOptions) ([]Repaired, error) {
	o.FS = cmp.Or(o.FS, vfs.OS)
	ledger, err := redact.OpenLedger(o.FS, o.Dir)
	if err != nil {
		return nil, err
	}
	s := &repairSource{ctx: ctx, from: o.Source}
	list, err := eventlog.Repair(ctx, eventlog.RepairOptions{
		FS: o.FS, Dir: o.Dir, IndexDir: o.IndexDir, Redacted: ledger.Between,
		Source: func() (eventlog.RepairSource, error) { return s, s.begin() },
	})
	return list, errors.Join(err, s.end())
}

// RepairLine writes what became of a file on one line.
func RepairLine(r Repaired) string {
	file := r.File
	if file == "" {
		file = fmt.Sprintf("chunk %d", r.First)
		if r.Last > r.First {
			file = fmt.Sprintf("chunks %d to %d", r.First, r.Last)
		}
	}
	what := "repaired " + file + " as " + r.New
	if r.Error != "" {
		what = "not repaired " + file + " (" + r.Error + ")"
	}
	return strings.ReplaceAll(what+": "+r.Why, "\n", " ")
}

// repairSource is a backup session of another node.
type repairSource struct {
	ctx     context.Context // of the one call
	from    backup.Source
	session backup.Session
}

func (s *repairSource) begin() (err error) {
	s.session, err = s.from.Begin(s.ctx)
	return err
}

func (s *repairSource) end() error {
	if s.session.ID == "" {
		return nil
	}
	if err := s.from.End(context.WithoutCancel(s.ctx), s.session.ID); err != nil {
		return fmt.Errorf("end the session at the other node: %w", err)
	}
	return nil
}

func (s *repairSource) Cluster() string { return s.session.ClusterID }

func (s *repairSource) Chunks() (files []eventlog.PinnedFile) {
	for _, f := range s.session.Files {
		if strings.HasPrefix(f.Name, "chunk-") {
			files = append(files, eventlog.PinnedFile{Name: f.Name, Size: f.Size, Checksum: f.Checksum, Complete: f.Complete})
		}
	}
	return files
}

// Fetch copies a file. The receiver verifies its bytes.
func (s *repairSource) Fetch(ctx context.Context, name string, into io.WriterAt) (err error) {
	body, err := s.from.Open(ctx, s.session.ID, name, 0)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, body.Close()) }()
	var size int64
	for _, f := range s.session.Files {
		if f.Name == name {
			size = f.Size
		}
	}
	if n, err := io.Copy(io.NewOffsetWriter(into, 0), io.LimitReader(body, size)); err != nil || n < size {
		return errors.Join(fmt.Errorf("%d of %d bytes came", n, size), err)
	}
	return nil
}
