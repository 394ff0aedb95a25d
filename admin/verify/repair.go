package verify

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"strings"

	"github.com/annalsdb/annals/admin/backup"
	"github.com/annalsdb/annals/admin/redact"
	"github.com/annalsdb/annals/internal/vfs"
	eventlog "github.com/annalsdb/annals/log"
)

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
