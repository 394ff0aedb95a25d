package state

import (
	"bytes"
	"context"
	"errors"
	"fmt"

	"github.com/ncruces/go-sqlite3"
)

// Chunk is what is known of a logical chunk.
type Chunk struct {
	Number         int
	Weight         int64
	Oldest, Newest int64 // times of its records, nanoseconds since 1970
	Timed          bool  // the times are known
}

// Named is a stream with its name.
type Named struct {
	Name []byte
	Stream
}

// query runs f, which ctx interrupts.
func (d *DB) query(ctx context.Context, what string, f func() error) error {
	err := d.use(ctx)
	if err == nil {
		err = d.explain(ctx, f())
	}
	if err != nil {
		return fmt.Errorf("read the %s of the scavenge state: %w", what, err)
	}
	return nil
}

// rows gives f each row of a statement with its arguments.
func rows(st *sqlite3.Stmt, f func() error, args ...any) error {
	err := bind(st, args...)
	for err == nil && st.Step() {
		err = f()
	}
	if err == nil {
		err = st.Err()
	}
	if resetErr := st.Reset(); err == nil {
		err = resetErr
	}
	return err
}

// Value returns what was set for a key, nil when nothing was.
func (d *DB) Value(key string) (value []byte, err error) {
	err = d.query(context.Background(), "values", func() error {
		return rows(d.st.value, func() error {
			value = d.st.value.ColumnBlob(0, []byte{})
			return nil
		}, key)
	})
	return value, err
}

// Chunks returns all logical chunks of which anything is known, by rising number.
func (d *DB) Chunks() (chunks []Chunk, err error) {
	err = d.query(context.Background(), "chunks", func() error {
		st := d.st.chunks
		return rows(st, func() error {
			chunks = append(chunks, Chunk{
				Number: st.ColumnInt(0), Weight: st.ColumnInt64(1),
				Oldest: st.ColumnInt64(2), Newest: st.ColumnInt64(3),
				Timed: st.ColumnType(2) != sqlite3.NULL,
			})
			return nil
		})
	})
	return chunks, err
}

// errEnough ends walk.
var errEnough = errors.New("enough")

// walk gives f all streams by rising name, from the first of the row of a name on.
// They are borrowed until it returns.
func (d *DB) walk(from []byte, f func(e *entry) error) error {
	err := rows(d.st.rowsFrom, func() error {
		err := eachEntry(d.st.rowsFrom.ColumnRawBlob(0), f)
		if errors.Is(err, errBlock) {
			err = d.damage(err)
		}
		return err
	}, from)
	if errors.Is(err, errEnough) {
		return nil
	}
	return err
}

// Next returns up to limit streams of a status by rising name, from the first
// whose name is greater than after; nil stands before all. Names compare byte by
// byte. Fewer than limit are the last. Going through all streams of a status
// reads all streams once.
func (d *DB) Next(ctx context.Context, after []byte, limit int, status Status) (streams []Named, err error) {
	var names []byte // memory of several
	err = d.query(ctx, "streams", func() error {
		return d.walk(after, func(e *entry) error {
			if len(streams) == limit {
				return errEnough
			}
			if statusOf(e.data) != status || after != nil && bytes.Compare(e.name, after) <= 0 {
				return nil
			}
			if cap(names)-len(names) < len(e.name) {
				names = make([]byte, 0, max(len(e.name), nameBytes))
			}
			names = append(names, e.name...)
			s := Named{Name: names[len(names)-len(e.name) : len(names) : len(names)]}
			if err := s.decode(e.data); err != nil {
				return d.damage(err)
			}
			streams = append(streams, s)
			return nil
		})
	})
	if err != nil {
		return nil, err
	}
	return streams, nil
}

// nameBytes is how much memory is taken for names at a time.
const nameBytes = 16 << 10

// Count returns how many streams there are of a status. It reads all of them.
func (d *DB) Count(ctx context.Context, status Status) (n int64, err error) {
	err = d.query(ctx, "counts", func() error {
		return d.walk(nil, func(e *entry) error {
			if statusOf(e.data) == status {
				n++
			}
			return nil
		})
	})
	return n, err
}
