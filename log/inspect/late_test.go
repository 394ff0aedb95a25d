package inspect

import (
	"testing"

	"github.com/annalsdb/annals/event"
	"github.com/annalsdb/annals/internal/check"
	"github.com/annalsdb/annals/internal/vfs"
)

// TestLateNumbers: metadata events that are numbered by their positions are right only after the
// tombstone of the stream they describe.
func TestLateNumbers(t *testing.T) {
	for _, c := range []struct {
		name   string
		before []inspectRecord
		stream string
		wrong  bool
	}{
		{"after the tombstone", []inspectRecord{{"s", 0}, {"$$s", 0}, {"s", event.TombstoneNumber}}, "$$s", false},
		{"the first", []inspectRecord{{"s", 0}, {"s", event.TombstoneNumber}}, "$$s", false},
		{"of the metadata stream", []inspectRecord{{"$$s", 0}, {"$$$$s", 0}, {"s", event.TombstoneNumber}}, "$$$$s", false},
		{"no tombstone", []inspectRecord{{"s", 0}, {"$$s", 0}}, "$$s", true},
		{"no tombstone, the first", []inspectRecord{{"s", 0}}, "$$s", true},
		{"no metadata", []inspectRecord{{"s", 0}, {"t", 0}, {"s", event.TombstoneNumber}}, "t", true},
	} {
		t.Run(c.name, func(t *testing.T) {
			f := newInspectFolder(t, vfs.NewMem())
			f.frame(false, c.before...)
			for range 2 {
				f.frame(false, inspectRecord{c.stream, f.log.Tail().End})
			}
			f.must(f.log.Close())
			findings, _, err := f.inspect(false)
			f.must(err)
			wrong := false
			for _, x := range findings {
				check.Equal(t, x.Kind, FindStream, x)
				wrong = true
			}
			check.Equal(t, wrong, c.wrong, findings)
		})
	}
}
