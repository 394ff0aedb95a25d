package eventlog

import (
	"fmt"
	"testing"

	"github.com/annalsdb/annals/internal/check"
)

func TestProgressOfOpen(t *testing.T) {
	fsys, m := madeLog(t, func(m *model) {
		m.frame(true, ev("s", "1"))
		for i := range 20 {
			m.frame(false, ev("s", fmt.Sprint(i)))
		}
	})
	var first, second []string
	open := func(said *[]string) *Log {
		o := testOptions(fsys)
		o.Progress = func(doing string, done, total int64) {
			if done < 0 || done > total {
				t.Errorf("%s: %d of %d", doing, done, total)
			}
			if len(*said) == 0 || (*said)[len(*said)-1] != doing {
				*said = append(*said, doing)
			}
		}
		return mustOpen(t, o)
	}
	closeLog(t, open(&first))
	index := testOptions(fsys)
	index.EnsureDefaults()
	check.Must(t, fsys.RemoveAll(index.IndexDir))
	l := open(&second)
	verify(t, l, m.frames, nil)
	told := len(second)
	l.progress.at("in the background", 1, 2)
	closeLog(t, l)
	check.Equal(t, len(second), told, "it reports when Open has returned")
	check.Slice(t, second, []string{doingRecover, doingRebuild})
	check.Equal(t, first[0], doingRecover, first)
}
