package bench

import (
	"bytes"
	"strings"
	"testing"

	"github.com/annalsdb/annals/internal/check"
)

func TestFeed(t *testing.T) {
	cases := []struct {
		name, page, previous string
		entries              int
		head                 bool
	}{
		{"empty", ``, "", 0, false},
		{"no link", `{"headOfStream":true,"links":[{"uri":"http://h/a","relation":"self"}],"entries":[]}`, "", 0, true},
		{
			"compact", `{"headOfStream":false,"links":[{"uri":"http://h/a","relation":"self"},{"uri":"http://h/streams/a/20/forward/20","relation":"previous"}],` +
				`"entries":[{"summary":"a"},{"summary":"b"}]}`, "/streams/a/20/forward/20", 2, false,
		},
		{
			"indented, other order", "{ \"headOfStream\" : true,\n \"links\": [ {\n \"relation\" : \"previous\",\n \"uri\" : \"http://h/p/streams/%24all/0A/forward/2?x=1\" } ],\n" +
				"\"entries\": [ { \"summary\": \"x\" } ] }", "/p/streams/%24all/0A/forward/2?x=1", 1, true,
		},
		{
			"type named so", `{"links":[{"uri":"http://h/a","relation":"first"}],"entries":[{"summary":"previous","data":"{\"relation\":\"previous\",\"headOfStream\":true,\"summary\":1}",` +
				`"links":[{"uri":"http://h/b","relation":"edit"}]}]}`, "", 1, false,
		},
		{"links behind entries", `{"entries":[{"summary":"relation","title":"\"relation\""}],"links":[{"uri":"/x","relation":"previous"}]}`, "/x", 1, false},
		{"escaped", `{"links":[{"uri":"http:\/\/h\/streams\/a\u0026b\/1","relation":"previous"}]}`, "/streams/a&b/1", 0, false},
		{"broken string", `{"links":[{"uri":"http://h/a\`, "", 0, false},
		{"broken link", `{"links":[{"relation":"previous","uri":"a`, "", 0, false},
		{"no uri", `{"links":[{"relation":"previous"}]}`, "", 0, false},
	}
	for _, c := range cases {
		t.Run(c.name, func(t *testing.T) {
			page := []byte(c.page)
			h := headOf(page)
			check.Equal(t, h.link("previous"), c.previous, "previous")
			check.Equal(t, countEntries(page), c.entries, "entries")
			check.Equal(t, h.HeadOfStream, c.head, "head")
		})
	}
}

func TestCountFirst(t *testing.T) {
	for page, want := range map[string]int{
		``:                            0,
		`{"retryCount":0}`:            1,
		`{"retryCount":`:              0,
		`{"retryCount": `:             0,
		"{\"retryCount\":\r\n\t 0}":   1,
		`{"retryCount":1}`:            0,
		`{"retryCount":10}`:           0,
		`{"data":"\"retryCount\":0"}`: 0,
		`[{"retryCount":0,"a":1},{"retryCount":2},{"retryCount": 0},{"retryCount":0}]`: 3,
	} {
		check.Equal(t, countFirst([]byte(page)), want, page)
	}
}

func FuzzFeed(f *testing.F) {
	f.Add([]byte(`{"headOfStream":true,"links":[{"uri":"http://h/a","relation":"previous"}],"entries":[{"summary":"a"}]}`))
	f.Add([]byte(`{"relation":"previous","uri":"\u00`))
	f.Fuzz(func(t *testing.T, page []byte) {
		if h := headOf(page); h.link("previous") != "" && !strings.Contains(string(page), "relation") {
			t.Fatal("a link out of nothing")
		}
		if got, want := countEntries(page), bytes.Count(page, entryMark); got != want {
			t.Fatalf("%d entries, want %d", got, want)
		}
	})
}

func BenchmarkCountEntries(b *testing.B) {
	entry := `{"title":"0@a","summary":"a","isJson":true,"data":"` + strings.Repeat("x", 760) + `"},`
	page := []byte(strings.Repeat(entry, 1000))
	b.SetBytes(int64(len(page)))
	for b.Loop() {
		check.MustEqual(b, countEntries(page), 1000, "miscounted")
	}
}
