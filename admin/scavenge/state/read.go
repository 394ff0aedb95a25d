package state

import (
	"context"
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

// query runs f with the connection to itself.
func (d *DB) query(ctx context.Context, what string, f func() error) error {
	release, err := d.acquire(ctx)
	if err == nil {
		defer release()
		err = d.explain(ctx, f())
	}
	if err != nil {
		return fmt.Errorf("read the %s of the scavenge state: %w", what, err)
	}
	return nil
}

// rows gives f each row of a statement whose arguments are bound.
func rows(st *sqlite3.Stmt, f func() error) error {
	var err error
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
		st := d.st.value
		if err := st.BindText(1, key); err != nil {
			return err
		}
		return rows(st, func() error {
			value = st.ColumnBlob(0, []byte{})
			return nil
		})
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

// Next returns up to limit streams of a status by rising name, from the first
// whose name is greater than after; nil stands before all. Names compare byte by
// byte. Fewer than limit are the last. Going through all streams of a status
// reads all streams once.
func (d *DB) Next(ctx context.Context, after []byte, limit int, status Status) (streams []Named, err error) {
	err = d.query(ctx, "streams", func() error {
		streams, err = d.named(after, limit, status)
		return err
	})
	return streams, err
}

// named is Next for whoever has the turn.
func (d *DB) named(after []byte, limit int, status Status) (streams []Named, err error) {
	st := d.st.first
	if after != nil {
		st = d.st.next
		err = st.BindBlob(3, after)
	}
	err = bindAll(err, st.BindInt64(1, int64(status)), st.BindInt64(2, int64(limit)))
	if err != nil {
		return nil, err
	}
	err = rows(st, func() error {
		s := Named{Name: st.ColumnBlob(2, []byte{})}
		err := d.decode(st, &s.Stream)
		streams = append(streams, s)
		return err
	})
	if err != nil {
		return nil, err
	}
	return streams, nil
}

// Counts returns how many streams there are of each status. It reads all of them.
func (d *DB) Counts(ctx context.Context) (active, archived, spent int64, err error) {
	err = d.query(ctx, "counts", func() error {
		st := d.st.counts
		return rows(st, func() error {
			archived, spent = st.ColumnInt64(1), st.ColumnInt64(2)
			active = st.ColumnInt64(0) - archived - spent
			return nil
		})
	})
	return active, archived, spent, err
}
