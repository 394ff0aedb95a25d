package scavenge

import (
	"bytes"
	"context"
	"fmt"
	"maps"
	"math"
	"slices"
	"time"

	"github.com/annalsdb/annals/admin/scavenge/state"
	"github.com/annalsdb/annals/event"
	"github.com/annalsdb/annals/internal/logkey"
	eventlog "github.com/annalsdb/annals/log"
	"github.com/annalsdb/annals/log/chunkfile"
	"github.com/annalsdb/annals/log/index"
)

// Weights: what an event in a logical chunk adds to the chunk's.
const (
	weightCertain = 2 // it goes for certain
	weightMaybe   = 1 // it goes if it is older than a maximum age that falls inside the chunk
)

// paceBytes is how much of the log is read between looks at the throttle.
const paceBytes = 1 << 20

// accumulate reads each logical chunk that was not read before, up to the one with the point. It
// notes the facts that decide which events go: metadata, tombstones, and times.
func (r *run) accumulate(ctx context.Context, _ *checkpoint) error {
	next := 0
	var done int
	if ok, err := load(r.db, keyAccumulated, &done); err != nil {
		return err
	} else if ok {
		next = done + 1
	}
	last := chunkOf(r.point.Position)
	r.begin(int64(max(0, last+1-next))*chunkfile.ChunkSize, "bytes")
	for ; next <= last; next++ {
		if err := r.accumulateChunk(ctx, next); err != nil {
			return fmt.Errorf("accumulate chunk %d: %w", next, err)
		}
	}
	return nil
}

func chunkOf(position int64) int { return int(position / chunkfile.ChunkSize) }

func (r *run) accumulateChunk(ctx context.Context, number int) error {
	begun := time.Now()
	records, streams := int64(0), int64(0)
	err := r.db.Update(ctx, func(tx *state.Tx) error {
		a := accumulator{r: r, tx: tx, chunk: number, oldest: math.MaxInt64, newest: math.MinInt64, places: map[string]int{}}
		start := int64(number) * chunkfile.ChunkSize
		paced := start
		y := r.yielder()
		err := r.log.Chunks.Scan(ctx, start, start+chunkfile.ChunkSize, func(rec *eventlog.Stored) error {
			if rec.Position-paced >= paceBytes {
				r.did(rec.Position - paced)
				paced = rec.Position
				if err := r.pace.wait(ctx); err != nil {
					return err
				}
			}
			records++
			y.every(yieldRecords)
			return a.add(ctx, rec)
		})
		r.did(start + chunkfile.ChunkSize - paced)
		if err != nil {
			return err
		}
		if err := a.flush(ctx); err != nil {
			return err
		}
		if a.oldest <= a.newest {
			if err := tx.SetTimes(number, a.oldest, a.newest); err != nil {
				return err
			}
		}
		streams = a.streams
		return set(tx, keyAccumulated, number)
	})
	if err == nil {
		r.logger.Debug("chunk accumulated", logkey.Chunk, number, logkey.Records, records, "streams", streams, logkey.Took, time.Since(begun).Round(time.Millisecond))
	}
	return err
}

// notedMost is how many streams are noted before the database gets them: in the order of their
// names, because it is slow at jumping about in a file that is larger than its cache.
const notedMost = 1 << 16

// accumulator takes the records of one logical chunk.
type accumulator struct {
	r              *run
	tx             *state.Tx
	chunk          int
	oldest, newest int64          // times
	noted          []noted        // at most notedMost; its memory is used again
	places         map[string]int // in noted, by name of the stream
	streams        int64
}

// noted is what the records of a chunk say about a stream.
type noted struct {
	metadata  bool  // there was some
	first     int64 // number of the first of it here
	replaced  int64 // how much of it was replaced here
	number    int64 // of the newest
	position  int64
	tombstone bool

	retention event.Retention // of the newest of it
}

func (a *accumulator) add(ctx context.Context, rec *eventlog.Stored) error {
	a.oldest, a.newest = min(a.oldest, rec.Time), max(a.newest, rec.Time)
	name, isMetadata := bytes.CutPrefix(rec.Stream, []byte("$$"))
	if !isMetadata && rec.Flags&event.FlagDeleted == 0 {
		return nil
	}
	place, ok := a.places[string(name)]
	if !ok {
		if len(a.noted) == notedMost {
			if err := a.flush(ctx); err != nil {
				return err
			}
		}
		place = len(a.noted)
		a.noted = append(a.noted, noted{})
		a.places[string(name)] = place
	}
	n := &a.noted[place]
	if !isMetadata {
		n.tombstone = true
		return nil
	}
	// Every record in a metadata stream is metadata, and only the newest is kept.
	if n.metadata {
		n.replaced++
	} else {
		n.metadata, n.first = true, rec.Number
	}
	n.number, n.position = rec.Number, rec.Position
	n.retention = event.Retention{}
	// Metadata of a metadata stream have no effect.
	if !bytes.HasPrefix(name, []byte("$$")) {
		n.retention = event.ParseRetention(rec.Data)
	}
	return nil
}

// flush stores the noted facts in the database.
func (a *accumulator) flush(ctx context.Context) error {
	void := int64(0) // records of this chunk that count no more
	y := a.r.yielder()
	for i, name := range slices.Sorted(maps.Keys(a.places)) {
		if i%1024 == 0 && ctx.Err() != nil {
			return ctx.Err()
		}
		y.every(yieldStreams)
		n := &a.noted[a.places[name]]
		s, _, err := a.tx.Stream([]byte(name))
		if err != nil {
			return err
		}
		if n.metadata && s.Tombstone { // All of it is late (event.IsLate).
			void += n.replaced + 1
			n.metadata = false
		}
		if n.metadata && n.first > 0 {
			if err := a.voidMetadata(&s, name, n.first-1); err != nil {
				return err
			}
		}
		if n.metadata {
			void += n.replaced
			s.MetaNumber, s.MetaPosition = n.number, n.position
			s.MetaDiscard = max(s.MetaDiscard, n.number)
			s.Retention = n.retention
		}
		if n.tombstone {
			if err := a.voidMetadata(&s, name, math.MaxInt64); err != nil {
				return err
			}
			// Metadata are void from here on, and all of them go.
			s.Tombstone = true
			s.MetaNumber, s.MetaPosition, s.MetaDiscard = -1, -1, math.MaxInt64
			s.Retention = event.Retention{}
		}
		s.Status = state.Active
		if err := a.tx.PutStream([]byte(name), &s); err != nil {
			return err
		}
	}
	a.streams += int64(len(a.noted))
	a.noted = a.noted[:0]
	clear(a.places)
	if void == 0 {
		return nil
	}
	return a.tx.AddWeight(a.chunk, void*weightCertain)
}

// voidMetadata adds the weight of the metadata record of a stream that counts no
// more, the last one up to a number.
func (a *accumulator) voidMetadata(s *state.Stream, name string, upTo int64) error {
	position := s.MetaPosition
	if position < 0 {
		// The stream was forgotten by Cleaning, or there are none. A weight may be wrong:
		// whether a stream of the same hash is meant is not looked at.
		var buf [1]index.Entry
		found, err := a.r.log.Index().Descend(buf[:0], chunkfile.HashStream(event.MetaStreamOf(name)), upTo, 0, 1)
		if err != nil || len(found) == 0 || found[0].Position >= a.r.point.Position {
			return err
		}
		position = found[0].Position
	}
	return a.tx.AddWeight(chunkOf(position), weightCertain)
}
