package admin

import (
	"context"
	"errors"
	"io"
	"net/http"
	"time"

	"github.com/annalsdb/annals/admin/backup"
	"github.com/annalsdb/annals/admin/backup/manager"
	"github.com/annalsdb/annals/api"
	"github.com/annalsdb/annals/event"
	"github.com/annalsdb/annals/http/caching"
	"github.com/annalsdb/annals/http/media"
	"github.com/annalsdb/annals/http/outline"
	"github.com/annalsdb/annals/http/problem"
	"github.com/annalsdb/annals/http/request"
	"github.com/annalsdb/annals/internal/logkey"
)

// BackupHandlers answer requests about backups of this node, made by itself or by others.
type BackupHandlers struct {
	Runs     Backups
	Sessions BackupSessions
}

// Backups makes this node back itself up, one run at a time. All of it fails with
// backup.ErrInMemory and manager.ErrNotConfigured.
type Backups interface {
	// Start begins a run and returns its id before any work is done. It fails with
	// manager.ErrRunning and event.ErrClosed too.
	Start() (id string, err error)
	// Stop stops the running backup. It returns the id of the run when that has released
	// everything. It fails with manager.ErrNoSuchRun, and with the context's error when that ends
	// first: the run stops nevertheless.
	Stop(ctx context.Context) (id string, err error)
	// Current describes the running backup. Its ID is empty when none runs.
	Current() (manager.Status, error)
	// Last is what the last run was or is; before there was any its ID is empty.
	Last() (manager.Status, error)
	// List returns the backups that stand where they go, the oldest first.
	List(ctx context.Context) ([]backup.Manifest, error)
}

// Backups are those of this node alone. They are started and stopped here, on a
// leader and a follower alike.

// Start begins a run. Nothing of the request says where it goes.
func (r *BackupHandlers) Start(_ context.Context, x *request.Request) error {
	id, err := r.Runs.Start()
	if err != nil {
		return err
	}
	x.Caller.Told("backup asked for", logkey.Backup, id)
	x.W.Header()[caching.KeyControl] = caching.Never
	return x.SendFields("BackupResultDto", backupIDField(id))
}

// Stop stops the running backup and answers when it has ended.
func (r *BackupHandlers) Stop(_ context.Context, x *request.Request) error {
	id, err := r.Runs.Stop(x.Reads())
	if err != nil {
		return err
	}
	x.Caller.Told("backup stopped on demand", logkey.Backup, id)
	return sendID(x, "BackupResultDto", backupIDField(id))
}

// Current answers with the running backup. The id is empty when none runs.
func (r *BackupHandlers) Current(_ context.Context, x *request.Request) error {
	s, err := r.Runs.Current()
	if err != nil {
		return err
	}
	fields := []outline.Field{backupIDField(s.ID)}
	if s.ID != "" {
		fields = append(fields, outline.Text("phase", s.Phase), outline.Int("done", s.Done), outline.Int("total", s.Total),
			outline.Time("started", s.Started), outline.Seconds(s.Seconds(time.Now())))
	}
	x.W.Header()[caching.KeyControl] = caching.Never
	return x.SendFields("BackupGetCurrentResultDto", fields...)
}

// Last answers with the run that was started last, whether it has ended or not.
func (r *BackupHandlers) Last(_ context.Context, x *request.Request) error {
	s, err := r.Runs.Last()
	if err != nil {
		return err
	}
	fields := []outline.Field{backupIDField(s.ID), outline.Text("result", string(s.Result))}
	if s.ID != "" {
		fields = append(fields, outline.Reason(s.Error),
			outline.Text("kind", s.Kind), outline.Int("position", s.Position), outline.Time("time", s.Time),
			outline.Int("bytes", s.Bytes), outline.Int("bytesCopied", s.BytesCopied), outline.Seconds(s.Seconds(time.Now())),
			outline.Bool("checked", s.Verified), outline.Time("started", s.Started), outline.Time("ended", s.Ended))
	}
	x.W.Header()[caching.KeyControl] = caching.Never
	return x.SendFields("BackupGetLastResultDto", fields...)
}

// List answers with the backups at BackupTo, and with the errors there: only operators ask.
func (r *BackupHandlers) List(_ context.Context, x *request.Request) error {
	list, err := r.Runs.List(x.Reads())
	var damaged []outline.Field // damaged backups; the others are listed all the same
	_, isDamaged := errors.AsType[*backup.Damaged](err)
	switch {
	case err == nil:
	case isDamaged:
		damaged = []outline.Field{outline.Text("damaged", api.Printable(err.Error()))}
	case errors.Is(err, manager.ErrNotConfigured), errors.Is(err, backup.ErrInMemory), errors.Is(err, event.ErrClosed),
		errors.Is(err, context.DeadlineExceeded), errors.Is(err, context.Canceled):
		return err
	default:
		return problem.New(http.StatusInternalServerError, "The backups at BackupTo cannot be read: "+api.Printable(err.Error()))
	}
	if x.Media.Form == media.FormText {
		b := x.Out[:0]
		for i := range list {
			b = append(outline.AppendText(b, backupFields(&list[i])...), '\n')
		}
		if damaged != nil {
			b = append(outline.AppendText(b, damaged...), '\n')
		}
		return x.SendOut(b)
	}
	o := x.NewOutline()
	o.Root("backups", func() {
		o.FlatList("backups", "backup", len(list), func(i int) { o.Leaves(backupFields(&list[i])...) })
		o.Leaves(damaged...)
	})
	return x.SendOut(o.B)
}

func backupIDField(id string) outline.Field { return outline.Text("backupId", id) }

func backupFields(m *backup.Manifest) []outline.Field {
	return []outline.Field{
		outline.Text("id", m.ID), outline.Text("kind", m.Kind), outline.Int("position", m.Position), outline.Time("time", m.Time),
		outline.Int("files", int64(len(m.Files))), outline.Int("bytes", m.Bytes()), outline.Int("bytesCopied", m.BytesCopied),
		outline.Seconds(m.Seconds), outline.Bool("checked", m.Verified),
	}
}

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
	x.Caller.Told("backup session asked for", logkey.Session, session.ID)
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
	x.Caller.Told("backup session ended on demand", logkey.Session, id)
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
	h[caching.KeyControl] = caching.Never
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
	if err := l.x.Caller.Check(); err != nil {
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
