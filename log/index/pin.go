package index

import (
	"cmp"
	"encoding/hex"
	"errors"
	"fmt"
	"io/fs"
	"path"
	"path/filepath"
	"strings"

	"github.com/zeebo/xxh3"

	"github.com/annalsdb/annals/internal/vfs"
)

// Pin holds the files of the index as they were at one moment. They stay on disk
// until it is closed, whatever replaces them in the index.
type Pin struct {
	Checkpoint int64 // of the index
	Files      []PinnedFile

	tables    []*table
	existence vfs.File // open, as the filter is replaced under its name; nil: none
	filterLen int64
	filter    savedFilter
	filterNow func() savedFilter // the one on disk
}

// savedFilter counts the files of the existence filter, which all have one name.
type savedFilter int64

// PinnedFile is one file of a Pin.
type PinnedFile struct {
	Name  string // relative to the folder of the index, with slashes
	Size  int64
	Sum   string // that the file carries, in hexadecimal, see Foot; empty where it carries none
	Fixed bool   // the bytes are the same as long as the file has its name

	Data []byte   // all of it, of a small file
	File vfs.File // or: open until Close of the pin, which closes it
	Path string   // or: to be opened
}

// Pin pins what indexmap names at the moment, indexmap itself and the existence
// filter. What is in memory alone is not in it: it is durable in the log.
//
// The filter's checkpoint comes first, and is not above that of the filter; so is the map's not
// above what the tables hold.
func (x *Index) Pin() (_ *Pin, err error) {
	// Nothing on disk changes under commitMu but files that nothing names yet.
	x.commitMu.Lock()
	defer x.commitMu.Unlock()
	x.mu.Lock()
	err, s := x.usable(), x.current.Load()
	x.mu.Unlock()
	if err = cmp.Or(err, x.Damage()); err != nil {
		return nil, fmt.Errorf("pin index: %w", err)
	}
	p := &Pin{Checkpoint: x.checkpoint.Load()}
	defer func() {
		if err != nil {
			err = errors.Join(fmt.Errorf("pin index: %w", err), p.Close())
		}
	}()
	// The state holds them, and only the holder of commitMu takes tables from it. Close must not
	// run at the same time.
	for _, t := range s.tables {
		t.retain()
		p.tables = append(p.tables, t)
	}
	if err := p.addExistence(x); err != nil {
		return nil, err
	}
	m, err := vfs.ReadFile(x.opt.FS, filepath.Join(x.opt.Dir, mapName))
	if errors.Is(err, fs.ErrNotExist) { // Nothing was flushed yet.
		return p, nil
	}
	if err != nil {
		return nil, err
	}
	p.Files = append(p.Files, PinnedFile{Name: mapName, Size: int64(len(m)), Data: m})
	for _, t := range p.tables {
		if err := p.addTable(t); err != nil {
			return nil, err
		}
	}
	return p, nil
}

// addExistence pins the filter as it was saved last. Where there is none a start makes it from the
// tables.
func (p *Pin) addExistence(x *Index) error {
	if x.existence.filter.Load() == nil {
		return nil
	}
	chk, err := vfs.ReadFile(x.opt.FS, filepath.Join(x.opt.Dir, existenceFolder, existenceChk))
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return err
	}
	file, err := x.opt.FS.Open(filepath.Join(x.opt.Dir, existenceFolder, existenceName))
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return err
	}
	p.existence = file
	p.filterNow = func() savedFilter { return savedFilter(x.existence.saves.Load()) }
	p.filter = p.filterNow()
	foot := ""
	if p.filterLen, foot, err = readFoot(file); err != nil {
		return err
	}
	p.Files = append(p.Files,
		PinnedFile{Name: path.Join(existenceFolder, existenceChk), Size: int64(len(chk)), Data: chk},
		PinnedFile{Name: path.Join(existenceFolder, existenceName), Size: p.filterLen, Sum: foot, File: file})
	return nil
}

func (p *Pin) addTable(t *table) error {
	b := t.encode()
	p.Files = append(p.Files, PinnedFile{
		Name: t.file, Size: t.bytes, Sum: hex.EncodeToString(carriedSum(b)), Fixed: true, Path: t.path,
	})
	if t.filter == nil {
		return nil
	}
	f, err := t.fsys.Open(t.path + bloomSuffix)
	if errors.Is(err, fs.ErrNotExist) {
		return nil // A start makes it from the table.
	}
	if err != nil {
		return err
	}
	size, foot, err := readFoot(f)
	if err = errors.Join(err, f.Close()); err != nil {
		return err
	}
	p.Files = append(p.Files, PinnedFile{Name: t.file + bloomSuffix, Size: size, Sum: foot, Fixed: true, Path: t.path + bloomSuffix})
	return nil
}

// readFoot returns the size of a filter's file and the checksum at its end.
func readFoot(f vfs.File) (size int64, foot string, err error) {
	if size, err = f.Size(); err != nil {
		return 0, "", err
	}
	if size < bloomSumSize {
		return 0, "", corrupt(f.Name(), size, "%d bytes are too few", size)
	}
	var b [bloomSumSize]byte
	if err := readFull(f, b[:], size-bloomSumSize); err != nil {
		return 0, "", err
	}
	return size, hex.EncodeToString(b[:]), nil
}

// Replaced calls f with each of the files that are on disk for the pin alone, by what tells them
// apart from those of other pins.
func (p *Pin) Replaced(f func(file any, bytes int64)) {
	for _, t := range p.tables {
		if t.doomed.Load() {
			f(t, t.fileBytes())
		}
	}
	if p.existence != nil && p.filter != p.filterNow() {
		f(p.filter, p.filterLen)
	}
}

// Close lets go of the files. They must not be read any more.
func (p *Pin) Close() error {
	for _, t := range p.tables {
		t.release()
	}
	p.tables = nil
	if p.existence == nil {
		return nil
	}
	err := p.existence.Close()
	p.existence = nil
	return err
}

// Foot returns how many bytes at the end of a file of the index carry the checksum of all before
// them, 0 for one that carries none. The name is relative to the folder of the index, with slashes.
func Foot(name string) int {
	switch {
	case isTableName(name):
		return tableFooterSize
	case isTableName(strings.TrimSuffix(name, bloomSuffix)), name == path.Join(existenceFolder, existenceName):
		return bloomSumSize
	}
	return 0
}

// CheckFoot compares the foot of a file with the XXH3 of all bytes before it and
// returns the checksum that it carries, in hexadecimal.
func CheckFoot(name string, sum uint64, foot []byte) (string, error) {
	carried := carriedSum(foot)
	ok := le.Uint64(foot) == sum
	if len(foot) == tableFooterSize {
		ok = le.Uint64(carried) == sum && le.Uint64(carried[8:]) == xxh3.Hash(foot[:tableFooterSize-8])
	}
	if !ok {
		return "", corrupt(name, -1, "checksum of the whole file does not match")
	}
	return hex.EncodeToString(carried), nil
}

// carriedSum is the checksum in a foot: of a table that of the entries and that of the footer.
func carriedSum(foot []byte) []byte {
	if len(foot) == tableFooterSize {
		return foot[tableFooterSize-16:]
	}
	return foot
}
