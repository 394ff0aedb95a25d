package admin

import (
	"context"
	"io"
	"net/http"
	"time"

	"github.com/annalsdb/annals/admin/backup"
	"github.com/annalsdb/annals/api"
	"github.com/annalsdb/annals/http/media"
	"github.com/annalsdb/annals/http/outline"
	"github.com/annalsdb/annals/http/request"
	"github.com/annalsdb/annals/internal/logkey"
)

// BackupSessions hold the files of this node's database still while they
// are copied. Errors are those of package backup and event.ErrNotReady.
type BackupSessions interface {
	// Begin opens a session.
	Begin(ctx context.Context) (backup.Session, error)
	// Sessions are those that are open, without their files.
	Sessions() []backup.Session
	// File opens a file of a session.
	File(session, name string) (backup.Content, error)
	// Stop ends a session.
	Stop(session string) error
}

// Backup sessions are of this node's files, on a leader and a follower alike.

// BeginSession holds the files of the database and tells which they are.
func (r *BackupHandlers) BeginSession(_ context.Context, x *request.Request) error {
	session, err := r.Sessions.Begin(x.R.Context())
	if err != nil {
		return err
	}
	x.Node.Logger.Info("backup session asked for", logkey.Session, session.ID, logkey.Login, api.Printable(x.Who.Login), logkey.Remote, x.R.RemoteAddr)
	switch x.Media.Form {
	case media.FormJSON:
		return x.SendFreshJSON(session)
	case media.FormText:
		b := outline.AppendText(x.Out[:0], backupSessionFields(&session)...)
		for i := range session.Files {
			b = outline.AppendText(append(b, '\n'), backupFileFields(&session.Files[i])...)
		}
		return x.SendOut(b)
	}
	o := x.NewOutline()
	o.Root("backupSessionDto", func() {
		o.Leaves(backupSessionFields(&session)...)
		o.List("files", "file", len(session.Files), func(i int) { o.Leaves(backupFileFields(&session.Files[i])...) })
	})
	return x.SendOut(o.B)
}

// ListSessions tells which sessions are open, without their files.
func (r *BackupHandlers) ListSessions(_ context.Context, x *request.Request) error {
	sessions := r.Sessions.Sessions()
	switch x.Media.Form {
	case media.FormJSON:
		list := make([]any, len(sessions))
		for i, s := range sessions {
			list[i] = struct {
				backup.Session
				Files any `json:"files,omitempty"` // hides the one that is not shown here
			}{Session: s}
		}
		return x.SendFreshJSON(map[string]any{"sessions": list})
	case media.FormText:
		b := x.Out[:0]
		for i := range sessions {
			if i > 0 {
				b = append(b, '\n')
			}
			b = outline.AppendText(b, backupSessionFields(&sessions[i])...)
		}
		return x.SendOut(b)
	}
	o := x.NewOutline()
	o.RootList("backupSessionsDto", "session", len(sessions), func(i int) { o.Leaves(backupSessionFields(&sessions[i])...) })
	return x.SendOut(o.B)
}

// EndSession lets go of a session's files.
func (r *BackupHandlers) EndSession(_ context.Context, x *request.Request) error {
	id := x.Route.ID
	if err := r.Sessions.Stop(id); err != nil {
		return err
	}
	x.Node.Logger.Info("backup session ended on demand", logkey.Session, id, logkey.Login, api.Printable(x.Who.Login), logkey.Remote, x.R.RemoteAddr)
	return x.SendFields("BackupSessionDto", backupIDField(id))
}

// SendFile sends the pinned bytes of a file, or the part of them that is asked for. When the
// session ends meanwhile, or the caller loses the right, the answer ends before its length.
func (r *BackupHandlers) SendFile(_ context.Context, x *request.Request) error {
	file, err := r.Sessions.File(x.Route.ID, x.Route.Argument)
	if err != nil {
		return err
	}
	h := x.W.Header()
	h[request.KeyContentType] = []string{"application/octet-stream"}
	h[request.KeyCacheControl] = request.CacheNever
	http.ServeContent(x.W, x.R, "", time.Time{}, &leased{io.NewSectionReader(file, 0, file.Size()), x})
	if err := file.Close(); err != nil {
		x.Node.Logger.Warn("file of a backup session could not be closed", logkey.Session, x.Route.ID, logkey.File, x.Route.Argument, logkey.Error, err)
	}
	return nil
}

// leased sends an answer as long as the caller has the right to it.
type leased struct {
	io.ReadSeeker
	x *request.Request
}

func (l *leased) Read(p []byte) (int, error) {
	if err := l.x.Check(); err != nil {
		return 0, err
	}
	return l.ReadSeeker.Read(p)
}

func backupSessionFields(s *backup.Session) []outline.Field {
	return []outline.Field{
		outline.Text("backupId", s.ID),
		outline.Int("position", s.Position),
		outline.Text("chain", s.Chain),
		outline.Text("time", s.Time.UTC().Format(time.RFC3339Nano)),
		outline.Text("clusterId", s.ClusterID),
		outline.Text("nodeId", s.NodeID),
		outline.Text("expires", s.Expires.UTC().Format(time.RFC3339Nano)),
	}
}

func backupFileFields(f *backup.File) []outline.Field {
	return []outline.Field{
		outline.Text("name", f.Name),
		outline.Int("size", f.Size),
		outline.Text("checksum", f.Checksum),
		outline.Bool("complete", f.Complete),
	}
}
