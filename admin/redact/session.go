package redact

import (
	"context"

	"github.com/annalsdb/annals/admin/chunklock"
	eventlog "github.com/annalsdb/annals/log"
)

// Session lets a tool that makes the copies itself put them in the place of chunk
// files. It has the lock that scavenges need, until Close.
type Session interface {
	// Switch puts a file of the data folder in the place of a chunk file that is in use.
	// SwitchReason says why it was refused; a refusal changes nothing. After the switch the data
	// are erased elsewhere, and the redaction is recorded as by Redact.
	Switch(ctx context.Context, target, file string) error
	// Close releases the lock. It is idempotent.
	Close()
}

type session struct {
	s    *Service
	hold *chunklock.Hold
	user string
}

// Session begins one for a user. It fails at once with ErrLocked while another job has the lock.
func (s *Service) Session(user string) (Session, error) {
	if _, err := s.log(); err != nil {
		return nil, err
	}
	hold, err := s.opts.Lock.TryLock()
	if err != nil {
		return nil, ErrLocked
	}
	return &session{s: s, hold: hold, user: user}, nil
}

func (x *session) Switch(ctx context.Context, target, file string) error {
	s := x.s
	l, err := s.log()
	if err != nil {
		return err
	}
	if err := s.take(ctx); err != nil {
		return err
	}
	defer s.give()
	if p, err := s.pending(); err != nil {
		return err
	} else if p != nil {
		if err := s.complete(l, p, true); err != nil {
			return &Unfinished{err}
		}
	}
	chunks, err := l.Chunks.List()
	if err != nil {
		return err
	}
	defer s.opts.EndBackups()()
	if err := l.Chunks.SwitchFile(target, file); err != nil {
		return err
	}
	for _, c := range chunks {
		if c.File != target {
			continue
		}
		work, err := s.found(x.user, c.Start, c.End)
		if err != nil {
			return &Unfinished{err}
		}
		if len(work.Events) == 0 {
			return nil
		}
		if err := s.begin(work); err != nil {
			return &Unfinished{err}
		}
		if err := s.complete(l, work, true); err != nil {
			s.retry()
			return &Unfinished{err}
		}
	}
	return nil
}

// found is what a tool has redacted between two positions, that the ledger does not have.
func (s *Service) found(user string, from, to int64) (*pending, error) {
	l, err := s.log()
	if err != nil {
		return nil, err
	}
	known := map[int64]bool{}
	for _, r := range s.opts.Ledger.Between(from, to) {
		known[r.Position] = true
	}
	work := s.newPending(user, "a tool replaced the chunk file")
	err = s.scan(l, from, to, func(r *eventlog.Stored) {
		if !known[r.Position] {
			work.Events = append(work.Events, pendingEvent{Stream: string(r.Stream), Number: r.Number, Position: r.Position, EventID: r.ID})
		}
	})
	return work, err
}

func (x *session) Close() { x.hold.Unlock() }
