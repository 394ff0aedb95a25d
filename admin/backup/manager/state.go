package manager

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"time"

	"github.com/annalsdb/annals/internal/logkey"
	"github.com/annalsdb/annals/internal/vfs"
)

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
