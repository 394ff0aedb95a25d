package main

import (
	"bytes"
	"strings"
	"testing"
	"time"

	"github.com/annalsdb/annals/admin/scavenge"
	"github.com/annalsdb/annals/internal/check"
)

func TestHumanBytes(t *testing.T) {
	for n, want := range map[int64]string{
		0: "0 B", 1023: "1023 B", 1024: "1.0 KiB", -1: "-1 B", -1536: "-1.5 KiB", 1<<20 - 1: "1.0 MiB", 256 << 20: "256.0 MiB",
		1 << 40: "1.0 TiB", 1<<63 - 1: "8.0 EiB", -1 << 63: "-8.0 EiB",
	} {
		check.Equal(t, humanBytes(n), want, n)
	}
}

func TestPhaseLines(t *testing.T) {
	var w bytes.Buffer
	now := time.Unix(0, 0)
	l := phaseLines{w: &w, host: "h", clock: func() time.Time { return now }}
	for _, c := range []struct {
		after time.Duration
		run   scavengeRun
		want  string
	}{
		{0, scavengeRun{Phase: scavenge.PhaseIdle}, "starting; 0 B saved"},
		{time.Second, scavengeRun{Phase: scavenge.PhaseAccumulation, Done: 1024, Total: 1 << 20, Unit: "bytes"}, "accumulation, 1.0 KiB of 1.0 MiB (0.1 %); 0 B saved"},
		{time.Second, scavengeRun{Phase: scavenge.PhaseAccumulation, Done: 2048, Total: 1 << 20, Unit: "bytes"}, ""},
		{4 * time.Second, scavengeRun{Phase: scavenge.PhaseAccumulation, Done: 6144, Total: 1 << 20, Unit: "bytes"}, "accumulation, 6.0 KiB of 1.0 MiB (0.6 %), 1.0 KiB/s; 0 B saved"},
		{5 * time.Second, scavengeRun{Phase: scavenge.PhaseAccumulation, Done: 6144, Total: 1 << 20, Unit: "bytes"}, "accumulation, 6.0 KiB of 1.0 MiB (0.6 %); 0 B saved"},
		{0, scavengeRun{Phase: scavenge.PhaseExecution, Done: 0, Total: 8, Unit: "chunks"}, "chunk execution, 0 of 8 chunks (0.0 %); 0 B saved"},
		{10 * time.Second, scavengeRun{Phase: scavenge.PhaseExecution, Done: 5, Total: 8, Unit: "chunks", Saved: -2048}, "chunk execution, 5 of 8 chunks (62.5 %), 0.5 chunks/s; -2.0 KiB saved"},
		{0, scavengeRun{Phase: "Odd\x1b Phase", Done: 3}, `"odd\x1b, 3 done"; 0 B saved`},
	} {
		now = now.Add(c.after)
		w.Reset()
		l.show(&c.run)
		want := ""
		if c.want != "" {
			want = "annals: scavenging h: " + c.want + "\n"
		}
		check.Equal(t, w.String(), want)
	}
}

// drawn is what stands on a terminal after some text: what is drawn over is gone.
func drawn(text string) []string {
	lines := strings.Split(text, "\n")
	for i, line := range lines {
		line = strings.ReplaceAll(line, "\x1b[0K", "")
		lines[i] = strings.TrimRight(line[strings.LastIndex(line, "\r")+1:], " ")
	}
	return lines
}

// TestPhaseBars draws what a run may tell, also what it should not.
func TestPhaseBars(t *testing.T) {
	at := func(phase scavenge.Phase, done, total int64, unit string) *scavengeRun {
		return &scavengeRun{Phase: phase, Done: done, Total: total, Unit: unit, Saved: 5 << 20}
	}
	for _, c := range []struct {
		name string
		draw func(b *phaseBars)
		bar  []string // how each line begins
		text []string // what is in it
	}{
		{"nothing", func(b *phaseBars) { b.pause(); b.end(true) }, []string{""}, []string{""}},
		{"starting", func(b *phaseBars) { b.show(at(scavenge.PhaseIdle, 0, 0, "")); b.end(false) }, []string{""}, []string{""}},
		{"phases", func(b *phaseBars) {
			b.show(at(scavenge.PhaseAccumulation, 0, 4096, "bytes"))
			b.show(at(scavenge.PhaseAccumulation, 2048, 4096, "bytes"))
			b.show(at(scavenge.PhaseExecution, 1, 8, "chunks"))
			b.show(at(scavenge.PhaseExecution, 4, 8, "chunks"))
			b.end(true)
		}, []string{" 100% [====", " 100% [====", ""}, []string{"accumulation: 4.0 KiB of 4.0 KiB, 5.0 MiB saved", "chunk execution: 8 of 8 chunks, 5.0 MiB saved", ""}},
		{"not to the end", func(b *phaseBars) {
			b.show(at(scavenge.PhaseExecution, 2, 8, "chunks"))
			b.show(at(scavenge.PhaseExecution, 4, 8, "chunks"))
			b.end(false)
		}, []string{"  50% [===", ""}, []string{"chunk execution: 4 of 8 chunks, 5.0 MiB saved", ""}},
		{"to the end by itself", func(b *phaseBars) {
			b.show(at(scavenge.PhaseMerging, 8, 8, "chunks"))
			b.show(at(scavenge.PhaseMerging, 8, 8, "chunks"))
			b.end(true)
		}, []string{" 100% [", ""}, []string{"chunk merging: 8 of 8 chunks", ""}},
		{"without a total", func(b *phaseBars) {
			b.show(at(scavenge.PhaseCalculation, 0, 0, "streams"))
			b.show(at(scavenge.PhaseCalculation, 70, 0, "streams"))
			b.show(at(scavenge.PhaseCleaning, 0, 0, ""))
			b.end(true)
		}, []string{"", "", ""}, []string{"calculation: 70 streams, 5.0 MiB saved", "cleaning: 5.0 MiB saved", ""}},
		{"a total later", func(b *phaseBars) {
			b.show(at(scavenge.PhaseIndex, 5, 0, "entries"))
			b.show(at(scavenge.PhaseIndex, 5, 10, "entries"))
			b.end(false)
		}, []string{"  50% [", ""}, []string{"index execution: 5 of 10 entries", ""}},
		{"more to do", func(b *phaseBars) {
			b.show(at(scavenge.PhaseMerging, 4, 4, "chunks"))
			b.show(at(scavenge.PhaseMerging, 4, 8, "chunks"))
			b.end(false)
		}, []string{" 100% [", "  50% [", ""}, []string{"4 of 4 chunks", "4 of 8 chunks", ""}},
		{"less to do", func(b *phaseBars) {
			b.show(at(scavenge.PhaseMerging, 4, 8, "chunks"))
			b.show(at(scavenge.PhaseMerging, 4, 3, "chunks"))
			b.end(true)
		}, []string{" 100% [", ""}, []string{"3 of 3 chunks", ""}},
		{"anew", func(b *phaseBars) {
			b.show(at(scavenge.PhaseMerging, 6, 8, "chunks"))
			b.show(at(scavenge.PhaseMerging, 2, 8, "chunks"))
			b.end(false)
		}, []string{"  25% [", ""}, []string{"2 of 8 chunks", ""}},
		{"below zero", func(b *phaseBars) {
			b.show(at(scavenge.PhaseMerging, -6, -8, "chunks"))
			b.end(false)
		}, []string{"", ""}, []string{"chunk merging: 5.0 MiB saved", ""}},
		{"an odd unit", func(b *phaseBars) {
			b.show(at("Odd", 1, 2, "\r\n"))
			b.end(false)
		}, []string{"  50% [", ""}, []string{`odd: "1 of 2 \r\n", `, ""}},
		{"interrupted by a message", func(b *phaseBars) {
			b.show(at(scavenge.PhaseMerging, 2, 8, "chunks"))
			b.pause()
			b.pause()
			b.show(at(scavenge.PhaseMerging, 4, 8, "chunks"))
			b.end(false)
		}, []string{"  25% [", "  50% [", ""}, []string{"2 of 8", "4 of 8", ""}},
		{"left after a message", func(b *phaseBars) {
			b.show(at(scavenge.PhaseMerging, 2, 8, "chunks"))
			b.pause()
			b.end(false)
		}, []string{"  25% [", ""}, []string{"2 of 8", ""}},
	} {
		t.Run(c.name, func(t *testing.T) {
			for _, columns := range []int{0, usualScreen, 120} {
				var w bytes.Buffer
				c.draw(&phaseBars{w: &w, columns: func() int { return columns }, clock: time.Now})
				lines := drawn(w.String())
				check.MustEqual(t, len(lines), len(c.text), lines)
				for i, text := range c.text {
					if text == "" && lines[i] != "" || !strings.Contains(lines[i], text) || !strings.HasPrefix(lines[i], c.bar[i]) {
						t.Errorf("line %q, want %q and %q", lines[i], c.bar[i], text)
					}
				}
			}
		})
	}
}

// TestPhaseBarsTellRates: what a run had done before it was looked at does not
// count, and what has no room is left out.
func TestPhaseBarsTellRates(t *testing.T) {
	for columns, want := range map[int]string{
		120: ", 7.0 GiB saved, 5.0 chunks/s, 16s left",
		90:  ", 7.0 GiB saved, 5.0 chunks/s, 16s left",
		89:  ", 7.0 GiB saved, 5.0 chunks/s",
		0:   ", 7.0 GiB saved, 5.0 chunks/s",
		79:  ", 7.0 GiB saved, 16s left",
		75:  ", 7.0 GiB saved",
		65:  ", 5.0 chunks/s",
		64:  ", 16s left",
		60:  "",
	} {
		var w bytes.Buffer
		now := time.Unix(0, 0)
		b := phaseBars{w: &w, columns: func() int { return columns }, clock: func() time.Time { return now }}
		r := scavengeRun{Phase: scavenge.PhaseExecution, Done: 10, Total: 100, Unit: "chunks", Saved: 7 << 30}
		b.show(&r)
		now = now.Add(2 * time.Second)
		r.Done = 20
		b.show(&r)
		lines := drawn(w.String())
		if len(lines) != 1 || !strings.HasSuffix(lines[0], "]  chunk execution: 20 of 100 chunks"+want) {
			t.Errorf("%d columns: %q, want %q", columns, lines, want)
		}
	}
}

func TestRateMeter(t *testing.T) {
	now := time.Unix(0, 0)
	var m rateMeter
	m.begin(now, 1000)
	for _, c := range []struct {
		after time.Duration
		done  int64
		want  float64
	}{
		// from the beginning
		{0, 1000, 0}, {time.Second / 2, 2000, 0}, {time.Second / 2, 1010, 10}, {9 * time.Second, 1100, 10},
		// not from there any more
		{9 * time.Second, 1190, 10}, {time.Second, 1300, 20}, {10 * time.Second, 1300, 0},
	} {
		now = now.Add(c.after)
		if got := m.perSecond(now, c.done); got != c.want {
			t.Errorf("after %v: %v, want %v", now.Sub(time.Unix(0, 0)), got, c.want)
		}
	}
}
