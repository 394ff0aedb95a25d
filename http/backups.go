package httpapi

import (
	"context"
	"errors"
	"net/http"
	"strconv"
	"time"

	"github.com/annalsdb/annals/admin/backup"
	"github.com/annalsdb/annals/admin/backup/manager"
	"github.com/annalsdb/annals/event"
	"github.com/annalsdb/annals/internal/logkey"
)

// Backups are those of this node alone. They are started and stopped here, on a
// leader and a follower alike.

// startBackup begins a run. Nothing of the request says where it goes.
func startBackup(x *exchange) error {
	id, err := x.s.opts.BackupRuns.Start()
	if err != nil {
		return err
	}
	x.s.log.Info("backup asked for", logkey.Backup, id, logkey.Login, printable(x.who.Login), logkey.Remote, x.r.RemoteAddr)
	x.w.Header()[keyCacheControl] = cacheNever
	return sendFields(x, "BackupResultDto", []field{backupIDField(id)})
}

// stopBackup stops the run that is under way and answers when it has ended.
func stopBackup(x *exchange) error {
	ctx := x.reads()
	defer ctx.release()
	id, err := x.s.opts.BackupRuns.Stop(ctx)
	if err != nil {
		return err
	}
	x.s.log.Info("backup stopped on demand", logkey.Backup, id, logkey.Login, printable(x.who.Login), logkey.Remote, x.r.RemoteAddr)
	return sendID(x, "BackupResultDto", backupIDField(id))
}

// currentBackup answers with the run that is under way; when there is none the id is empty.
func currentBackup(x *exchange) error {
	s, err := x.s.opts.BackupRuns.Current()
	if err != nil {
		return err
	}
	fields := []field{backupIDField(s.ID)}
	if s.ID != "" {
		fields = append(fields, backupProgressFields(&s)...)
		fields = append(fields, textField("started", "Started", s.Started.Format(tickTime)), secondsField(s.Seconds(time.Now())))
	}
	x.w.Header()[keyCacheControl] = cacheNever
	return sendFields(x, "BackupGetCurrentResultDto", fields)
}

// lastBackup answers with the run that was started last, whether it has ended or not.
func lastBackup(x *exchange) error {
	s, err := x.s.opts.BackupRuns.Last()
	if err != nil {
		return err
	}
	fields := []field{backupIDField(s.ID), textField("result", "Result", string(s.Result))}
	if s.ID != "" {
		failure, ended := nullField("error", "Error"), nullField("ended", "Ended")
		if s.Error != "" {
			failure = textField("error", "Error", s.Error)
		}
		if !s.Ended.IsZero() {
			ended = textField("ended", "Ended", s.Ended.Format(tickTime))
		}
		fields = append(fields, failure,
			textField("kind", "Kind", s.Kind), intField("position", "Position", s.Position), backupTimeField(s.Time),
			intField("bytes", "Bytes", s.Bytes), intField("bytesCopied", "BytesCopied", s.BytesCopied), secondsField(s.Seconds(time.Now())),
			boolField("checked", "Checked", s.Verified), textField("started", "Started", s.Started.Format(tickTime)), ended)
	}
	x.w.Header()[keyCacheControl] = cacheNever
	return sendFields(x, "BackupGetLastResultDto", fields)
}

// listBackups answers with what stands where the backups go, and with what is wrong
// there: only operators ask.
func listBackups(x *exchange) error {
	ctx := x.reads()
	defer ctx.release()
	list, err := x.s.opts.BackupRuns.List(ctx)
	var damaged []field // manifests: they hide no others
	_, isDamaged := errors.AsType[*backup.Damaged](err)
	switch {
	case err == nil:
	case isDamaged:
		damaged = []field{textField("damaged", "Damaged", printable(err.Error()))}
	case errors.Is(err, manager.ErrNotConfigured), errors.Is(err, backup.ErrInMemory), errors.Is(err, event.ErrClosed),
		errors.Is(err, context.DeadlineExceeded), errors.Is(err, context.Canceled):
		return err
	default:
		return &problem{status: http.StatusInternalServerError, text: "The backups at BackupTo cannot be read: " + printable(err.Error())}
	}
	switch b := x.out[:0]; x.media.form {
	case formJSON:
		b = appendObjects(append(b, "{\n  \"backups\": "...), "  ", list, backupFields)
		if damaged != nil {
			b = appendMembers(append(b, ",\n"...), "  ", damaged)
		}
		x.out = append(b, "\n}"...)
	case formTextXML, formAppXML:
		const end = "</Backups>"
		b = appendElements(append(b, xmlProlog...), "Backups", "Backup", list, backupFields)
		x.out = append(appendLeaves(b[:len(b)-len(end)], damaged), end...)
	default:
		for i := range list {
			b = append(appendTextFields(b, backupFields(&list[i])), '\n')
		}
		if damaged != nil {
			b = append(appendTextFields(b, damaged), '\n')
		}
		x.out = b
	}
	return sendOut(x, x.out)
}

func backupIDField(id string) field { return textField("backupId", "BackupId", id) }

func secondsField(seconds float64) field {
	return field{json: "seconds", xml: "Seconds", value: strconv.FormatFloat(seconds, 'f', 3, 64), bare: true}
}

// backupTimeField is the time of the newest event of a backup; null: of none.
func backupTimeField(t time.Time) field {
	if t.IsZero() {
		return nullField("time", "Time")
	}
	return textField("time", "Time", t.UTC().Format(tickTime))
}

func backupProgressFields(s *manager.Status) []field {
	return []field{textField("phase", "Phase", s.Phase), intField("done", "Done", s.Done), intField("total", "Total", s.Total)}
}

func backupFields(m *backup.Manifest) []field {
	return []field{
		textField("id", "Id", m.ID), textField("kind", "Kind", m.Kind), intField("position", "Position", m.Position), backupTimeField(m.Time),
		intField("files", "Files", int64(len(m.Files))), intField("bytes", "Bytes", m.Bytes()), intField("bytesCopied", "BytesCopied", m.BytesCopied),
		secondsField(m.Seconds), boolField("checked", "Checked", m.Verified),
	}
}
