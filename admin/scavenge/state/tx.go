package state

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"path/filepath"

	"github.com/ncruces/go-sqlite3"

	"github.com/annalsdb/annals/event"
)

// errTxOver is met by whoever keeps a Tx.
var errTxOver = errors.New("the transaction is over")

// Tx is a transaction under way. It is valid until the function given to Update
// returns, and for one goroutine at a time. After an error all its methods fail with the same
// one: SQLite may have rolled back by itself, and what followed would stand alone.
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
	release, err := d.acquire(ctx)
	if err != nil {
		return fmt.Errorf("update the scavenge state: %w", err)
	}
	defer release()
	if err := d.update(ctx, f); err != nil {
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
	err := f(tx)
	if tx.err != nil {
		return tx.err
	}
	if err != nil {
		return err
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
	old := d.conn.SetInterrupt(context.Background())
	defer d.conn.SetInterrupt(old)
	if err := d.conn.Exec(`ROLLBACK`); err != nil && d.bridge.broken == nil {
		d.bridge.broken = fmt.Errorf("roll back: %w", d.explain(context.Background(), err))
	}
}

// do runs a prepared statement after binding its arguments, unless an error came before.
func (tx *Tx) do(what string, st *sqlite3.Stmt, bind func() error) error {
	if tx.err != nil {
		return tx.err
	}
	err := bind()
	if err == nil {
		err = st.Exec()
	}
	return tx.failed(what, err)
}

// failed makes an error the end of the transaction.
func (tx *Tx) failed(what string, err error) error {
	if err != nil {
		tx.err = fmt.Errorf("%s: %w", what, tx.d.explain(tx.ctx, err))
	}
	return tx.err
}

// SetValue sets what Value returns for a key; nil removes it.
func (tx *Tx) SetValue(key string, value []byte) error {
	st := &tx.d.st
	if value == nil {
		return tx.do("remove a value", st.removeValue, func() error { return st.removeValue.BindText(1, key) })
	}
	return tx.do("set a value", st.setValue, func() error {
		return bindAll(st.setValue.BindText(1, key), st.setValue.BindBlob(2, value))
	})
}

// bindAll returns the first error.
func bindAll(errs ...error) error {
	for _, err := range errs {
		if err != nil {
			return err
		}
	}
	return nil
}

// Stream returns what is known of a stream; ok is false, and the Stream that of
// a stream of which nothing is known, when it is none.
func (tx *Tx) Stream(name []byte) (s Stream, ok bool, err error) {
	s = Stream{MetaNumber: -1, MetaPosition: -1}
	if tx.err != nil {
		return s, false, tx.err
	}
	st := tx.d.st.stream
	if err = st.BindBlob(1, name); err == nil {
		if ok = st.Step(); ok {
			err = tx.d.decode(st, &s)
		} else {
			err = st.Err()
		}
		if resetErr := st.Reset(); err == nil {
			err = resetErr
		}
	}
	return s, ok && err == nil, tx.failed("read a stream", err)
}

// decode reads a stream from the first columns of a row.
func (d *DB) decode(st *sqlite3.Stmt, s *Stream) error {
	if err := s.decode(st.ColumnInt64(0), st.ColumnRawBlob(1)); err != nil {
		return &event.Corruption{File: filepath.Join(d.o.Dir, fileName), Offset: -1, Detail: "row of a stream: " + err.Error()}
	}
	return nil
}

// PutStream stores what is known of a stream. It and Stream cost least, many times
// less when the cache does not hold all streams, when they are called in the order of the names.
func (tx *Tx) PutStream(name []byte, s *Stream) error {
	if tx.err != nil {
		return tx.err
	}
	if s.Status > Spent {
		return tx.failed("put a stream", fmt.Errorf("status %d", s.Status))
	}
	d := tx.d
	d.encoded = s.append(d.encoded[:0])
	st := d.st.putStream
	err := bindAll(st.BindBlob(1, name), st.BindInt64(2, int64(s.Status)), st.BindBool(3, s.decides()), st.BindBlob(4, d.encoded))
	if err == nil {
		err = st.Exec()
	}
	return tx.failed("put a stream", err)
}

// DeleteStream forgets a stream, if it is known.
func (tx *Tx) DeleteStream(name []byte) error {
	st := tx.d.st.removeStream
	return tx.do("forget a stream", st, func() error { return st.BindBlob(1, name) })
}

// AddWeight adds to the weight of a logical chunk.
func (tx *Tx) AddWeight(chunk int, by int64) error {
	st := tx.d.st.addWeight
	return tx.do("add weight to a chunk", st, func() error {
		return bindAll(st.BindInt64(1, int64(chunk)), st.BindInt64(2, by))
	})
}

// ResetWeights makes the weights of the logical chunks from first to last 0.
func (tx *Tx) ResetWeights(first, last int) error {
	st := tx.d.st.resetWeights
	return tx.do("reset the weights of chunks", st, func() error {
		return bindAll(st.BindInt64(1, int64(first)), st.BindInt64(2, int64(last)))
	})
}

// SetTimes sets the range of the times of the records of a logical chunk, in nanoseconds since 1970.
func (tx *Tx) SetTimes(chunk int, oldest, newest int64) error {
	st := tx.d.st.setTimes
	return tx.do("set the times of a chunk", st, func() error {
		return bindAll(st.BindInt64(1, int64(chunk)), st.BindInt64(2, oldest), st.BindInt64(3, newest))
	})
}

// cleanStep is how many streams CleanStreams holds in memory.
const cleanStep = 1000

// CleanStreams forgets all Spent streams and returns how many they were.
func (tx *Tx) CleanStreams(ctx context.Context) (streams int64, err error) {
	var last []byte
	for {
		if tx.err != nil {
			return 0, tx.err
		}
		if err := ctx.Err(); err != nil {
			return 0, tx.failed("clean streams", err)
		}
		spent, err := tx.d.named(last, cleanStep, Spent)
		if err != nil {
			return 0, tx.failed("find spent streams", err)
		}
		for i := range spent {
			if err := tx.DeleteStream(spent[i].Name); err != nil {
				return 0, err
			}
		}
		streams += int64(len(spent))
		if len(spent) < cleanStep {
			return streams, nil
		}
		last = bytes.Clone(spent[len(spent)-1].Name)
	}
}
