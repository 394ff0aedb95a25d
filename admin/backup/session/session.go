// Package session keeps the backup sessions of one node: each holds the files
// that make up the database at one moment until their copy is done.
package session

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"slices"
	"sync"
	"time"

	"github.com/google/uuid"
	"github.com/hashicorp/go-hclog"

	"github.com/annalsdb/annals/admin/backup"
	"github.com/annalsdb/annals/event"
	"github.com/annalsdb/annals/internal/logkey"
	eventlog "github.com/annalsdb/annals/log"
	"github.com/annalsdb/annals/stats"
)

const (
	// Limit is how many sessions may be open.
	Limit = 4
	// Idle is how long a session lives when no client reads from it.
	Idle = 10 * time.Minute
	// patience is how long a session waits for what other nodes have.
	patience = 3 * time.Second
	// remembered is for how many sessions that the node ended it keeps the reason.
	remembered = 64
)

// Options of a Service. Pin and NodeID are required.
type Options struct {
	// Pin holds the database still. It fails with event.ErrNotReady while the database is not open.
	Pin func() (*eventlog.Pin, error)
	// Await returns when this node has every write that any other node acknowledged before; nil: it
	// always has.
	Await    func(context.Context) error
	NodeID   func() string // for the description of sessions
	InMemory bool          // there are no sessions

	Logger hclog.Logger
	Stats  *stats.Registry
}

// Service has the sessions of this node. It is the backup.Source of its files.
type Service struct {
	opts Options

	mu        sync.Mutex // guards the fields below; held across no input or output
	sessions  map[string]*session
	beginning int     // sessions that are being begun
	ended     []ended // that the node ended, the oldest first
	suspended int     // how many callers keep sessions from beginning
	closed    bool
	begins    sync.WaitGroup // Begin in flight
}

var _ backup.Source = (*Service)(nil)

// session is an open session.
type session struct {
	facts   backup.Session // but for Expires
	pin     *eventlog.Pin
	read    time.Time   // when a client last read, or it began; guarded by Service.mu
	expires *time.Timer // guarded by Service.mu
}

// ended is a session that the node ended.
type ended struct {
	id  string
	why error
}

// New returns a service without sessions.
func New(o Options) *Service {
	o.Logger = cmp.Or(o.Logger, hclog.NewNullLogger())
	s := &Service{opts: o, sessions: map[string]*session{}}
	s.watch(o.Stats)
	return s
}

// Begin opens a session. It fails with backup.ErrInMemory, backup.ErrTooManySessions,
// backup.ErrSuspended, event.ErrNotReady and event.ErrClosed.
func (s *Service) Begin(ctx context.Context) (backup.Session, error) {
	if s.opts.InMemory {
		return backup.Session{}, backup.ErrInMemory
	}
	if err := s.reserve(ctx); err != nil {
		return backup.Session{}, err
	}
	defer s.begins.Done()
	s.await(ctx)
	pin, err := s.opts.Pin()
	one := &session{pin: pin}
	if err == nil {
		one.facts = describe(pin, s.opts.NodeID())
	}
	if err == nil {
		err = ctx.Err() // No client would end it.
	}
	if err = s.add(one, err); err != nil {
		if pin != nil {
			err = errors.Join(err, pin.Close())
		}
		return backup.Session{}, fmt.Errorf("begin backup session: %w", err)
	}
	s.opts.Logger.Info("backup session begun", logkey.Session, one.facts.ID, logkey.Position, one.facts.Position, logkey.Files, len(one.facts.Files))
	f := one.facts
	f.Expires = time.Now().Add(Idle)
	return f, nil
}

// reserve takes a place for a session that is to be pinned.
func (s *Service) reserve(ctx context.Context) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	switch {
	case ctx.Err() != nil:
		return ctx.Err()
	case s.closed:
		return event.ErrClosed
	case s.suspended > 0:
		return backup.ErrSuspended
	case len(s.sessions)+s.beginning >= Limit:
		return backup.ErrTooManySessions
	}
	s.beginning++
	s.begins.Add(1)
	return nil
}

// await makes sure that the session has every write that any node has acknowledged. A node that
// cannot know this, or lags far, can still be backed up: the session states its position.
func (s *Service) await(ctx context.Context) {
	if s.opts.Await == nil {
		return
	}
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	if err := s.opts.Await(ctx); err != nil {
		s.opts.Logger.Warn("the backup may lack events that other nodes have acknowledged", logkey.Error, err)
	}
}

// add makes a session one of ours if it could be pinned, and sessions were not ended meanwhile.
func (s *Service) add(one *session, err error) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.beginning--
	switch {
	case err != nil:
		return err
	case s.closed:
		return event.ErrClosed
	case s.suspended > 0:
		return backup.ErrSuspended
	}
	id := one.facts.ID
	s.sessions[id] = one
	one.read = time.Now()
	one.expires = time.AfterFunc(Idle, func() { s.expire(id) })
	return nil
}

func describe(pin *eventlog.Pin, node string) backup.Session {
	files := pin.Files()
	f := backup.Session{
		ID: uuid.NewString(), Position: pin.Tail.End, Chain: pin.Tail.Chain.String(), ClusterID: pin.Cluster.String(), NodeID: node,
		Files: make([]backup.File, len(files)),
	}
	if pin.Tail.Index > 0 {
		f.Time = time.Unix(0, pin.Tail.Time).UTC()
	}
	for i, one := range files {
		f.Files[i] = backup.File{Name: one.Name, Size: one.Size, Checksum: one.Checksum, Complete: one.Complete}
	}
	return f
}

// find returns an open session. s.mu must be held.
func (s *Service) find(id string) (*session, error) {
	if one := s.sessions[id]; one != nil {
		return one, nil
	}
	for _, one := range s.ended {
		if one.id == id {
			return nil, one.why
		}
	}
	return nil, backup.ErrSessionGone
}

// Sessions are those that are open, without their files, oldest expiry first.
func (s *Service) Sessions() []backup.Session {
	s.mu.Lock()
	defer s.mu.Unlock()
	list := make([]backup.Session, 0, len(s.sessions))
	for _, one := range s.sessions {
		f := one.facts
		f.Files, f.Expires = nil, one.read.Add(Idle)
		list = append(list, f)
	}
	slices.SortFunc(list, func(a, b backup.Session) int { return a.Expires.Compare(b.Expires) })
	return list
}

// File opens a file of a session. It fails with backup.ErrNoSuchFile and backup.ErrSessionGone.
func (s *Service) File(id, name string) (backup.Content, error) {
	s.mu.Lock()
	one, err := s.find(id)
	s.mu.Unlock()
	if err != nil {
		return nil, err
	}
	s.touch(one)
	r, err := one.pin.Open(name)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return nil, backup.ErrNoSuchFile
	case errors.Is(err, event.ErrClosed):
		return nil, s.why(id)
	case err != nil:
		return nil, err
	}
	return &file{service: s, session: one, r: r}, nil
}

// Open reads a file of a session from an offset on.
func (s *Service) Open(_ context.Context, id, name string, offset int64) (io.ReadCloser, error) {
	f, err := s.File(id, name)
	if err != nil {
		return nil, err
	}
	return struct {
		io.Reader
		io.Closer
	}{io.NewSectionReader(f, offset, f.Size()-offset), f}, nil
}

// End ends a session and closes its files.
func (s *Service) End(_ context.Context, id string) error {
	if err := s.Stop(id); !errors.Is(err, backup.ErrSessionGone) {
		return err
	}
	return nil
}

// Stop is End that fails with backup.ErrSessionGone when there is no such session.
func (s *Service) Stop(id string) error {
	s.mu.Lock()
	one, err := s.find(id)
	if err == nil {
		s.remove(one, nil)
	}
	s.mu.Unlock()
	if err != nil {
		return err
	}
	s.opts.Logger.Info("backup session ended", logkey.Session, id)
	return one.pin.Close()
}

// remove takes a session out of the list; reason is nil if its owner wanted that. s.mu must be
// held.
func (s *Service) remove(one *session, reason error) {
	delete(s.sessions, one.facts.ID)
	one.expires.Stop()
	if reason == nil {
		return
	}
	s.ended = append(s.ended, ended{one.facts.ID, reason})
	s.ended = s.ended[max(0, len(s.ended)-remembered):]
}

// removeAll takes all sessions out of the list. s.mu must be held.
func (s *Service) removeAll(reason error) (all []*session) {
	for _, one := range s.sessions {
		s.remove(one, reason)
		all = append(all, one)
	}
	return all
}

// why is the error of a session that is gone.
func (s *Service) why(id string) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if _, err := s.find(id); err != nil {
		return err
	}
	return event.ErrClosed
}

// touch notes that a client reads from a session.
func (s *Service) touch(one *session) {
	s.mu.Lock()
	one.read = time.Now()
	s.mu.Unlock()
}

// expire ends a session that no client reads from, or looks again later.
func (s *Service) expire(id string) {
	s.mu.Lock()
	one := s.sessions[id]
	if one == nil {
		s.mu.Unlock()
		return
	}
	if left := time.Until(one.read.Add(Idle)); left > 0 {
		one.expires.Reset(left)
		s.mu.Unlock()
		return
	}
	s.remove(one, nil)
	s.begins.Add(1) // Close waits.
	s.mu.Unlock()
	defer s.begins.Done()
	s.opts.Logger.Warn("backup session ended, as no client read from it", logkey.Session, id, "for", Idle)
	s.letGo(one)
}

func (s *Service) letGo(one *session) {
	if err := one.pin.Close(); err != nil {
		s.opts.Logger.Warn("files of a backup session could not be closed", logkey.Session, one.facts.ID, logkey.Error, err)
	}
}

// EndAll ends all sessions for a reason, which their owners get with their next request, and lets
// go of their files before it returns. Later sessions may begin. It returns how many there were.
func (s *Service) EndAll(reason string) int {
	ended, resume := s.Suspend(reason)
	resume()
	return ended
}

// Suspend is EndAll that lets no session begin until resume is called.
func (s *Service) Suspend(reason string) (ended int, resume func()) {
	s.mu.Lock()
	s.suspended++
	all := s.removeAll(&backup.Ended{Reason: reason})
	s.mu.Unlock()
	// One that is being pinned at the moment finds that it must not be.
	s.begins.Wait()
	for _, one := range all {
		s.opts.Logger.Warn("backup session ended by the node", logkey.Session, one.facts.ID, logkey.Reason, reason)
		s.letGo(one)
	}
	return len(all), sync.OnceFunc(func() {
		s.mu.Lock()
		defer s.mu.Unlock()
		s.suspended--
	})
}

// Close ends all sessions; none begins any more. It must come before the log is closed.
func (s *Service) Close() {
	s.mu.Lock()
	s.closed = true
	all := s.removeAll(nil)
	s.mu.Unlock()
	s.begins.Wait()
	for _, one := range all {
		s.letGo(one)
	}
}

// file is an open file of a session.
type file struct {
	service *Service
	session *session
	r       *eventlog.PinnedReader
}

// Size is the length of the file.
func (f *file) Size() int64 { return f.r.Size() }

// ReadAt reads the bytes of the file as they were when the session began.
func (f *file) ReadAt(b []byte, offset int64) (int, error) {
	n, err := f.r.ReadAt(b, offset)
	if errors.Is(err, event.ErrClosed) {
		return n, f.service.why(f.session.facts.ID)
	}
	f.service.touch(f.session)
	return n, err
}

// Close releases the file.
func (f *file) Close() error { return f.r.Close() }
