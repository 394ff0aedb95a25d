package run

import (
	"encoding/json"
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/annalsdb/annals/event"
	"github.com/annalsdb/annals/internal/check"
	"github.com/annalsdb/annals/internal/testkit/memdb"
	"github.com/annalsdb/annals/projection/handler"
	"github.com/annalsdb/annals/projection/script"
)

// A program is a random projection: the text of a script, and in Go what it does.
type program struct {
	source             string // "all", "stream", "streams", "category"
	partition          string // "", "stream", "key"
	named              []string
	sum, emits, links  bool
	created, deleted   bool
	output, transforms bool
}

func randomProgram(rng *rand.Rand) program {
	yes := func() bool { return rng.IntN(2) == 0 }
	p := program{source: []string{"all", "stream", "streams", "category"}[rng.IntN(4)], partition: []string{"", "stream", "key"}[rng.IntN(3)],
		sum: yes(), emits: yes(), links: yes(), created: yes(), output: yes(), transforms: yes()}
	if p.partition == "stream" && (p.source == "stream" || p.source == "streams") {
		p.partition = "key"
	}
	p.deleted = p.partition == "stream" && p.source == "all" && yes()
	if yes() {
		p.named = []string{"T", "U"}[:1+rng.IntN(2)]
	}
	return p
}

func (p *program) text() string {
	var b strings.Builder
	b.WriteString(map[string]string{"all": "fromAll()", "stream": "fromStream('a-1')", "streams": "fromStreams('a-1', 'a-2', 'b-1')", "category": "fromCategory('a')"}[p.source])
	b.WriteString(map[string]string{"": "", "stream": ".foreachStream()", "key": ".partitionBy(e => e.data.k)"}[p.partition])
	body := "(s, e) { if (e.data.v === undefined) return; s.n += 1; s.last = e.streamId;"
	if p.sum {
		body += " s.sum += e.data.v;"
	}
	if p.emits {
		body += " if (e.data.v % 2) emit('$out-' + e.data.k, 'E', {n: s.n});"
	}
	if p.links {
		body += " linkTo('$links', e);"
	}
	body += " }, "
	b.WriteString(".when({$init: () => ({n: 0, sum: 0, last: '', born: 0, gone: 0}), ")
	if p.created {
		b.WriteString("$created(s, e) { s.born += 1 }, ")
	}
	if p.deleted {
		b.WriteString("$deleted(s) { s.gone += 1 }, ")
	}
	for _, name := range p.named {
		b.WriteString(name + body)
	}
	if p.named == nil {
		b.WriteString("$any" + body)
	}
	b.WriteString("})")
	if p.output {
		b.WriteString(".outputState()")
	}
	if p.transforms {
		b.WriteString(".transformBy(s => ({twice: 2 * s.n})).filterBy(r => r.twice % 4 === 0)")
	}
	return b.String()
}

type folded struct {
	N    int    `json:"n"`
	Sum  int    `json:"sum"`
	Last string `json:"last"`
	Born int    `json:"born"`
	Gone int    `json:"gone"`
}

// fold does what the program does over what a store holds in the end, one record
// after the other, and returns what is to be seen.
func (p *program) fold(s *memdb.DB) map[string]string {
	states, results := map[string]*folded{}, map[string]string{}
	streams := map[string][]string{}
	write := func(stream, line string) { streams[stream] = append(streams[stream], line) }
	change := func(partition string, e *event.Record, f func(st *folded)) {
		st, had := states[partition]
		before := folded{}
		if !had {
			st = &folded{}
			states[partition] = st
			if p.created && e != nil {
				st.Born++
			}
		} else {
			before = *st
		}
		f(st)
		if had && *st == before {
			return
		}
		data, _ := json.Marshal(st)
		result := string(data)
		if p.transforms {
			if result = ""; 2*st.N%4 == 0 {
				result = fmt.Sprintf(`{"twice":%d}`, 2*st.N)
			}
		}
		if was := results[partition]; (p.output || p.transforms) && was != result {
			line := "Result " + result
			if result == "" {
				line = "ResultRemoved "
			}
			if partition == "" {
				write("$projections-p-result", line)
			} else {
				own := "$projections-p-" + partition + "-result"
				write("$projections-p-result", fmt.Sprintf("$> %d@%s", len(streams[own]), own))
				write(own, line)
			}
		}
		if !had && partition != "" && (p.output || p.transforms) {
			write("$projections-p-partitions", "$partition "+partition)
		}
		results[partition] = result
	}
	log := s.Log()
	at := func(stream string, number int64) *event.Record {
		i := slices.IndexFunc(log, func(r event.Record) bool { return r.Stream == stream && r.Number == number })
		return &log[i]
	}
	for i := range log {
		e := &log[i]
		isMeta := event.IsMetaStream(e.Stream) && !event.IsSystemStream(event.OriginalOf(e.Stream))
		switch p.source {
		case "all":
			if event.IsSystemStream(e.Stream) && !isMeta {
				continue
			}
		case "stream", "streams":
			if e.Stream != "a-1" && (p.source == "stream" || !slices.Contains(streamNames, e.Stream)) {
				continue
			}
		case "category":
			if e.Stream != "$ce-a" {
				continue
			}
			number, stream, _ := event.ParseLink(e.Data)
			e = at(stream, number)
		}
		if i := s.Info(e.Stream); p.source != "all" && e.Number < i.Metadata.TruncateBefore {
			continue
		}
		partition := ""
		var data struct {
			K string
			V *int
		}
		if err := json.Unmarshal(e.Data, &data); err != nil {
			continue
		}
		switch p.partition {
		case "stream":
			if partition = e.Stream; isMeta {
				partition = event.OriginalOf(e.Stream)
			}
		case "key":
			if partition = data.K; data.K == "" {
				continue
			}
		}
		if p.named == nil && (!isMeta || p.source == "all") || slices.Contains(p.named, e.Type) {
			change(partition, e, func(st *folded) {
				if data.V == nil {
					return
				}
				st.N++
				st.Last = e.Stream
				if p.sum {
					st.Sum += *data.V
				}
				if p.emits && *data.V%2 == 1 {
					write("$out-"+data.K, fmt.Sprintf(`E {"n":%d}`, st.N))
				}
				if p.links {
					write("$links", fmt.Sprintf("$> %d@%s", e.Number, e.Stream))
				}
			})
		}
		if isMeta && p.deleted {
			if m := event.ParseMetadata(e.Data); m.SoftDeleted() {
				change(partition, nil, func(st *folded) { st.Gone++ })
			}
		}
	}
	want := map[string]string{}
	for partition, st := range states {
		data, _ := json.Marshal(st)
		want["state of "+partition], want["result of "+partition] = string(data), results[partition]
	}
	for name, lines := range streams {
		want[name] = strings.Join(lines, "\n")
	}
	return want
}

// see returns the same of a run and of what it wrote.
func see(t *testing.T, s *memdb.DB, r *Run, want map[string]string) map[string]string {
	got := map[string]string{}
	for k := range want {
		if p, ok := strings.CutPrefix(k, "state of "); ok {
			got[k], got["result of "+p] = state(t, r, p), result(t, r, p)
		}
	}
	for stream := range s.Dump() {
		if stream == "$links" || strings.HasPrefix(stream, "$out-") || strings.HasSuffix(stream, "result") || strings.HasSuffix(stream, "-partitions") {
			var lines []string
			for _, e := range s.Seen(stream) {
				lines = append(lines, e.Type+" "+string(e.Data))
			}
			got[stream] = strings.Join(lines, "\n")
		}
	}
	return got
}

// changeInput does something random to the input.
func changeInput(rng *rand.Rand, s *memdb.DB, deletes bool) {
	stream := streamNames[rng.IntN(len(streamNames))]
	switch what := rng.IntN(15); {
	case what == 0 && deletes && s.Info(stream).Last >= 0:
		s.Delete(event.SoftDelete, stream)
	case what == 1 && deletes:
		s.SetMetadata(stream, `{"k":"meta","v":3}`)
	case what == 2 && deletes && s.Info(stream).Last >= 0: // Hidden events are still in the log.
		s.SetMetadata(stream, fmt.Sprintf(`{"k":"hides","v":4,"$tb":%d}`, s.Info(stream).Last))
	case what == 3: // A link in an ordinary stream does not count as an event of fromAll.
		add(s, "linked", event.TypeLink, "0@"+stream, "")
	default:
		add(s, stream, []string{"T", "U", "V"}[rng.IntN(3)], fmt.Sprintf(`{"k":"%c","v":%d}`, 'x'+rune(rng.IntN(3)), rng.IntN(10)), "")
		category, _, _ := strings.Cut(stream, "-")
		add(s, "$ce-"+category, event.TypeLink, fmt.Sprintf("%d@%s", s.Info(stream).Last, stream), fmt.Sprintf(`{"$o":%q}`, stream))
	}
}

// Random scripts over random streams, stopped, aborted and lost at random, give what a fold in
// memory gives.
func TestModel(t *testing.T) {
	first := uint64(time.Now().UnixNano())
	for seed := first; seed < first+30; seed++ {
		rng := rand.New(rand.NewPCG(seed, 1))
		p := randomProgram(rng)
		ok := t.Run(fmt.Sprint(seed), func(t *testing.T) {
			t.Logf("seed %d: %s", seed, p.text())
			synctest.Test(t, func(t *testing.T) { runModel(t, rng, &p) })
		})
		if !ok {
			return
		}
	}
}

func runModel(t *testing.T, rng *rand.Rand, p *program) {
	s := memdb.Open(t, memdb.Options{})
	for range 10 {
		changeInput(rng, s, false)
	}
	if s.Info("a-1").Last >= 0 && rng.IntN(2) == 0 {
		s.SetMetadata("a-1", `{"$tb":2}`)
	}
	compile := func() (handler.Handler, error) {
		return script.Compile(p.text(), script.Options{Name: "p", MayEmit: true})
	}
	begin := func() *Run {
		o := realOptions(s, handler.Definition{})
		h := check.Value(compile()).Must(t)
		h.Close()
		o.Definition, o.Compile, o.Config.CheckpointHandledThreshold = h.Definition(), compile, 1+rng.Int64N(8)
		return Start(t.Context(), o)
	}
	r := begin()
	for range 40 {
		for range 1 + rng.IntN(4) {
			changeInput(rng, s, p.source == "all")
		}
		if rng.IntN(2) == 0 {
			synctest.Wait()
		}
		if what := rng.IntN(12); what < 3 {
			[]func(*Run){(*Run).Stop, (*Run).Abort, (*Run).Close}[what](r)
			<-r.Done()
			r = begin()
		}
	}
	synctest.Wait()
	if f := r.Statistics(); f.Ending != Unfinished {
		t.Fatalf("%s", f.Reason)
	}
	want := p.fold(s)
	got := see(t, s, r, want)
	r.Close()
	// A missing result and an empty one look the same.
	maps.DeleteFunc(want, func(_, v string) bool { return v == "" })
	maps.DeleteFunc(got, func(_, v string) bool { return v == "" })
	mustBeSame(t, got, want)
}
