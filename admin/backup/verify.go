package backup

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"path/filepath"

	"github.com/annalsdb/annals/internal/vfs"
	"github.com/annalsdb/annals/log/inspect"
)

// Finding is one thing that Verify has to say.
type Finding = inspect.Finding

// VerifyOptions say how a backup is verified.
type VerifyOptions struct {
	FS vfs.FS // default the real one
	// Scratch is a folder that is not there: what is kept elsewhere than in a folder is restored
	// into it, and it is removed again.
	Scratch  string
	Progress func(Progress)
	Report   func(Finding)
}

// Verify compares every file of a listed backup with its checksum, then the log with
// itself and the index with the log. It returns how many errors were reported. Notices are
// not among them.
func Verify(ctx context.Context, target Target, m *Manifest, o VerifyOptions) (problems int64, err error) {
	o.FS = cmp.Or(o.FS, vfs.OS)
	if o.Progress == nil {
		o.Progress = func(Progress) {}
	}
	report := func(f Finding) {
		if f.Kind == inspect.FindMissing && f.Severity == inspect.Notice {
			return // The format file is not part of a backup, the start makes it.
		}
		if f.Severity == inspect.Problem {
			problems++
		}
		if o.Report != nil {
			o.Report(f)
		}
	}
	done, total := int64(0), m.Bytes()
	for i := range m.Files {
		f := &m.Files[i]
		r, err := target.Open(ctx, m, f)
		if err == nil {
			err = readAll(ctx, newChecked(r, f), func(n int64) {
				done += n
				o.Progress(Progress{Phase: PhaseVerify, Done: done, Total: total})
			})
			err = errors.Join(err, r.Close())
		}
		if ctx.Err() != nil {
			return problems, ctx.Err()
		}
		if err != nil {
			report(Finding{Severity: inspect.Problem, Kind: inspect.FindChecksum, File: f.Name, Offset: -1, Position: -1, Detail: err.Error()})
		}
	}
	if problems > 0 {
		return problems, nil
	}
	dir := ""
	if folder, ok := target.(*Folder); ok {
		dir = folder.path(m.ID, "")
	} else {
		if dir = o.Scratch; dir == "" {
			return problems, errors.New("verify: no folder to restore into")
		}
		defer func() { err = errors.Join(err, o.FS.RemoveAll(dir)) }()
		if _, err := Restore(ctx, target, RestoreOptions{ID: m.ID, FS: o.FS, Dir: dir}); err != nil {
			return problems, err
		}
	}
	sum, err := inspect.Run(ctx, inspect.Options{FS: o.FS, Dir: dir, IndexDir: filepath.Join(dir, indexFolder)}, report)
	if err != nil {
		return problems, fmt.Errorf("verify backup %s: %w", m.ID, err)
	}
	if sum.End != m.Position {
		report(Finding{Severity: inspect.Problem, Kind: inspect.FindCheckpoint, File: manifestFile, Offset: -1, Position: sum.End, Detail: fmt.Sprintf("the log ends at %d, the manifest says %d", sum.End, m.Position)})
	}
	return problems, nil
}
