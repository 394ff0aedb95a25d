package httpapi

import (
	"context"
	"errors"
	"net/http"
	"strconv"
	"time"

	"github.com/annalsdb/annals/admin/backup"
	"github.com/annalsdb/annals/admin/backup/manager"
	"github.com/annalsdb/annals/api"
	"github.com/annalsdb/annals/event"
	"github.com/annalsdb/annals/internal/logkey"
)

// Backups are those of this node alone. They are started and stopped here, on a
// leader and a follower alike.

// startBackup begins a run. Nothing of the request says where it goes.
func (r *backupHandlers) startBackup(_ context.Context, x *exchange) error {
	id, err := r.runs.Start()
	if err != nil {
		return err
	}
	x.node.log.Info("backup asked for", logkey.Backup, id, logkey.Login, api.Printable(x.who.Login), logkey.Remote, x.r.RemoteAddr)
	x.w.Header()[keyCacheControl] = cacheNever
	return sendFields(x, "BackupResultDto", backupIDField(id))
}

// stopBackup stops the running backup and answers when it has ended.
func (r *backupHandlers) stopBackup(ctx context.Context, x *exchange) error {
	ctx = x.reads()
	id, err := r.runs.Stop(ctx)
	if err != nil {
		return err
	}
	x.node.log.Info("backup stopped on demand", logkey.Backup, id, logkey.Login, api.Printable(x.who.Login), logkey.Remote, x.r.RemoteAddr)
	return sendID(x, "BackupResultDto", backupIDField(id))
}

// currentBackup answers with the running backup. The id is empty when none runs.
func (r *backupHandlers) currentBackup(_ context.Context, x *exchange) error {
	s, err := r.runs.Current()
	if err != nil {
		return err
	}
	fields := []field{backupIDField(s.ID)}
	if s.ID != "" {
		fields = append(fields, textField("phase", s.Phase), intField("done", s.Done), intField("total", s.Total),
			timeField("started", s.Started), secondsField(s.Seconds(time.Now())))
	}
	x.w.Header()[keyCacheControl] = cacheNever
	return sendFields(x, "BackupGetCurrentResultDto", fields...)
}

// lastBackup answers with the run that was started last, whether it has ended or not.
func (r *backupHandlers) lastBackup(_ context.Context, x *exchange) error {
	s, err := r.runs.Last()
	if err != nil {
		return err
	}
	fields := []field{backupIDField(s.ID), textField("result", string(s.Result))}
	if s.ID != "" {
		fields = append(fields, reasonField(s.Error),
			textField("kind", s.Kind), intField("position", s.Position), timeField("time", s.Time),
			intField("bytes", s.Bytes), intField("bytesCopied", s.BytesCopied), secondsField(s.Seconds(time.Now())),
			boolField("checked", s.Verified), timeField("started", s.Started), timeField("ended", s.Ended))
	}
	x.w.Header()[keyCacheControl] = cacheNever
	return sendFields(x, "BackupGetLastResultDto", fields...)
}

// listBackups answers with the backups at BackupTo, and with the errors there: only operators ask.
func (r *backupHandlers) listBackups(ctx context.Context, x *exchange) error {
	ctx = x.reads()
	list, err := r.runs.List(ctx)
	var damaged []field // damaged backups; the others are listed all the same
	_, isDamaged := errors.AsType[*backup.Damaged](err)
	switch {
	case err == nil:
	case isDamaged:
		damaged = []field{textField("damaged", api.Printable(err.Error()))}
	case errors.Is(err, manager.ErrNotConfigured), errors.Is(err, backup.ErrInMemory), errors.Is(err, event.ErrClosed),
		errors.Is(err, context.DeadlineExceeded), errors.Is(err, context.Canceled):
		return err
	default:
		return refusal(http.StatusInternalServerError, "The backups at BackupTo cannot be read: "+api.Printable(err.Error()))
	}
	if x.media.form == formText {
		b := x.out[:0]
		for i := range list {
			b = append(appendTextFields(b, backupFields(&list[i])...), '\n')
		}
		if damaged != nil {
			b = append(appendTextFields(b, damaged...), '\n')
		}
		return sendOut(x, b)
	}
	o := newOutline(x)
	o.root("backups", func() {
		o.flatList("backups", "backup", len(list), func(i int) { o.leaves(backupFields(&list[i])...) })
		o.leaves(damaged...)
	})
	return sendOut(x, o.b)
}

func backupIDField(id string) field { return textField("backupId", id) }

func secondsField(seconds float64) field {
	return field{"seconds", strconv.FormatFloat(seconds, 'f', 3, 64), true}
}

func backupFields(m *backup.Manifest) []field {
	return []field{
		textField("id", m.ID), textField("kind", m.Kind), intField("position", m.Position), timeField("time", m.Time),
		intField("files", int64(len(m.Files))), intField("bytes", m.Bytes()), intField("bytesCopied", m.BytesCopied),
		secondsField(m.Seconds), boolField("checked", m.Verified),
	}
}
