package state

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"path/filepath"

	"github.com/ncruces/go-sqlite3"

	"github.com/annalsdb/annals/event"
)

// errTxOver is met by a caller that keeps a Tx.
var errTxOver = errors.New("the transaction is over")

// Tx is an open transaction. It is valid until the function given to Update returns, and for one
// goroutine at a time. After an error all its methods fail with the same one: SQLite may have
// rolled back by itself, and what followed would stand alone.
type Tx struct {
	d   *DB
	ctx context.Context
	err error
}

// Update runs f in a transaction. When it returns nil, what f did is durable. When it
// returns an error or f panics, nothing was done, unless making it durable failed: then
// the transaction may be there after a restart, or not, and the database has to be opened again.
// The context interrupts it and rolls it back.
func (d *DB) Update(ctx context.Context, f func(*Tx) error) error {
	err := d.use(ctx)
	if err == nil {
		err = d.update(ctx, f)
	}
	if err != nil {
		return fmt.Errorf("update the scavenge state: %w", err)
	}
	return nil
}

func (d *DB) update(ctx context.Context, f func(*Tx) error) error {
	if err := d.conn.Exec(`BEGIN IMMEDIATE`); err != nil {
		return d.explain(ctx, err)
	}
	tx := &Tx{d: d, ctx: ctx}
	committed := false
	defer func() {
		tx.err = errTxOver
		if !committed {
			d.rollback()
		}
	}()
	d.block.loaded = false
	err := f(tx)
	if tx.err != nil {
		return tx.err
	}
	if err != nil {
		return err
	}
	if err := tx.leave(); err != nil {
		return d.explain(ctx, err)
	}
	// COMMIT is not interrupted once it runs: it has no steps.
	if err := d.conn.Exec(`COMMIT`); err != nil {
		return d.explain(ctx, err)
	}
	committed = true
	return nil
}

// rollback ends a transaction that SQLite has not ended by itself. Where even
// that fails nothing more can be done with the connection; the next Open rolls back.
func (d *DB) rollback() {
	if d.conn.GetAutocommit() {
		return
	}
	d.conn.SetInterrupt(context.Background())
	if err := d.conn.Exec(`ROLLBACK`); err != nil && d.bridge.broken == nil {
		d.bridge.broken = fmt.Errorf("roll back: %w", d.explain(context.Background(), err))
	}
}

// do runs a prepared statement with its arguments, unless an error came before.
func (tx *Tx) do(what string, st *sqlite3.Stmt, args ...any) error {
	if tx.err != nil {
		return tx.err
	}
	return tx.failed(what, run(st, args...))
}

// run runs a statement that returns no rows.
func run(st *sqlite3.Stmt, args ...any) error {
	if err := bind(st, args...); err != nil {
		return err
	}
	return st.Exec()
}

// bind binds the arguments of a statement.
func bind(st *sqlite3.Stmt, args ...any) (err error) {
	for i, arg := range args {
		switch arg := arg.(type) {
		case int:
			err = cmp.Or(err, st.BindInt64(i+1, int64(arg)))
		case int64:
			err = cmp.Or(err, st.BindInt64(i+1, arg))
		case string:
			err = cmp.Or(err, st.BindText(i+1, arg))
		case []byte:
			err = cmp.Or(err, st.BindBlob(i+1, arg))
		}
	}
	return err
}

// failed makes an error the end of the transaction.
func (tx *Tx) failed(what string, err error) error {
	if err != nil && tx.err == nil {
		tx.err = fmt.Errorf("%s: %w", what, tx.d.explain(tx.ctx, err))
	}
	return tx.err
}

// SetValue sets what Value returns for a key; nil removes it.
func (tx *Tx) SetValue(key string, value []byte) error {
	if value == nil {
		return tx.do("remove a value", tx.d.st.removeValue, key)
	}
	return tx.do("set a value", tx.d.st.setValue, key, value)
}

// Stream returns what is known of a stream; ok is false, and the Stream that of
// a stream of which nothing is known, when it is none.
func (tx *Tx) Stream(name []byte) (s Stream, ok bool, err error) {
	s = Stream{MetaNumber: -1, MetaPosition: -1}
	e, err := tx.at(name)
	if err == nil && e.size > 0 {
		if err = s.decode(e.data); err != nil {
			err = tx.d.damage(err)
		}
	}
	return s, err == nil && e.size > 0, tx.failed("read a stream", err)
}

// at looks for a stream in its row.
func (tx *Tx) at(name []byte) (e entry, err error) {
	if tx.err != nil {
		return e, tx.err
	}
	if err = tx.enter(name); err == nil {
		if e, err = tx.d.block.find(name); err != nil {
			err = tx.d.damage(err)
		}
	}
	return e, err
}

// damage is the error of a row that says what no row says.
func (d *DB) damage(err error) error {
	return &event.Corruption{File: filepath.Join(d.o.Dir, fileName), Offset: -1, Detail: "row of streams: " + err.Error()}
}

// PutStream stores what is known of a stream. It and Stream cost least, many times
// less, when they are called in the order of the names: a row holds many streams.
func (tx *Tx) PutStream(name []byte, s *Stream) error {
	e, err := tx.at(name)
	if err == nil && s.Status > Spent {
		err = fmt.Errorf("status %d", s.Status)
	}
	if err == nil {
		d := tx.d
		d.encoded = appendEntry(d.encoded[:0], name, s)
		d.block.replace(e.size, d.encoded)
		if len(d.block.data) > blockMost {
			err = tx.leave()
		}
	}
	return tx.failed("put a stream", err)
}

// AddWeight adds to the weight of a logical chunk.
func (tx *Tx) AddWeight(chunk int, by int64) error {
	return tx.do("add weight to a chunk", tx.d.st.addWeight, chunk, by)
}

// ResetWeights makes the weights of the logical chunks from first to last 0.
func (tx *Tx) ResetWeights(first, last int) error {
	return tx.do("reset the weights of chunks", tx.d.st.resetWeights, first, last)
}

// SetTimes sets the range of the times of the records of a logical chunk, in nanoseconds since
// 1970.
func (tx *Tx) SetTimes(chunk int, oldest, newest int64) error {
	return tx.do("set the times of a chunk", tx.d.st.setTimes, chunk, oldest, newest)
}

// CleanStreams forgets all Spent streams and returns how many they were.
func (tx *Tx) CleanStreams(ctx context.Context) (streams int64, err error) {
	b := &tx.d.block
	for name := []byte{}; ; name = append(name[:0], b.above...) {
		if _, err = tx.at(name); err == nil {
			err = ctx.Err()
		}
		for b.at = 0; err == nil && b.at < len(b.data); {
			var e entry
			if e, err = parseEntry(b.data[b.at:]); err != nil {
				err = tx.d.damage(err)
			} else if statusOf(e.data) == Spent {
				b.replace(e.size, nil)
				streams++
			} else {
				b.at += e.size
			}
		}
		b.at = 0
		if err != nil {
			return 0, tx.failed("clean streams", err)
		}
		if b.last {
			return streams, nil
		}
	}
}

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
