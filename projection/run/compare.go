package run

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"reflect"

	"github.com/zeebo/xxh3"
	"golang.org/x/sync/errgroup"

	"github.com/annalsdb/annals/internal/jsontext"
	"github.com/annalsdb/annals/projection/output"
	"github.com/annalsdb/annals/projection/position"
)

// Comparison tells how the states of two versions of a projection differ at one position. Names are
// part of the wire: do not change.
type Comparison struct {
	Position string `json:"position"` // as text
	// Compared counts partitions, the root among them; Differing are those of them whose state or
	// result is not the same. Moved ones were not compared: the running version had saved them
	// again twice.
	Compared  int64 `json:"compared"`
	Differing int64 `json:"differing"`
	Moved     int64 `json:"moved"`
	// Complete says that all were looked at. Else the time was up.
	Complete   bool         `json:"complete"`
	Partitions []Difference `json:"partitions"` // the first that differ
}

// Difference is one partition whose states differ.
type Difference struct {
	Partition string   `json:"partition"`         // empty: the root
	Running   *Content `json:"running,omitempty"` // nil: it was not asked for
	Rebuilt   *Content `json:"rebuilt,omitempty"`
}

// Content is a state and its result, null where there is none.
type Content struct {
	State  json.RawMessage `json:"state"`
	Result json.RawMessage `json:"result"`
}

// Bounds of a comparison.
const (
	maxDifferences = 100 // are named
	maxContents    = 16 << 20
	comparedBeside = 16 // partitions that are read at once
)

// side is one version.
type side struct {
	def  definition
	kept *output.Checkpoints
}

// content returns what a version has of a partition at a position.
func (s *side) content(ctx context.Context, partition string, at position.Position) (c Content, moved bool, err error) {
	found, moved, err := s.kept.StateAt(ctx, partition, at)
	if err != nil || moved {
		return c, moved, err
	}
	state, result := found.State, s.def.resultOf(found.State, found.Result)
	if partition == "" {
		state, result = rootOf(s.def.Definition, &found)
	}
	return Content{asJSON(state), asJSON(result)}, false, nil
}

// asJSON makes JSON of a state, which may be a text that is none.
func asJSON(state []byte) json.RawMessage {
	if state != nil && !jsontext.Valid(state) {
		return jsontext.AppendString(nil, state)
	}
	return state
}

func (c Content) equal(o Content) bool {
	return sameJSON(c.State, o.State) && sameJSON(c.Result, o.Result)
}

// sameJSON reports whether two texts mean the same: the order of members does not count.
func sameJSON(a, b []byte) bool {
	if same(a, b) || a == nil || b == nil {
		return same(a, b)
	}
	var values [2]any
	for i, text := range [][]byte{a, b} {
		d := json.NewDecoder(bytes.NewReader(text))
		d.UseNumber()
		if d.Decode(&values[i]) != nil {
			return false
		}
	}
	return reflect.DeepEqual(values[0], values[1])
}

// Compare compares the stored states of the running version of a projection with those of another,
// at the position of the other one's last checkpoint, where the running one had a checkpoint too.
// The other one does not run. withStates asks for the states that differ. When ctx ends, what was
// compared until then is the outcome.
func Compare(ctx context.Context, running, rebuilt Options, withStates bool) (*Comparison, error) {
	running.ensureDefaults()
	rebuilt.ensureDefaults()
	a := side{definition{running.Definition, &running}, output.NewCheckpoints(running.checkpointOptions())}
	b := side{definition{rebuilt.Definition, &rebuilt}, output.NewCheckpoints(rebuilt.checkpointOptions())}
	root, err := b.kept.Load(ctx)
	if err != nil {
		return nil, err
	}
	c := &Comparison{Partitions: []Difference{}}
	if !root.Found { // It is before the first event.
		c.Complete = true
		return c, nil
	}
	c.Position = root.At.String()
	seen, size := map[uint64]struct{}{}, 0
	page := func(names []string) error {
		found := make([]struct {
			a, b              Content
			moved, isCompared bool
		}, len(names))
		var work errgroup.Group
		work.SetLimit(comparedBeside)
		for i, name := range names {
			h := xxh3.HashString(name)
			if _, isSeen := seen[h]; isSeen {
				continue
			}
			seen[h] = struct{}{}
			work.Go(func() (err error) {
				f := &found[i]
				if f.a, f.moved, err = a.content(ctx, name, root.At); err != nil || f.moved {
					return err
				}
				f.b, f.moved, err = b.content(ctx, name, root.At)
				f.isCompared = err == nil && !f.moved
				return err
			})
		}
		if err := work.Wait(); err != nil {
			return err
		}
		for i := range found {
			f := &found[i]
			switch {
			case f.moved:
				c.Moved++
			case f.isCompared:
				c.Compared++
			}
			if !f.isCompared || f.a.equal(f.b) {
				continue
			}
			if c.Differing++; len(c.Partitions) == maxDifferences {
				continue
			}
			d := Difference{Partition: names[i]}
			if size += len(f.a.State) + len(f.a.Result) + len(f.b.State) + len(f.b.Result); withStates && size <= maxContents {
				d.Running, d.Rebuilt = &f.a, &f.b
			}
			c.Partitions = append(c.Partitions, d)
		}
		return nil
	}
	err = page([]string{""})
	for _, s := range []*side{&a, &b} {
		if err == nil {
			err = s.kept.Partitions(ctx, page)
		}
	}
	if c.Complete = err == nil; errors.Is(err, context.DeadlineExceeded) {
		err = nil
	}
	return c, err
}
