package state

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"maps"
	"math"
	"math/rand/v2"
	"os"
	"path/filepath"
	"reflect"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/annalsdb/annals/internal/check"
	"github.com/annalsdb/annals/internal/vfs"
)

// buildFromList makes decisions of n names without a database.
func buildFromList(tb testing.TB, fsys vfs.FS, dir string, n int, name func(dst []byte, i int) []byte) *Decisions {
	tb.Helper()
	var scratch []byte
	t, err := buildDecisions(tb.Context(), fsys, filepath.Join(dir, "decisions"), hashName, func(put func([]byte, Decision) error) error {
		for i := range n {
			scratch = name(scratch, i)
			if err := put(scratch, Decision{Discard: int64(i) + 1}); err != nil {
				return err
			}
		}
		return nil
	})
	check.Must(tb, err)
	tb.Cleanup(func() { check.NoError(tb, t.Close()) })
	return t
}

// content is what a state holds.
type content struct {
	Values  map[string]string
	Streams map[string]Stream
	Chunks  map[int]Chunk
}

func newContent() content {
	return content{Values: map[string]string{}, Streams: map[string]Stream{}, Chunks: map[int]Chunk{}}
}

func (c content) clone() content {
	return content{Values: maps.Clone(c.Values), Streams: maps.Clone(c.Streams), Chunks: maps.Clone(c.Chunks)}
}

func (c content) equal(other content) bool { return reflect.DeepEqual(c, other) }

var keys = []string{"checkpoint", "completed", "empty"}

// read reads all that a state holds through its methods.
func read(d *DB) (content, error) {
	c := newContent()
	for _, key := range keys {
		value, err := d.Value(key)
		if err != nil {
			return c, err
		}
		if value != nil {
			c.Values[key] = string(value)
		}
	}
	chunks, err := d.Chunks()
	if err != nil {
		return c, err
	}
	for _, chunk := range chunks {
		c.Chunks[chunk.Number] = chunk
	}
	for status := Active; status <= Spent; status++ {
		var after []byte
		for {
			streams, err := d.Next(context.Background(), after, 7, status)
			if err != nil {
				return c, err
			}
			for _, s := range streams {
				if s.Status != status || after != nil && bytes.Compare(s.Name, after) <= 0 {
					return c, fmt.Errorf("after %q comes %q of status %d", after, s.Name, s.Status)
				}
				after = s.Name
				c.Streams[string(s.Name)] = s.Stream
			}
			if len(streams) < 7 {
				break
			}
		}
	}
	return c, nil
}

// checkDecisions compares decisions with what follows from the content.
func checkDecisions(d *DB, c content) (err error) {
	t, err := d.Decisions(context.Background())
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, t.Close()) }()
	want := map[string]Decision{}
	for name, s := range c.Streams {
		if s.Discard > 0 || s.Maybe > 0 {
			want[name] = Decision{Discard: s.Discard, Maybe: s.Maybe}
			if s.Maybe > 0 {
				want[name] = Decision{Discard: s.Discard, Maybe: s.Maybe, Cutoff: s.Cutoff}
			}
		}
		if s.MetaDiscard > 0 {
			want["$$"+name] = Decision{Discard: s.MetaDiscard}
		}
	}
	if t.n != int64(len(want)) {
		return fmt.Errorf("%d decisions, want %d", t.n, len(want))
	}
	for name := range c.Streams {
		for _, name := range []string{name, "$$" + name, "no-" + name} {
			got, ok := t.Find([]byte(name))
			if w, wanted := want[name]; got != w || ok != wanted {
				return fmt.Errorf("decision about %q: %+v %t, want %+v", name, got, ok, w)
			}
		}
	}
	return t.Err()
}

// step is one call in a transaction, and what it does to the content.
func step(r *rand.Rand, tx *Tx, c content) error {
	name := strconv.Itoa(r.IntN(200))
	if r.IntN(10) == 0 {
		// few, so that they are met again
		name = strings.Repeat(strconv.Itoa(r.IntN(40))+"long", 80*r.IntN(6))
	}
	chunk := r.IntN(8)
	switch r.IntN(12) {
	case 0:
		key := keys[r.IntN(3)]
		value := strings.Repeat("v", r.IntN(30))
		if key == "empty" {
			value = ""
		}
		c.Values[key] = value
		return tx.SetValue(key, []byte(value))
	case 1:
		key := keys[r.IntN(3)]
		delete(c.Values, key)
		return tx.SetValue(key, nil)
	case 2:
		by := r.Int64N(9) - 2
		was := c.Chunks[chunk]
		was.Number, was.Weight = chunk, was.Weight+by
		c.Chunks[chunk] = was
		return tx.AddWeight(chunk, by)
	case 3:
		last := chunk + r.IntN(3)
		for i := chunk; i <= last; i++ {
			if was, ok := c.Chunks[i]; ok {
				was.Weight = 0
				c.Chunks[i] = was
			}
		}
		return tx.ResetWeights(chunk, last)
	case 4:
		was := c.Chunks[chunk]
		was.Number, was.Timed, was.Oldest, was.Newest = chunk, true, r.Int64(), -r.Int64()
		c.Chunks[chunk] = was
		return tx.SetTimes(chunk, was.Oldest, was.Newest)
	case 5:
		if r.IntN(20) > 0 {
			return nil
		}
		before := len(c.Streams)
		maps.DeleteFunc(c.Streams, func(_ string, s Stream) bool { return s.Status == Spent })
		n, err := tx.CleanStreams(context.Background())
		if err == nil && n != int64(before-len(c.Streams)) {
			return fmt.Errorf("cleaned %d streams, want %d", n, before-len(c.Streams))
		}
		return err
	default:
		s, ok, err := tx.Stream([]byte(name))
		if err != nil {
			return err
		}
		want, wanted := c.Streams[name]
		if !wanted {
			want = Stream{MetaNumber: -1, MetaPosition: -1}
		}
		if s != want || ok != wanted {
			return fmt.Errorf("stream %q: %+v %t, want %+v", name, s, ok, want)
		}
		s = randomStream(r)
		c.Streams[name] = s
		return tx.PutStream([]byte(name), &s)
	}
}

func randomStream(r *rand.Rand) Stream {
	s := Stream{MetaNumber: -1, MetaPosition: -1, Status: Status(r.IntN(3)), Tombstone: r.IntN(2) == 0}
	for i, v := range s.fields() {
		switch r.IntN(6) {
		case 0:
			*v = r.Int64N(200)
		case 1:
			*v = r.Int64()
		case 2:
			if i < 5 || i == 7 {
				*v = []int64{-1, -5, math.MinInt64, math.MaxInt64}[r.IntN(4)]
			}
		}
	}
	return s
}

func seeded(t *testing.T) *rand.Rand {
	t.Helper()
	seed := uint64(time.Now().UnixNano())
	if s := os.Getenv("STATE_SEED"); s != "" {
		var err error
		if seed, err = strconv.ParseUint(s, 10, 64); err != nil {
			t.Fatal(err)
		}
	}
	t.Logf("STATE_SEED=%d", seed)
	return rand.New(rand.NewPCG(seed, 1))
}

// scaled makes a number of repetitions smaller under the race detector, with which SQLite is very
// slow.
func scaled(n int) int {
	if raceEnabled {
		return n / 6
	}
	return n
}

// small are options with which pages are many and the cache overflows.
func small(fsys vfs.FS) Options {
	return Options{FS: fsys, Dir: "index/scavenging", PageSize: 512, CacheBytes: 1}
}

// folder makes what a node has made before.
func folder(t *testing.T, fsys vfs.FS) {
	t.Helper()
	check.Must(t, errors.Join(fsys.MkdirAll("index"), fsys.SyncDir("/")))
}

func list(t *testing.T, fsys vfs.FS) []string {
	t.Helper()
	names := check.Value(fsys.List("index/scavenging")).Must(t)
	return names
}
