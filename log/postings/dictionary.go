package postings

import (
	"errors"
	"fmt"
	"io/fs"
	"path/filepath"
	"strings"
	"sync"

	"github.com/hashicorp/go-hclog"

	"github.com/annalsdb/annals/event"
	"github.com/annalsdb/annals/event/label"
	"github.com/annalsdb/annals/internal/logkey"
	"github.com/annalsdb/annals/internal/vfs"
	"github.com/annalsdb/annals/log/chunkfile"
)

const (
	// maxFresh and maxFreshBytes bound what waits in memory for the file. It is there twice while
	// the file is written: with maps and copies for pages about 16 MiB.
	maxFresh      = 32 << 10
	maxFreshBytes = 3 << 20
	// kinds of labels whose names are kept: label.Category and label.Type.
	kinds = 2
)

// Posting says that the event at a position of the log has a label.
type Posting struct {
	label.Label
	Position int64
}

// DictionaryOptions say where a dictionary is kept.
type DictionaryOptions struct {
	FS     vfs.FS // nil: in memory alone
	Dir    string // exists
	Logger hclog.Logger
	// Belongs reports whether a frame of the log ends at a position with a chain. Needed with FS.
	Belongs  func(position int64, chain event.Chain) (bool, error)
	MaxFresh int // names in memory; 0: 32,768
}

// Dictionary has the names of all categories and types up to a position of the log, with the number
// of events of each. One goroutine adds, one at a time saves and removes, any number reads.
type Dictionary struct {
	opt DictionaryOptions

	saving sync.Mutex   // held while the file is replaced; taken before the others
	pages  sync.RWMutex // readers hold it while they use the bytes of a file; taken before mu

	mu     sync.RWMutex // guards what follows; held for moments
	mark   mark
	file   *namesFile
	fresh  [kinds]counts // what the file does not have
	frozen [kinds]counts // what the next file will have
	names  int           // in fresh
	bytes  int
}

// counts are differences, by name.
type counts map[string]*int64

// OpenDictionary opens the dictionary in a folder. One that is damaged, of another log, or left by
// a scavenge that did not end is removed: then it is empty, and its position is 0. What the log has
// from its position on must be added.
func OpenDictionary(o DictionaryOptions) (*Dictionary, error) {
	if o.Logger == nil {
		o.Logger = hclog.NewNullLogger()
	}
	if o.MaxFresh == 0 {
		o.MaxFresh = maxFresh
	}
	d := &Dictionary{opt: o, file: &namesFile{}, fresh: newCounts(), frozen: newCounts()}
	if o.FS == nil {
		return d, nil
	}
	file, err := d.load()
	if event.IsCorruption(err) {
		o.Logger.Warn("the names of categories and types are counted again", logkey.Error, err)
		err = nil
	}
	if err != nil {
		return nil, fmt.Errorf("open the names of categories and types: %w", err)
	}
	if file == nil {
		return d, d.removeFiles(fileName, fileName+vfs.TempSuffix, recountName)
	}
	d.file, d.mark = file, file.mark
	return d, d.removeFiles(fileName + vfs.TempSuffix)
}

func newCounts() [kinds]counts { return [kinds]counts{{}, {}} }

// load opens the file; nil when there is none that is of use.
func (d *Dictionary) load() (*namesFile, error) {
	_, err := d.opt.FS.Stat(filepath.Join(d.opt.Dir, recountName))
	if err == nil {
		return nil, nil
	}
	if !errors.Is(err, fs.ErrNotExist) {
		return nil, err
	}
	file, err := openNames(d.opt.FS, d.opt.Dir)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	ok, err := d.opt.Belongs(file.mark.position, file.mark.chain)
	if err != nil || !ok {
		return nil, errors.Join(err, file.close())
	}
	return file, nil
}

func (d *Dictionary) removeFiles(files ...string) error {
	for _, name := range files {
		if err := vfs.RemoveIfThere(d.opt.FS, filepath.Join(d.opt.Dir, name)); err != nil {
			return err
		}
	}
	return d.opt.FS.SyncDir(d.opt.Dir)
}

// Position is where the log was looked at up to.
func (d *Dictionary) Position() int64 {
	d.mu.RLock()
	defer d.mu.RUnlock()
	return d.mark.position
}

// Add counts the categories and types of whole frames of the log that end at a position with a
// chain. What lies before the position so far was counted already and is passed over. It reports
// whether the memory for names is full, so that Save is due.
func (d *Dictionary) Add(batch []Posting, upTo int64, chain event.Chain) (full bool) {
	d.mu.Lock()
	defer d.mu.Unlock()
	for i := range batch {
		if p := &batch[i]; p.Position >= d.mark.position {
			d.count(p.Label, 1)
		}
	}
	if upTo > d.mark.position {
		d.mark = mark{upTo, chain}
	}
	return d.opt.FS != nil && (d.names >= d.opt.MaxFresh || d.bytes >= maxFreshBytes)
}

// count runs under mu.
func (d *Dictionary) count(l label.Label, n int64) {
	if l.Kind != label.Category && l.Kind != label.Type {
		return
	}
	of := d.fresh[l.Kind-label.Category]
	if c := of[l.Key]; c != nil {
		*c += n
		return
	}
	first := n // Only this one lives on.
	of[strings.Clone(l.Key)] = &first
	d.names++
	d.bytes += len(l.Key)
}

// Save writes the file as of now. The caller has made the log durable up to Position.
func (d *Dictionary) Save() error {
	if d.opt.FS == nil {
		return nil
	}
	d.saving.Lock()
	defer d.saving.Unlock()
	return d.save()
}

// save runs under saving.
func (d *Dictionary) save() error {
	d.mu.Lock()
	old, m := d.file, d.mark
	d.fresh, d.frozen = d.frozen, d.fresh
	d.names, d.bytes = 0, 0
	d.mu.Unlock()
	// What is frozen does not change, and no other goroutine replaces the file.
	file, err := d.replace(old, m)
	d.mu.Lock()
	if err == nil {
		d.file, d.frozen = file, newCounts()
	} else {
		d.thaw()
	}
	d.mu.Unlock()
	if err == nil && old.close != nil {
		d.pages.Lock() // Those who have begun with the old bytes end first.
		err = old.close()
		d.pages.Unlock()
	}
	if err != nil {
		return fmt.Errorf("save the names of categories and types: %w", err)
	}
	return nil
}

func (d *Dictionary) replace(old *namesFile, m mark) (_ *namesFile, err error) {
	defer chunkfile.GuardFaults(&err)()
	var of [kinds][]names
	for k := range of {
		frozen := changesOf("", d.frozen[k])
		frozen.sort()
		of[k] = []names{old.of[k], frozen}
	}
	if err := writeNames(d.opt.FS, d.opt.Dir, m, of); err != nil {
		return nil, err
	}
	return openNames(d.opt.FS, d.opt.Dir)
}

// thaw takes back what could not be saved. It runs under mu.
func (d *Dictionary) thaw() {
	frozen := d.frozen
	d.frozen = newCounts()
	for k, of := range frozen {
		for name, n := range of {
			d.count(label.Label{Kind: label.Category + label.Kind(k), Key: name}, *n)
		}
	}
}

// BeginRemoval is called before the log loses events. If the node stops before EndRemoval, all is
// counted again.
func (d *Dictionary) BeginRemoval() error {
	if d.opt.FS == nil {
		return nil
	}
	if err := vfs.WriteFileAtomic(d.opt.FS, filepath.Join(d.opt.Dir, recountName), nil); err != nil {
		return fmt.Errorf("begin to remove names: %w", err)
	}
	return nil
}

// Remove takes back what Add counted, for events that are gone from the log.
func (d *Dictionary) Remove(batch []Posting) {
	d.mu.Lock()
	defer d.mu.Unlock()
	for i := range batch {
		if p := &batch[i]; p.Position < d.mark.position {
			d.count(p.Label, -1)
		}
	}
}

// EndRemoval is called after Remove got all events that are gone. No name whose events are all gone
// is in a file when it returns. The caller has made the log durable up to Position.
func (d *Dictionary) EndRemoval() error {
	if d.opt.FS == nil {
		return nil
	}
	d.saving.Lock()
	defer d.saving.Unlock()
	if err := d.save(); err != nil {
		return err
	}
	return d.removeFiles(recountName)
}

// Name is a category or a type.
type Name struct {
	Name   string
	Events int64
}

// List returns up to count names of a kind, label.Category or label.Type, by name: those that begin
// with a prefix and come after another one ("": from the first).
func (d *Dictionary) List(kind label.Kind, prefix, after string, count int) (page []Name, err error) {
	defer chunkfile.GuardFaults(&err)()
	k := kind - label.Category
	d.pages.RLock()
	defer d.pages.RUnlock()
	d.mu.RLock()
	file, recent := d.file, changesOf(prefix, d.fresh[k], d.frozen[k])
	d.mu.RUnlock()
	recent.sort()
	from := prefix
	if after != "" {
		from = max(prefix, after+"\x00") // The least name after it.
	}
	for name, events := range merged(from, file.of[k], recent) {
		if len(page) == count || !strings.HasPrefix(name, prefix) {
			break
		}
		page = append(page, Name{strings.Clone(name), events})
	}
	return page, nil
}

// Close lets go of the file. What is only in memory is added again after the next start. No method
// may be called after it.
func (d *Dictionary) Close() error {
	d.saving.Lock()
	defer d.saving.Unlock()
	d.pages.Lock()
	defer d.pages.Unlock()
	if d.file.close == nil {
		return nil
	}
	file := d.file
	d.file = &namesFile{}
	return file.close()
}
