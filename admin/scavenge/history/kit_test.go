package history_test

import (
	"bytes"
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/hashicorp/go-hclog"

	"github.com/annalsdb/annals/admin/scavenge/history"
	"github.com/annalsdb/annals/event"
	"github.com/annalsdb/annals/internal/check"
	"github.com/annalsdb/annals/stats"
)

const endpoint = "node1.example:2113"

// kit is a node with a Writer.
type kit struct {
	t *testing.T
	*node
	w     *history.Writer
	stats *stats.Registry
	log   *lines
}

// lines collects what is logged.
type lines struct {
	mu   sync.Mutex
	text bytes.Buffer
}

func (l *lines) Write(b []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.text.Write(b)
}

// count returns how many lines contain a text.
func (l *lines) count(text string) (n int) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for line := range strings.Lines(l.text.String()) {
		if strings.Contains(line, text) {
			n++
		}
	}
	return n
}

// start opens a Writer over a database, with what change makes of its options.
func start(t *testing.T, d *database, change ...func(*history.Options)) *kit {
	t.Helper()
	k := &kit{t: t, node: &node{database: d}, stats: &stats.Registry{}, log: &lines{}}
	o := history.Options{
		Store: k.node, Endpoint: func() string { return endpoint }, MaxAge: 30 * 24 * time.Hour, WriteTimeout: 2 * time.Second, Stats: k.stats,
		Logger: hclog.New(&hclog.LoggerOptions{Output: k.log, Level: hclog.Trace}),
	}
	for _, c := range change {
		c(&o)
	}
	k.w = history.New(o)
	return k
}

// figure returns a metric.
func (k *kit) figure(name string) (value int) {
	k.t.Helper()
	found := false
	k.stats.Each(func(s stats.Sample) {
		if s.Name == "annals_scavenge_history_"+name {
			value, found = int(s.Value), true
		}
	})
	if !found {
		k.t.Fatalf("no metric %s", name)
	}
	return value
}

// metrics checks how many events and links were written, dropped and given up.
func (k *kit) metrics(written, dropped, failed int) {
	k.t.Helper()
	got := [...]int{k.figure("written_total"), k.figure("dropped_total"), k.figure("failed_total"), k.figure("queued")}
	check.Equal(k.t, got, [...]int{written, dropped, failed, 0}, "written, dropped, failed, queued")
}

// id returns the id of a run.
func id(n byte) event.ID { return event.ID{15: n} }

// types lists what a stream holds, an event as its type without "$scavenge", and of links their
// data.
func (d *database) types(stream string) (types []string) {
	for _, r := range d.events(stream) {
		text := strings.TrimPrefix(r.Type, "$scavenge")
		if r.Type == event.TypeLink {
			text = strings.Replace(string(r.Data), "00000000-0000-0000-0000-0000000000", "", 1)
		}
		types = append(types, text)
	}
	return types
}

// check compares what a stream holds.
func (k *kit) check(stream string, want ...string) {
	k.t.Helper()
	check.Slice(k.t, k.types(stream), want, stream, "holds")
}

// payload returns the data of an event as parsed.
func (k *kit) payload(stream string, number int) map[string]any {
	k.t.Helper()
	all := k.events(stream)
	if number >= len(all) {
		k.t.Fatalf("%s has %d events, no %d", stream, len(all), number)
	}
	data := map[string]any{}
	check.Must(k.t, json.Unmarshal(all[number].Data, &data))
	return data
}

// dump writes down all there is.
func (d *database) dump() string {
	d.mu.Lock()
	defer d.mu.Unlock()
	var b strings.Builder
	for _, stream := range slices.Sorted(maps.Keys(d.streams)) {
		fmt.Fprintln(&b, stream)
		for _, r := range d.streams[stream] {
			kind := "binary"
			if r.IsJSON() {
				kind = "json"
			}
			fmt.Fprintf(&b, "  %d %s %s %s%s\n", r.Number, r.Type, kind, r.Data, r.Metadata)
		}
	}
	return b.String()
}
