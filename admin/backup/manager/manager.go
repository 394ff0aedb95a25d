// Package manager takes the backups that a node makes of itself: on demand and by the clock, one at
// a time. It does not know how a backup is made, or which kind of place it goes to. A small file of
// the data folder says what runs and how the last run ended. It is durable before a run begins. A
// process that finds a run in it that another process did not end begins the run again, and records
// that the earlier one failed.
package manager

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"path"
	"sync"
	"time"

	"github.com/hashicorp/go-hclog"

	"github.com/annalsdb/annals/admin/backup"
	"github.com/annalsdb/annals/admin/cron"
	"github.com/annalsdb/annals/admin/record"
	"github.com/annalsdb/annals/event"
	"github.com/annalsdb/annals/internal/logkey"
	"github.com/annalsdb/annals/internal/vfs"
	"github.com/annalsdb/annals/stats"
)

// Reasons to refuse a request.
var (
	ErrNotConfigured = errors.New("backup is not configured: BackupTo")
	ErrRunning       = errors.New("a backup is running already")
	ErrNoSuchRun     = errors.New("no backup runs")
)

// Phases of a run besides those of backup.Create.
const (
	PhasePrune = "Pruning"
	PhaseWait  = "Waiting" // to begin again, as the node could not continue
)

// Result is how a run ended.
type Result string

// Results.
const (
	Unknown    Result = "Unknown" // there was no run
	InProgress Result = "InProgress"
	Success    Result = "Success"
	Stopped    Result = "Stopped"
	Failed     Result = "Failed"
)

// Status is what is known of a run. The names are those of the file in the data folder.
type Status struct {
	ID      string    `json:"id"` // empty: there was no run
	Result  Result    `json:"result"`
	Error   string    `json:"error,omitempty"`
	Started time.Time `json:"started"`
	Ended   time.Time `json:"ended"`
	// Begun counts the processes that have begun this run, or the one that it repeats.
	Begun int `json:"begun"`

	backup.Progress `json:"-"`

	// Facts of the backup that the run made.
	Kind        string    `json:"kind,omitempty"`
	Position    int64     `json:"position"`
	Time        time.Time `json:"time"`  // of the newest record
	Bytes       int64     `json:"bytes"` // of all files
	BytesCopied int64     `json:"bytesCopied"`
	Verified    bool      `json:"checked"`
}

// Seconds is how long the run took, or has taken so far.
func (s *Status) Seconds(now time.Time) float64 {
	if !s.Ended.IsZero() {
		now = s.Ended
	}
	return max(0, now.Sub(s.Started).Seconds())
}

// Create makes the backup of this node's database with an id. Without an error the backup is listed
// and durable; after an error it is not listed. It ends soon after ctx does.
type Create func(ctx context.Context, id string, progress func(backup.Progress)) (backup.Manifest, error)

// Options of a Manager. The zero value is a manager that does nothing: backups are not configured.
type Options struct {
	To       string        // where backups go, as text for people
	Target   backup.Target // the place that To names; nil: backups are not configured
	Create   Create        // makes them there
	Schedule cron.Schedule // never due: only on demand
	Keep     int           // backups that stay; 0: all
	InMemory bool          // there is nothing to be backed up

	FS  vfs.FS // of Dir
	Dir string // the data folder

	// Records is where the history is written; nil: nowhere. The defaults are those of package
	// record.
	Records      record.Store
	MaxAge       time.Duration // of the history
	WriteTimeout time.Duration
	Endpoint     func() string // by which the history knows this node

	Now    func() time.Time
	Logger hclog.Logger
	Stats  *stats.Registry
}

// EnsureDefaults sets the fields that are zero.
func (o *Options) EnsureDefaults() {
	o.Logger = cmp.Or(o.Logger, hclog.NewNullLogger())
	if o.Now == nil {
		o.Now = time.Now
	}
}

// Manager takes the backups of one node.
type Manager struct {
	opts    Options
	metrics *metrics
	history *history  // nil: none is written
	file    string    // of the state
	since   time.Time // of this process

	running context.Context // of runs
	cancel  context.CancelFunc
	owned   sync.WaitGroup // runs

	mu      sync.Mutex // guards the fields below; held across no input or output
	closed  bool
	current *run
	last    Status
	success time.Time // when the last successful run ended, zero: never
	left    *Status   // the run that another process began and did not end, until it is begun again
}

// New returns a manager that does nothing by itself before Run. It must be closed.
func New(o Options) (*Manager, error) {
	o.EnsureDefaults()
	m := &Manager{opts: o, since: o.Now(), last: Status{Result: Unknown}}
	m.running, m.cancel = context.WithCancel(context.Background())
	if !m.configured() {
		m.metrics = newMetrics(o.Stats, false, m.last, m.success)
		return m, nil
	}
	m.file = path.Join(o.Dir, stateName)
	if err := m.readState(); err != nil {
		m.cancel()
		return nil, err
	}
	m.metrics = newMetrics(o.Stats, true, m.last, m.success)
	if o.Records != nil {
		m.history = newHistory(&m.opts)
	}
	if m.left != nil && m.left.Begun >= maxBegun {
		m.giveUp()
	}
	return m, nil
}

// giveUp leaves a run alone that several processes have not survived.
func (m *Manager) giveUp() {
	m.opts.Logger.Error("backup is not begun again, as the node has ended during it too often", logkey.Backup, m.left.ID, "times", m.left.Begun)
	m.recordEnd(m.left)
	if err := m.writeState(nil, m.left); err != nil {
		m.opts.Logger.Warn("the result of a backup could not be written down", logkey.Error, err)
	}
	m.left = nil
}

func (m *Manager) configured() bool { return m.opts.Target != nil && !m.opts.InMemory }

// check says why there can be no backups.
func (m *Manager) check() error {
	switch {
	case m.opts.InMemory:
		return backup.ErrInMemory
	case m.opts.Target == nil:
		return ErrNotConfigured
	}
	return nil
}

// Start begins a run and returns its id before any work is done. It fails with
// backup.ErrInMemory, ErrNotConfigured, ErrRunning and event.ErrClosed.
func (m *Manager) Start() (id string, err error) {
	if err := m.check(); err != nil {
		return "", err
	}
	return m.begin(Status{Begun: 1})
}

// Stop stops the current run and returns its id when it has released everything. It fails with
// ErrNoSuchRun, and with the context's error when that ends first: the run stops nevertheless.
func (m *Manager) Stop(ctx context.Context) (id string, err error) {
	if err := m.check(); err != nil {
		return "", err
	}
	m.mu.Lock()
	r := m.current
	m.mu.Unlock()
	if r == nil {
		return "", ErrNoSuchRun
	}
	r.stop(errStopped)
	select {
	case <-r.done:
		return r.id, nil
	case <-ctx.Done():
		return "", ctx.Err()
	}
}

// Current is the status of the current run; its ID is empty when there is none.
func (m *Manager) Current() (Status, error) {
	if err := m.check(); err != nil {
		return Status{}, err
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.current == nil {
		return Status{Result: Unknown}, nil
	}
	return m.current.status, nil
}

// Last is what the last run was or is, also that of an earlier process.
func (m *Manager) Last() (Status, error) {
	if err := m.check(); err != nil {
		return Status{}, err
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.current != nil {
		return m.current.status, nil
	}
	return m.last, nil
}

// Outlook is what the last run was, when the last successful one ended (zero: never is
// known of), and when one was or is due after that (zero: there is no schedule). It is not
// ok when backups are not configured.
func (m *Manager) Outlook() (last Status, success, due time.Time, ok bool) {
	if m.check() != nil {
		return Status{}, success, due, false
	}
	m.mu.Lock()
	last, success = m.last, m.success
	m.mu.Unlock()
	after := success
	if after.IsZero() {
		after = m.since
	}
	return last, success, m.opts.Schedule.Next(after), true
}

// List returns the backups that stand where they go, the oldest first.
func (m *Manager) List(ctx context.Context) ([]backup.Manifest, error) {
	if err := m.check(); err != nil {
		return nil, err
	}
	return m.opts.Target.List(ctx)
}

// Cancel makes the current run end soon, and lets no other begin. It does not wait. The end of the
// run is not recorded: the next process begins it again.
func (m *Manager) Cancel() {
	m.mu.Lock()
	m.closed = true
	r := m.current
	m.mu.Unlock()
	if r != nil {
		r.stop(event.ErrClosed)
	}
}

// closePatience is how long Close waits for a run: a little longer than what a run has written may
// take to be removed.
const closePatience = 40 * time.Second

// Close does what Cancel does and waits, but not for ever for a target that hangs. Records that
// wait are written as far as the cluster takes writes.
func (m *Manager) Close() {
	m.Cancel()
	m.mu.Lock()
	r := m.current
	m.mu.Unlock()
	if r != nil {
		timer := time.NewTimer(closePatience)
		defer timer.Stop()
		select {
		case <-r.done:
			m.owned.Wait()
		case <-timer.C:
			m.opts.Logger.Warn("the backup's target does not answer, the node ends without waiting for it", logkey.To, m.opts.To, logkey.Backup, r.id)
		}
	}
	m.cancel()
	if m.history != nil {
		m.history.Close()
	}
	if t, ok := m.opts.Target.(interface{ Close() }); ok { // It keeps connections.
		t.Close()
	}
}

// stateName is the file of the data folder that outlives the process.
const stateName = "backups.json"

// state is its content.
type state struct {
	Running *Status `json:"running"`
	Last    *Status `json:"last"`
	// Success is when the last successful run ended.
	Success time.Time `json:"lastSuccess"`
}

// readState reads what an earlier process has left. A file that cannot be
// understood costs the memory of the last run, no more: the node starts.
func (m *Manager) readState() error {
	data, err := vfs.ReadFile(m.opts.FS, m.file)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return fmt.Errorf("read the state of backups: %w", err)
	}
	var s state
	if err := json.Unmarshal(data, &s); err != nil {
		m.opts.Logger.Warn("the result of the last backup is not known: its file is damaged", logkey.File, m.file, logkey.Error, err)
		return nil
	}
	m.success = s.Success
	if s.Last != nil {
		m.last = *s.Last
	}
	if s.Running != nil {
		left := *s.Running
		left.Result, left.Error, left.Ended = Failed, errorInterrupted, m.opts.Now().UTC()
		m.left, m.last = &left, left
	}
	return nil
}

// writeState writes down what runs, or how the last run ended. Only the current run calls it, or
// New.
func (m *Manager) writeState(running, ended *Status) error {
	s := state{Running: running, Last: ended}
	m.mu.Lock()
	switch {
	case ended != nil && ended.Result == Success:
		m.success = ended.Ended
	case ended == nil && m.last.ID != "":
		last := m.last
		s.Last = &last
	}
	s.Success = m.success
	m.mu.Unlock()
	data, err := json.MarshalIndent(s, "", "  ")
	if err != nil {
		return fmt.Errorf("write the state of backups: %w", err)
	}
	if err := vfs.WriteFileAtomic(m.opts.FS, m.file, append(data, '\n')); err != nil {
		return fmt.Errorf("write the state of backups: %w", err)
	}
	return nil
}
