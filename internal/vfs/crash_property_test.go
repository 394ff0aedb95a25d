package vfs_test

import (
	"bytes"
	"maps"
	"math/rand/v2"
	"slices"
	"testing"

	"pgregory.net/rapid"

	"github.com/annalsdb/annals/internal/check"
	"github.com/annalsdb/annals/internal/vfs"
)

// modelFile is a file as the states it went through since it was synced last;
// the first is the durable one, the last the current one.
type modelFile struct{ states [][]byte }

func (f *modelFile) now() []byte      { return f.states[len(f.states)-1] }
func (f *modelFile) change(to []byte) { f.states = append(f.states, to) }
func (f *modelFile) sync()            { f.states = [][]byte{f.now()} }

// allows reports whether a power cut may leave got: every byte is what it was at some time.
func (f *modelFile) allows(got []byte) bool {
	low, high := len(f.now()), len(f.now())
	for _, s := range f.states {
		low, high = min(low, len(s)), max(high, len(s))
	}
	if len(got) < low || len(got) > high {
		return false
	}
	for i, b := range got {
		if !slices.ContainsFunc(f.states, func(s []byte) bool {
			return i < len(s) && s[i] == b || i >= len(s) && b == 0
		}) {
			return false
		}
	}
	return true
}

// modelDir is a folder, with all that each name meant since the folder was synced.
type modelDir struct {
	now, durable map[string]*modelFile
	meant        map[string][]*modelFile // nil among them: the name was free
}

func (d *modelDir) set(name string, f *modelFile) {
	if len(d.meant[name]) == 0 {
		d.meant[name] = []*modelFile{d.durable[name]}
	}
	d.meant[name] = append(d.meant[name], f)
	if f == nil {
		delete(d.now, name)
	} else {
		d.now[name] = f
	}
}

func (d *modelDir) sync() {
	d.durable, d.meant = maps.Clone(d.now), make(map[string][]*modelFile)
}

var modelNames = []string{"a", "b", "c"}

func TestCrashMemAgainstModel(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		m := vfs.NewCrashMem()
		must := func(err error) {
			t.Helper()
			check.Must(t, err)
		}
		dirs := map[string]*modelDir{}
		for _, dir := range []string{"/p", "/q"} {
			must(m.MkdirAll(dir))
			dirs[dir] = &modelDir{now: map[string]*modelFile{}}
			dirs[dir].sync()
		}
		must(m.SyncDir("/"))
		anyDir := rapid.SampledFrom([]string{"/p", "/q"})
		anyName := rapid.SampledFrom(modelNames)
		anyOffset := rapid.OneOf(rapid.IntRange(0, 2_000), rapid.IntRange(65_000, 66_000))

		// existing picks a file that there is, or skips the action.
		existing := func(t *rapid.T) (dir, name string, f *modelFile) {
			dir, name = anyDir.Draw(t, "dir"), anyName.Draw(t, "name")
			if f = dirs[dir].now[name]; f == nil {
				t.Skip("no such file")
			}
			return dir, name, f
		}
		onFile := func(dir, name string, do func(f vfs.File) error) {
			f, err := m.OpenReadWrite(dir + "/" + name)
			must(err)
			must(do(f))
			must(f.Close())
		}
		t.Repeat(map[string]func(*rapid.T){
			"create": func(t *rapid.T) {
				dir, name := anyDir.Draw(t, "dir"), anyName.Draw(t, "name")
				f, err := m.Create(dir + "/" + name)
				must(err)
				must(f.Close())
				if old := dirs[dir].now[name]; old != nil {
					old.change(nil)
				} else {
					dirs[dir].set(name, &modelFile{states: [][]byte{nil}})
				}
			},
			"write": func(t *rapid.T) {
				dir, name, f := existing(t)
				off := anyOffset.Draw(t, "offset")
				data := bytes.Repeat([]byte{rapid.Byte().Draw(t, "byte")}, rapid.IntRange(1, 3_000).Draw(t, "length"))
				onFile(dir, name, func(f vfs.File) error { _, err := f.WriteAt(data, int64(off)); return err })
				state := slices.Clone(f.now())
				if end := off + len(data); end > len(state) {
					state = append(state, make([]byte, end-len(state))...)
				}
				copy(state[off:], data)
				f.change(state)
			},
			"truncate": func(t *rapid.T) {
				dir, name, f := existing(t)
				size := anyOffset.Draw(t, "size")
				onFile(dir, name, func(f vfs.File) error { return f.Truncate(int64(size)) })
				state := make([]byte, size)
				copy(state, f.now())
				f.change(state)
			},
			"sync": func(t *rapid.T) {
				dir, name, f := existing(t)
				onFile(dir, name, vfs.File.Sync)
				f.sync()
			},
			"remove": func(t *rapid.T) {
				dir, name, _ := existing(t)
				must(m.Remove(dir + "/" + name))
				dirs[dir].set(name, nil)
			},
			"rename": func(t *rapid.T) {
				dir, name, f := existing(t)
				to := anyName.Draw(t, "to")
				must(m.Rename(dir+"/"+name, dir+"/"+to))
				if to != name {
					dirs[dir].set(to, f)
					dirs[dir].set(name, nil)
				}
			},
			"syncdir": func(t *rapid.T) {
				dir := anyDir.Draw(t, "dir")
				must(m.SyncDir(dir))
				dirs[dir].sync()
			},
			"end of the process": func(*rapid.T) { m = m.Fork() },
			"power cut": func(t *rapid.T) {
				m = m.CrashClone(vfs.CrashOptions{})
				for _, d := range dirs {
					d.now = maps.Clone(d.durable)
					d.sync()
					for _, f := range d.now {
						f.states = f.states[:1]
					}
				}
			},
			"": func(t *rapid.T) {
				seed := rapid.Uint64().Draw(t, "seed")
				cut := m.CrashClone(vfs.CrashOptions{})
				random := m.CrashClone(vfs.CrashOptions{Rand: rand.New(rand.NewPCG(seed, 0))})
				for dir, d := range dirs {
					for _, name := range modelNames {
						path := dir + "/" + name
						compare(t, "now", m, path, d.now[name], func(f *modelFile, got []byte) bool {
							return bytes.Equal(got, f.now())
						})
						compare(t, "durable", cut, path, d.durable[name], func(f *modelFile, got []byte) bool {
							return bytes.Equal(got, f.states[0])
						})
						meant := d.meant[name]
						if len(meant) == 0 {
							meant = []*modelFile{d.durable[name]}
						}
						got, exists := readIfThere(t, random, path)
						if !slices.ContainsFunc(meant, func(f *modelFile) bool {
							return f == nil && !exists || f != nil && exists && f.allows(got)
						}) {
							t.Fatalf("seed %d: %s: exists %v with %d bytes, which it never was", seed, path, exists, len(got))
						}
					}
				}
			},
		})
	})
}

func compare(t *rapid.T, what string, m *vfs.Mem, path string, want *modelFile, same func(*modelFile, []byte) bool) {
	t.Helper()
	got, exists := readIfThere(t, m, path)
	if exists != (want != nil) {
		t.Fatalf("%s: %s exists: %v, want %v", what, path, exists, want != nil)
	}
	if exists && !same(want, got) {
		t.Fatalf("%s: %s has other content", what, path)
	}
}

func readIfThere(t *rapid.T, m *vfs.Mem, path string) ([]byte, bool) {
	t.Helper()
	if _, err := m.Stat(path); err != nil {
		return nil, false
	}
	got := check.Value(vfs.ReadFile(m, path)).Must(t)
	return got, true
}
