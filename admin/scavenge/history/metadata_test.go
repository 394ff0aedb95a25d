package history_test

import (
	"testing"
	"testing/synctest"
	"time"

	"github.com/annalsdb/annals/admin/scavenge/history"
	"github.com/annalsdb/annals/event"
	"github.com/annalsdb/annals/internal/check"
)

const (
	metadata      = `{"$maxAge":2592000,"$acl":{"$r":"$ops","$w":[],"$d":[],"$mr":[],"$mw":[]}}`
	softDeleted   = `{"$tb":9223372036854775807,"$acl":{"$r":"$ops","$w":[],"$d":[],"$mr":[],"$mw":[]},"$maxAge":2592000}`
	otherAge      = `{"$maxAge":86400,"$acl":{"$r":"$ops","$w":[],"$d":[],"$mr":[],"$mw":[]}}`
	otherAgeAnd3  = `{"$maxAge":86400,"$tb":3,"$acl":{"$r":"$ops","$w":[],"$d":[],"$mr":[],"$mw":[]}}`
	otherAndHead  = `{"$tb":9223372036854775807}`
	metadataAnd3  = `{"$acl":{"$r":"$ops","$w":[],"$d":[],"$mr":[],"$mw":[]},"$maxAge":2592000,"$tb":3}`
	metadataAnd0  = `{"$acl":{"$r":"$ops","$w":[],"$d":[],"$mr":[],"$mw":[]},"$maxAge":2592000,"$tb":0}`
	metadataAndTb = `{"$acl":{"$r":"$ops","$w":[],"$d":[],"$mr":[],"$mw":[]},"$maxAge":2592000,"$tb":9223372036854775807}`
	spelledAnyhow = "{ \"$acl\": {\"$mw\":[], \"$mr\":[],\n\"$d\":[],\"$w\":[],\"$r\":\"$ops\"},\n\"$maxAge\": 2592000 }"
)

func TestMetadata(t *testing.T) {
	for _, c := range []struct {
		name string
		have []string
		want []string // that are written
	}{
		{"none", nil, []string{metadata}},
		{"the same", []string{metadata}, nil},
		{"the same, spelled otherwise", []string{otherAge, spelledAnyhow}, nil},
		{"another age", []string{metadata, otherAge}, []string{metadata}},
		{"a member too few", []string{`{"$maxAge":2592000}`}, []string{metadata}},
		{"a member too many", []string{metadata[:len(metadata)-1] + `,"color":"red"}`}, []string{metadata}},
		{"another list", []string{`{"$maxAge":2592000,"$acl":{"$r":"$all","$w":[],"$d":[],"$mr":[],"$mw":[]}}`}, []string{metadata}},
		{"no list", []string{`{"$maxAge":2592000,"$acl":null}`}, []string{metadata}},
		{"no JSON", []string{"\xff\xff"}, []string{metadata}},
		{"no object", []string{"[]"}, []string{metadata}},
		{"truncated", []string{metadataAnd3}, nil},
		{"truncated, another age", []string{otherAgeAnd3}, []string{metadataAnd3}},
		{"deleted", []string{softDeleted}, []string{metadataAnd0}},
		{"deleted, another list", []string{otherAndHead}, []string{metadataAndTb, metadataAnd0}},
	} {
		t.Run(c.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				k := start(t, newDatabase())
				stream := history.StreamOf(id(1))
				for _, of := range []string{history.IndexStream, stream} {
					for _, data := range c.have {
						k.put(event.MetaStreamOf(of), event.TypeMetadata, data)
					}
				}
				r := k.w.Begin(id(1), history.Started{})
				everything(r)
				r.Completed(history.Completed{Result: history.Success})
				k.w.Close()
				for _, of := range []string{history.IndexStream, stream} {
					metas := k.events(event.MetaStreamOf(of))
					var got []string
					for _, m := range metas[len(c.have):] {
						check.Equal(t, m.Type, event.TypeMetadata, "metadata of", of, "are of type")
						got = append(got, string(m.Data))
					}
					if len(got) != len(c.want) {
						t.Fatalf("metadata of %s written: %s, expected %s", of, got, c.want)
					}
					for i := range got {
						check.Equal(t, got[i], c.want[i], "metadata", i, "of", of, "written")
					}
				}
				k.metrics(11, 0, 0)
			})
		})
	}
}

// The age is that of the options, in whole seconds.
func TestMaxAge(t *testing.T) {
	for _, c := range []struct {
		age  time.Duration
		want float64
	}{{0, 2592000}, {time.Hour + time.Millisecond, 3600}, {time.Millisecond, 1}} {
		synctest.Test(t, func(t *testing.T) {
			k := start(t, newDatabase(), func(o *history.Options) { o.MaxAge = c.age })
			k.w.Begin(id(1), history.Started{})
			k.w.Close()
			if got := k.payload("$$$scavenges", 0)["$maxAge"]; got != c.want {
				t.Errorf("%v: %v, expected %v", c.age, got, c.want)
			}
		})
	}
}

// Another node has described the streams, and this one does not see it yet.
func TestMetadataConflict(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		k := start(t, newDatabase())
		k.lag(true)
		k.put(event.MetaStreamOf(history.IndexStream), event.TypeMetadata, metadata)
		k.w.Begin(id(1), history.Started{})
		synctest.Wait()
		k.lag(false)
		k.check(history.IndexStream, "0@$scavenges-01")
		if n := len(k.events(event.MetaStreamOf(history.IndexStream))); n != 1 {
			t.Errorf("metadata written %d times", n)
		}
		k.metrics(2, 0, 0)
		k.w.Close()
	})
}

// Nothing is written to a stream that could not be described; the next event tries again.
func TestMetadataFails(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		k := start(t, newDatabase())
		k.failing(func(w *event.Write) (before, after error) {
			if w.Stream == event.MetaStreamOf(history.StreamOf(id(1))) {
				return errBroken, nil
			}
			return nil, nil
		})
		r := k.w.Begin(id(1), history.Started{})
		time.Sleep(time.Minute)
		k.check(history.StreamOf(id(1)))
		k.metrics(0, 0, 1)
		k.failing(nil)
		r.Completed(history.Completed{Result: history.Success})
		k.w.Close()
		k.check(history.StreamOf(id(1)), "Completed")
		k.check(history.IndexStream, "0@$scavenges-01")
	})
}
