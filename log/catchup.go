package eventlog

import (
	"bytes"
	"errors"
	"fmt"
	"path/filepath"
	"time"

	"github.com/annalsdb/annals/event"
	"github.com/annalsdb/annals/event/label"
	"github.com/annalsdb/annals/internal/logkey"
	"github.com/annalsdb/annals/log/chunkfile"
	"github.com/annalsdb/annals/log/index"
	"github.com/annalsdb/annals/log/postings"
	"github.com/annalsdb/annals/stats"
)

// openIndex opens the index and brings it up to the log's end: by what was
// appended after its last table, or from the start of the log when it is
// missing, damaged, of another log, or ahead of a log that was cut.
func (l *Log) openIndex() error {
	o := l.opts.Index
	o.FS, o.Dir, o.Stats = l.opts.FS, l.opts.IndexDir, l.opts.Stats
	if o.Logger == nil {
		o.Logger = l.logger.Named("index")
	}
	o.OnDamage = l.damages.ofIndex
	o.OnFatal = func(err error) { _ = l.fail(fmt.Errorf("index: %w", err)) }
	// What the index is about to make durable must already be durable in the log. Otherwise a power
	// cut would leave an index ahead of the log, which would have to be rebuilt. The records of the
	// table were written before they were indexed. An error stops the log.
	o.BeforeFlush = func() { _ = l.syncer.Sync() }
	o.Cluster, o.Belongs = l.cluster, l.endsAt
	x, err := index.Open(o)
	if err != nil {
		return err
	}
	l.index = x
	if x.Checkpoint() == 0 {
		// Entries that a scavenge took out come back with the records that are still there.
		if err := l.removeScavengeState(); err != nil {
			return fmt.Errorf("remove what is known of scavenging: %w", err)
		}
	}
	return l.indexFrom(x.Checkpoint(), l.Tail().End)
}

// openPostings opens the index of postings. What it lacks of a long log is posted later.
func (l *Log) openPostings() (err error) {
	logger := l.logger.Named("postings")
	l.postings, err = postings.Open(postings.Options{
		Index: index.Options{
			FS: l.opts.FS, Dir: filepath.Join(l.opts.IndexDir, postingsFolder), Logger: logger,
			Name: "postings", Packed: true, Stats: l.opts.Stats, ExistenceFilterMax: -1,
			MaxMemory:   max(1, int64(l.opts.PostingsMemory/2)), // One table more may wait.
			OnFatal:     func(err error) { _ = l.fail(fmt.Errorf("postings: %w", err)) },
			BeforeFlush: func() { _ = l.syncer.Sync() }, // as for the index
			Cluster:     l.cluster, Belongs: l.endsAt,
		},
		Tail:   l.Tail,
		Read:   l.postingsOf,
		Logger: logger,
	})
	return err
}

// postingsOf reads what records between two ends of frames say of themselves.
func (l *Log) postingsOf(from, to int64, add postings.Add) error {
	p, begin := l.newPoster(), from
	p.batch.Reset(l.postings)
	return l.records(from, to, p.note, func(upTo int64, chain event.Chain) error {
		err := add(&p.batch, begin, upTo, chain)
		begin = upTo
		p.batch.Reset(l.postings)
		return err
	})
}

const postingsFolder = "postings" // in the folder of the index

// poster finds what records say of themselves. Its memory is used again.
type poster struct {
	batch     postings.Batch
	reader    label.Reader
	labels    []label.Label
	malformed *stats.Counter // events with malformed tags
}

func (s *state) newPoster() *poster { return &poster{malformed: s.metrics.malformedTags} }

// note adds a record to the batch.
func (p *poster) note(it chunkfile.Item, position int64) { p.batch.Add(p.read(it), position) }

// read returns the labels of a record. They hold until the next call.
func (p *poster) read(it chunkfile.Item) []label.Label {
	p.labels = p.reader.Labels(p.labels[:0], chunkfile.String(it.Stream()), chunkfile.String(it.EventType()), it.Metadata())
	if n := len(p.labels); n > 0 && p.labels[n-1].Kind == label.Malformed {
		p.malformed.Inc()
	}
	return p.labels
}

// endsAt reports whether a frame ends at a position with a chain. If that frame is damaged, the
// answer is yes: nothing speaks against it, and an index could not be rebuilt. What can be read
// stays readable.
func (s *state) endsAt(position int64, chain event.Chain) (bool, error) {
	at, ok, err := s.ChainAt(position)
	if event.IsCorruption(err) {
		s.logger.Error("the index cannot be compared with the log, the node uses it as it is", logkey.Error, err)
		return true, nil
	}
	return ok && at == chain, err
}

// indexBatch is how many records are handed to the index at a time while it catches up.
const indexBatch = 4096

func (l *Log) indexFrom(from, end int64) error {
	if from >= end {
		return nil
	}
	doing := doingIndex
	if from == 0 {
		doing = doingRebuild
	}
	l.progress.begin(doing, end-from)
	return l.entries(from, end, func(batch []index.Entry, upTo int64, chain event.Chain) error {
		l.progress.at(doing, upTo-from, end-from)
		return l.index.Add(batch, upTo, chain)
	})
}

// entries reads the log between two ends of frames, and gives the index entries of its records to
// add, which is also told where that batch of them ends, and the log's chain there.
func (s *state) entries(from, end int64, add func(batch []index.Entry, upTo int64, chain event.Chain) error) error {
	batch := make([]index.Entry, 0, indexBatch)
	return s.records(from, end, func(it chunkfile.Item, position int64) {
		batch = append(batch, index.Entry{Hash: it.StreamHash(), Number: it.Number(), Position: position})
	}, func(upTo int64, chain event.Chain) error {
		err := add(batch, upTo, chain)
		batch = batch[:0]
		return err
	})
}

// records reads the log between two ends of frames. It gives its records to note, and tells add
// where a batch of them ends, and the log's chain there.
func (s *state) records(from, end int64, note func(it chunkfile.Item, position int64), add func(upTo int64, chain event.Chain) error) (err error) {
	started, reported := time.Now(), time.Now()
	records := 0
	err = s.read(func(v view) error {
		return v.batches(from, end, func(it chunkfile.Item, position int64) {
			if it.IsRecord() {
				note(it, position)
				records++
			}
		}, func(upTo int64, chain event.Chain) error {
			if err := add(upTo, chain); err != nil {
				return err
			}
			if now := time.Now(); now.Sub(reported) >= 2*time.Second {
				reported = now
				s.logger.Info("indexing the log", "done_percent", 100*(upTo-from)/(end-from), logkey.Records, records)
			}
			return nil
		})
	})
	if err != nil {
		return err
	}
	if took := time.Since(started); took > time.Second {
		s.logger.Info("log indexed", logkey.From, from, logkey.To, end, logkey.Records, records, logkey.Took, took.Round(time.Millisecond))
	}
	return nil
}

// batches gives note the items between two ends of frames, and calls add with where they end: every
// now and then at the end of a frame, the only place to stop at, and at last at the end.
func (v view) batches(from, end int64, note func(it chunkfile.Item, position int64), add func(upTo int64, chain event.Chain) error) (err error) {
	noted := 0
	for it, position := range v.forward(from, &err) {
		if position >= end {
			break
		}
		note(it, position)
		if !it.IsTrailer() {
			noted++
		} else if t := it.Trailer(); noted >= indexBatch {
			if err := add(t.End(), t.Chain); err != nil {
				return err
			}
			noted = 0
		}
	}
	if err != nil {
		return fmt.Errorf("index the log from %d: %w", from, err)
	}
	return add(end, v.tail.Chain)
}

// FindID returns the number under which an event id was last written to a
// stream, if that is among the newest events of the log.
func (rd *Reader) FindID(stream string, id event.ID) (int64, bool, error) {
	number, ok, err := rd.ids.find(id, chunkfile.HashStream(stream))
	if err != nil || !ok {
		return 0, false, errors.Join(err, rd.Failed())
	}
	// The memory knows streams by their hash. Where the record is still there, it confirms the
	// name.
	found, known, err := rd.idAt(stream, number)
	// Two streams with one hash and the same event: that is less likely than any damage.
	if event.IsCorruption(err) {
		return number, true, nil
	}
	if err != nil || known && found != id {
		return 0, false, err
	}
	return number, true, nil
}

// HasID reports whether the event with a number has an id, whether or not reads of the
// stream show it. Of an event that was removed it is known as long as that is
// among the newest events of the log.
func (rd *Reader) HasID(stream string, number int64, id event.ID) (bool, error) {
	found, there, damage := rd.idAt(stream, number)
	if there || damage != nil && !event.IsCorruption(damage) {
		return found == id, damage
	}
	has, err := rd.ids.has(id, chunkfile.HashStream(stream), number)
	switch {
	case has:
		return true, nil
	case damage != nil:
		// It may have had the id before the memory begins, or the memory could not be filled.
		return false, damage
	case err != nil:
		return false, errors.Join(err, rd.Failed())
	}
	return false, nil
}

// PositionOf returns the position of an ordinary event, whether or not reads of the stream
// show it; -1 when it was removed, or never was.
func (rd *Reader) PositionOf(stream string, number int64) (position int64, err error) {
	position = -1
	err = rd.read(func(v view) error {
		it, at, err := rd.certainRecordOf(v, stream, number, new([]byte))
		if it != nil {
			position = at
		}
		return err
	})
	if err != nil {
		return -1, fmt.Errorf("position of event %d of stream %q: %w", number, stream, err)
	}
	return position, nil
}

func (rd *Reader) idAt(stream string, number int64) (id event.ID, ok bool, err error) {
	err = rd.read(func(v view) error {
		it, _, err := rd.certainRecordOf(v, stream, number, new([]byte))
		if ok = it != nil; ok {
			id = it.Id()
		}
		return err
	})
	return id, ok, err
}

// recordOf finds the record of an event by way of the index, nil when it is not there.
func (rd *Reader) recordOf(v view, stream string, number int64, scratch *[]byte) (chunkfile.Item, int64, error) {
	var buf [4]index.Entry
	found, err := rd.index.Get(buf[:0], chunkfile.HashStream(stream), number)
	if err != nil {
		return nil, 0, err
	}
	return rd.firstOf(v, found, stream, scratch)
}

// certainRecordOf is recordOf for decisions: the index is compared with its checksums.
func (rd *Reader) certainRecordOf(v view, stream string, number int64, scratch *[]byte) (chunkfile.Item, int64, error) {
	var buf [4]index.Entry
	found, err := index.GetCertain(rd.index, buf[:0], chunkfile.HashStream(stream), number)
	if err != nil {
		return nil, 0, err
	}
	return rd.firstOf(v, found, stream, scratch)
}

func (rd *Reader) firstOf(v view, found []index.Entry, stream string, scratch *[]byte) (chunkfile.Item, int64, error) {
	for _, e := range found {
		it, err := rd.confirm(v, e, stream, scratch)
		if err != nil || it != nil {
			return it, e.Position, err
		}
	}
	return nil, 0, nil
}

// confirm reads the record that an index entry names. It returns nil when the
// record is not visible yet, is gone, or belongs to another stream of the same hash.
func (rd *Reader) confirm(v view, e index.Entry, stream string, scratch *[]byte) (chunkfile.Item, error) {
	if e.Position >= v.tail.End {
		return nil, nil
	}
	it, err := v.itemAt(e.Position, scratch)
	if err != nil || it == nil {
		return nil, err
	}
	same := it.IsRecord() && it.Number() == e.Number
	if same && bytes.Equal(it.Stream(), []byte(stream)) {
		return it, nil
	}
	if !same || it.StreamHash() != e.Hash {
		err := &event.Corruption{File: "index", Offset: -1, Detail: fmt.Sprintf("event %d of the stream with hash %x is said to be at position %d, where there is another", e.Number, e.Hash, e.Position)}
		rd.damages.suspectIndex(err)
		return nil, err
	}
	rd.metrics.collisions.Add(1)
	return nil, nil
}
