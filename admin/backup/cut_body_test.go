package backup_test

import (
	"context"
	"io"
	"strings"
	"testing"

	"github.com/annalsdb/annals/admin/backup"
	"github.com/annalsdb/annals/internal/vfs"
)

// shortSource ends every file of the log early, in the way of a net/http body whose connection
// breaks.
type shortSource struct{ backup.Source }

func (s shortSource) Open(ctx context.Context, session, name string, offset int64) (io.ReadCloser, error) {
	r, err := s.Source.Open(ctx, session, name, offset)
	if err != nil || !strings.HasPrefix(name, "chunk") {
		return r, err
	}
	return struct {
		io.Reader
		io.Closer
	}{io.MultiReader(io.LimitReader(r, 200), broken{}), r}, nil
}

type broken struct{}

func (broken) Read([]byte) (int, error) { return 0, io.ErrUnexpectedEOF }

// TestCutBody: a file whose connection breaks is not taken for whole.
func TestCutBody(t *testing.T) {
	fsys := vfs.NewMem()
	d := open(t, fsys)
	d.write(5, true)
	d.write(3, false)
	target := backup.NewFolder(fsys, "/backups")
	if m, err := backup.Create(t.Context(), shortSource{d.sessions}, target, backup.CreateOptions{}); err == nil {
		t.Fatalf("listed %+v", m)
	}
	if all, err := target.List(t.Context()); err != nil || len(all) > 0 {
		t.Errorf("listed %+v, %v", all, err)
	}
}
