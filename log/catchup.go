package eventlog

import (
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
