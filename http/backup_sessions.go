package httpapi

import (
	"context"
	"io"
	"net/http"
	"time"

	"github.com/annalsdb/annals/admin/backup"
	"github.com/annalsdb/annals/api"
	"github.com/annalsdb/annals/internal/logkey"
)

// Backup sessions are of this node's files, on a leader and a follower alike.

// beginBackupSession holds the files of the database and tells which they are.
func (r *backupHandlers) beginBackupSession(_ context.Context, x *exchange) error {
	session, err := r.sessions.Begin(x.r.Context())
	if err != nil {
		return err
	}
	x.node.log.Info("backup session asked for", logkey.Session, session.ID, logkey.Login, api.Printable(x.who.Login), logkey.Remote, x.r.RemoteAddr)
	switch x.media.form {
	case formJSON:
		return sendFreshJSON(x, session)
	case formText:
		b := appendTextFields(x.out[:0], backupSessionFields(&session)...)
		for i := range session.Files {
			b = appendTextFields(append(b, '\n'), backupFileFields(&session.Files[i])...)
		}
		return sendOut(x, b)
	}
	o := newOutline(x)
	o.root("backupSessionDto", func() {
		o.leaves(backupSessionFields(&session)...)
		o.list("files", "file", len(session.Files), func(i int) { o.leaves(backupFileFields(&session.Files[i])...) })
	})
	return sendOut(x, o.b)
}

// listBackupSessions tells which sessions are open, without their files.
func (r *backupHandlers) listBackupSessions(_ context.Context, x *exchange) error {
	sessions := r.sessions.Sessions()
	switch x.media.form {
	case formJSON:
		list := make([]any, len(sessions))
		for i, s := range sessions {
			list[i] = struct {
				backup.Session
				Files any `json:"files,omitempty"` // hides the one that is not shown here
			}{Session: s}
		}
		return sendFreshJSON(x, map[string]any{"sessions": list})
	case formText:
		b := x.out[:0]
		for i := range sessions {
			if i > 0 {
				b = append(b, '\n')
			}
			b = appendTextFields(b, backupSessionFields(&sessions[i])...)
		}
		return sendOut(x, b)
	}
	o := newOutline(x)
	o.rootList("backupSessionsDto", "session", len(sessions), func(i int) { o.leaves(backupSessionFields(&sessions[i])...) })
	return sendOut(x, o.b)
}

// endBackupSession lets go of a session's files.
func (r *backupHandlers) endBackupSession(_ context.Context, x *exchange) error {
	id := x.route.id
	if err := r.sessions.Stop(id); err != nil {
		return err
	}
	x.node.log.Info("backup session ended on demand", logkey.Session, id, logkey.Login, api.Printable(x.who.Login), logkey.Remote, x.r.RemoteAddr)
	return sendFields(x, "BackupSessionDto", backupIDField(id))
}

// sendBackupFile sends the pinned bytes of a file, or the part of them that is asked for. When the
// session ends meanwhile, or the caller loses the right, the answer ends before its length.
func (r *backupHandlers) sendBackupFile(_ context.Context, x *exchange) error {
	file, err := r.sessions.File(x.route.id, x.route.argument)
	if err != nil {
		return err
	}
	h := x.w.Header()
	h[keyContentType] = []string{"application/octet-stream"}
	h[keyCacheControl] = cacheNever
	http.ServeContent(x.w, x.r, "", time.Time{}, &leased{io.NewSectionReader(file, 0, file.Size()), x})
	if err := file.Close(); err != nil {
		x.node.log.Warn("file of a backup session could not be closed", logkey.Session, x.route.id, logkey.File, x.route.argument, logkey.Error, err)
	}
	return nil
}

// leased sends an answer as long as the caller has the right to it.
type leased struct {
	io.ReadSeeker
	x *exchange
}

func (l *leased) Read(p []byte) (int, error) {
	if err := check(l.x); err != nil {
		return 0, err
	}
	return l.ReadSeeker.Read(p)
}

func backupSessionFields(s *backup.Session) []field {
	return []field{
		textField("backupId", s.ID),
		intField("position", s.Position),
		textField("chain", s.Chain),
		textField("time", s.Time.UTC().Format(time.RFC3339Nano)),
		textField("clusterId", s.ClusterID),
		textField("nodeId", s.NodeID),
		textField("expires", s.Expires.UTC().Format(time.RFC3339Nano)),
	}
}

func backupFileFields(f *backup.File) []field {
	return []field{
		textField("name", f.Name),
		intField("size", f.Size),
		textField("checksum", f.Checksum),
		boolField("complete", f.Complete),
	}
}
