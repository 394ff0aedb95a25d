package state

import (
	"bytes"
	"cmp"
	"fmt"
	"slices"
	"testing"

	"github.com/annalsdb/annals/internal/check"
	"github.com/annalsdb/annals/internal/vfs"
)

// TestRows: rows hold as many streams as they should, in whatever order these
// come and go, and every stream is in the row that covers its name.
func TestRows(t *testing.T) {
	const n = 5000
	inOrder := func(i int) []byte { return fmt.Appendf(nil, "stream-%06d", i) }
	falling := func(i int) []byte { return inOrder(n - i) }
	scattered := func(i int) []byte { return benchName(nil, i) }
	for _, c := range []struct {
		name   string
		nameOf func(int) []byte
		batch  int // streams of a transaction
		most   int // rows
	}{
		{"in order", inOrder, n, n * 30 / blockBytes * 3 / 2},
		{"in order, small transactions", inOrder, 100, n * 30 / blockBytes * 2},
		{"falling", falling, n, n * 30 / blockBytes * 4},
		{"scattered", scattered, 500, n * 55 / blockBytes * 3},
	} {
		t.Run(c.name, func(t *testing.T) {
			d := mustOpen(t, Options{FS: vfs.NewMem(), Dir: "index/scavenging"})
			for from := 0; from < n; from += c.batch {
				fillNamed(t, d, from, from+c.batch, func(_ []byte, i int) []byte { return c.nameOf(i) }, func(i int) Stream {
					s := benchStream(i)
					if i%10 > 0 {
						s.Status = Spent
					}
					return s
				})
			}
			checkRows(t, d, n, c.most)
			var cleaned int64
			err := d.Update(t.Context(), func(tx *Tx) (err error) {
				if cleaned, err = tx.CleanStreams(t.Context()); err != nil {
					return err
				}
				// In a row that was cleaned in this transaction.
				_, ok, err := tx.Stream(c.nameOf(n - 10))
				if err == nil && !ok {
					err = fmt.Errorf("a stream is gone")
				}
				return err
			})
			check.Must(t, err, "cleaned")
			check.MustEqual(t, cleaned, n*9/10, "cleaned")
			checkRows(t, d, n/10, c.most)
			err = d.Update(t.Context(), func(tx *Tx) error {
				for i := range n {
					if err := tx.PutStream(c.nameOf(i), &Stream{Status: Spent}); err != nil {
						return err
					}
				}
				_, err := tx.CleanStreams(t.Context())
				return err
			})
			check.Must(t, err)
			checkRows(t, d, 0, 0)
			check.Must(t, d.Close())
		})
	}
}

func checkRows(t *testing.T, d *DB, streams, most int) {
	t.Helper()
	n, err := d.number(`SELECT count(*) FROM streams`)
	if err != nil || n > int64(most) {
		t.Errorf("%d rows for %d streams, at most %d are expected; %v", n, streams, most, err)
	}
	largest, err := d.number(`SELECT coalesce(max(length(data)), 0) FROM streams`)
	if err != nil || largest > blockBytes {
		t.Errorf("a row has %d bytes, %v", largest, err)
	}
	st, _, err := d.conn.Prepare(`SELECT first, data FROM streams ORDER BY first`)
	check.Must(t, err)
	var names [][]byte
	err = rows(st, func() error {
		if len(names) > 0 && bytes.Compare(names[len(names)-1], st.ColumnRawBlob(0)) >= 0 {
			t.Errorf("row %q begins before the end of the last, %q", st.ColumnRawBlob(0), names[len(names)-1])
		}
		first := st.ColumnBlob(0, nil)
		return eachEntry(st.ColumnRawBlob(1), func(e *entry) error {
			if bytes.Compare(e.name, first) < 0 {
				t.Errorf("%q is in row %q", e.name, first)
			}
			names = append(names, bytes.Clone(e.name))
			return nil
		})
	})
	if err = cmp.Or(err, st.Close()); err != nil {
		t.Fatal(err)
	}
	if len(names) != streams || !slices.IsSortedFunc(names, bytes.Compare) {
		t.Errorf("%d streams, want %d; sorted is %v", len(names), streams, slices.IsSortedFunc(names, bytes.Compare))
	}
}
