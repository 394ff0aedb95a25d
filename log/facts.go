package eventlog

import (
	"errors"
	"path/filepath"
	"slices"
	"sync/atomic"
	"time"

	"github.com/annalsdb/annals/event"
)

// Facts is what decisions rest on. Its answers are right or none: what cannot be known, since what
// it would be read from is damaged, is an event.CannotDecide.
type Facts struct {
	*Reader
	health *Health
	met    atomic.Pointer[undecided] // what was met last
}

// undecided is damage that kept a write from being decided.
type undecided struct {
	err  error
	file string // in the folder of the log
	at   time.Time
}

// settling is how long damage that a decision met counts before the file is known to be damaged.
const settling = 10 * time.Second

// Unfit says why writes cannot all be decided here, nil when they can as far as is known. Another
// node should lead.
func (f *Facts) Unfit() error {
	if err := f.index.Damage(); err != nil {
		return err
	}
	if err := f.ids.failed(); err != nil {
		return err
	}
	if _, err := f.withdrawn.all(); err != nil {
		return err
	}
	met := f.met.Load()
	if met == nil {
		return nil
	}
	damaged := slices.ContainsFunc(f.health.Damaged(), func(d Damage) bool { return d.File == met.file })
	if !damaged && time.Since(met.at) > settling { // It was replaced, or no damage.
		f.met.CompareAndSwap(met, nil)
		return nil
	}
	return met.err
}

func (f *Facts) judged(err error) error {
	c, ok := errors.AsType[*event.Corruption](err)
	if !ok {
		return err
	}
	f.met.Store(&undecided{err: err, file: filepath.Base(c.File), at: time.Now()})
	return &event.CannotDecide{Err: err}
}

// StreamInfo is the Reader's.
func (f *Facts) StreamInfo(stream string) (event.StreamInfo, error) {
	info, err := f.Reader.StreamInfo(stream)
	return info, f.judged(err)
}

// FindID is the Reader's.
func (f *Facts) FindID(stream string, id event.ID) (int64, bool, error) {
	number, ok, err := f.Reader.FindID(stream, id)
	return number, ok, f.judged(err)
}

// HasID is the Reader's.
func (f *Facts) HasID(stream string, number int64, id event.ID) (bool, error) {
	has, err := f.Reader.HasID(stream, number, id)
	return has, f.judged(err)
}

// LastRecord is the Reader's.
func (f *Facts) LastRecord(stream string) (event.Record, error) {
	rec, err := f.Reader.LastRecord(stream)
	return rec, f.judged(err)
}

// PositionOf is the Reader's.
func (f *Facts) PositionOf(stream string, number int64) (int64, error) {
	position, err := f.Reader.PositionOf(stream, number)
	return position, f.judged(err)
}
