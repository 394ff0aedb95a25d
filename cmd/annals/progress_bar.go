package main

import (
	"fmt"
	"io"
	"time"

	"github.com/annalsdb/annals/admin/scavenge"
)

const (
	// barColumns is how wide a terminal must be for bars: a line that is broken
	// leaves a copy of itself whenever it is drawn again.
	barColumns = 60

	barWidth    = 24
	leastBar    = 6
	aroundBar   = len(" 100% []  ") + 2 // and the cursor after a space
	rateOver    = 10 * time.Second
	usualScreen = 80
)

// phaseBars draws a bar for each phase of a run, one line below the other.
type phaseBars struct {
	w       io.Writer
	columns func() int // of the terminal, which may change; 0: not known
	clock   func() time.Time

	bar  *bar        // nil: none is drawn
	run  scavengeRun // as drawn last
	rate rateMeter
	open bool // the cursor stands after a bar
}

func (b *phaseBars) show(run *scavengeRun) {
	if run.Phase == scavenge.PhaseIdle || run.Phase == "" {
		return
	}
	r := *run
	r.Done, r.Total = max(0, r.Done), max(0, r.Total)
	if r.Total > 0 {
		r.Done = min(r.Done, r.Total)
	}
	switch {
	case b.bar == nil:
		b.begin(&r)
	case r.Phase != b.run.Phase:
		b.finish(true)
		b.begin(&r)
	case r.Total != b.run.Total || r.Done < b.run.Done:
		// A phase may find more to do, or begin again. The bar cannot, once it is full.
		b.begin(&r)
	}
	b.run = r
	b.draw(true)
}

// draw draws the bar as the run is.
func (b *phaseBars) draw(running bool) {
	if b.bar.full {
		return
	}
	b.bar.columns = b.room()
	b.bar.draw(b.run.Done, b.description(b.rate.perSecond(b.clock(), b.run.Done), running))
	b.open = !b.bar.full
}

// room returns how many columns there are.
func (b *phaseBars) room() int {
	if columns := b.columns(); columns > 0 {
		return columns
	}
	return usualScreen
}

// begin makes a bar. It is drawn over one that is not full, and below one that is.
func (b *phaseBars) begin(run *scavengeRun) {
	b.bar = &bar{w: b.w, size: run.Total}
	b.rate.begin(b.clock(), run.Done)
}

// description is the text after the bar: as much as there is room for.
func (b *phaseBars) description(rate float64, underWay bool) string {
	r := &b.run
	text := visible(phaseName(r.Phase))
	parts := []string{"", humanBytes(r.Saved) + " saved"}
	switch {
	case r.Total > 0:
		parts[0] = visible(amount(r.Done, r.Unit) + " of " + amount(r.Total, r.Unit) + unitWord(r.Unit))
	case r.Done > 0:
		parts[0] = visible(amount(r.Done, r.Unit) + unitWord(r.Unit))
	}
	if underWay && rate > 0 {
		parts = append(parts, visible(perSecond(rate, r.Unit)))
		if left := float64(r.Total-r.Done) / rate; r.Total > 0 && left < (1000*time.Hour).Seconds() {
			parts = append(parts, (time.Duration(left)*time.Second).String()+" left")
		}
	}
	columns := b.room()
	separator := ": "
	for _, part := range parts {
		if part == "" {
			continue
		}
		if longer := text + separator + part; len(longer) <= columns-aroundBar-leastBar {
			text, separator = longer, ", "
		}
	}
	return text
}

// finish ends the line of the bar, which is full if its phase has been completed.
func (b *phaseBars) finish(completed bool) {
	if b.bar != nil && b.open {
		switch {
		case completed && b.run.Total > 0:
			b.run.Done = b.run.Total
			b.draw(false)
		default:
			b.bar.end()
		}
	}
	b.bar, b.open = nil, false
}

// pause leaves what is drawn where it is and goes to the next line; the bar is
// drawn again below what is printed there.
func (b *phaseBars) pause() {
	if b.open {
		_, _ = fmt.Fprintln(b.w)
		b.open = false
	}
}

func (b *phaseBars) end(completed bool) { b.finish(completed) }

// rateMeter measures a rate, over the last ten to twenty seconds.
type rateMeter struct {
	from, next rateSample
}

type rateSample struct {
	at   time.Time
	done int64
}

// begin forgets what was before.
func (m *rateMeter) begin(now time.Time, done int64) {
	m.from = rateSample{now, done}
	m.next = m.from
}

// perSecond takes a sample and returns the rate, 0 if it is not known yet.
func (m *rateMeter) perSecond(now time.Time, done int64) float64 {
	if now.Sub(m.next.at) >= rateOver {
		m.from, m.next = m.next, rateSample{now, done}
	}
	took := now.Sub(m.from.at).Seconds()
	if took < 1 {
		return 0
	}
	return float64(done-m.from.done) / took
}
