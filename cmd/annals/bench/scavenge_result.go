package bench

import (
	"fmt"
	"io"
	"strings"
	"text/tabwriter"
)

// appendStatistics is what was measured before, during or after a scavenge, or in a phase of it.
type appendStatistics struct {
	Name       string                 `json:"name"`
	Single     *metrics               `json:"single"` // one writer; null if it had no turn
	Many       *metrics               `json:"many"`   // all writers; null if they had no turn
	Readers    *metrics               `json:"readers,omitempty"`
	Errors     map[string]*errorCount `json:"errors"`
	ErrorTotal int64                  `json:"errorTotal"`
}

// line is a line of progress.
func (f *appendStatistics) line() string {
	var b strings.Builder
	fmt.Fprintf(&b, "%s:", f.Name)
	for _, part := range []*metrics{f.Single, f.Many, f.Readers} {
		if part != nil {
			fmt.Fprintf(&b, " %s %.0f/s p99 %.3f ms;", part.Name, part.OperationsPerSecond, part.LatencyMs.P99)
		}
	}
	fmt.Fprintf(&b, " errors %d", f.ErrorTotal)
	return b.String()
}

// scavengeRatios compare with what was measured before the scavenge.
type scavengeRatios struct {
	Rate       float64 `json:"rate"` // appends a second of all writers
	SingleRate float64 `json:"singleRate"`
	SingleP99  float64 `json:"singleP99"`
	ManyP99    float64 `json:"manyP99"`
	ReadersP99 float64 `json:"readersP99,omitempty"`
}

func ratiosOf(f, before *appendStatistics) scavengeRatios {
	rate := func(f *metrics) float64 { return f.OperationsPerSecond }
	p99 := func(f *metrics) float64 { return f.LatencyMs.P99 }
	of := func(value func(*metrics) float64, f, before *metrics) float64 {
		if f == nil || before == nil {
			return 0
		}
		return ratio(value(f), value(before))
	}
	return scavengeRatios{
		Rate: of(rate, f.Many, before.Many), SingleRate: of(rate, f.Single, before.Single),
		SingleP99: of(p99, f.Single, before.Single), ManyP99: of(p99, f.Many, before.Many), ReadersP99: of(p99, f.Readers, before.Readers),
	}
}

// scavengeRound is one scavenge and what was measured around it.
type scavengeRound struct {
	Round       int                 `json:"round"`
	Removable   int64               `json:"removableEvents"` // of this round
	Before      *appendStatistics   `json:"before"`
	During      *appendStatistics   `json:"during"`
	Phases      []*appendStatistics `json:"duringPhases"`
	After       *appendStatistics   `json:"after"`
	DuringRatio scavengeRatios      `json:"duringRatios"`
	AfterRatio  scavengeRatios      `json:"afterRatios"`
	Run         runStatistics       `json:"scavenge"`
	CPU         cpuStatistics       `json:"duringCPU"`
}

func (r *scavengeRound) compare() {
	r.DuringRatio, r.AfterRatio = ratiosOf(r.During, r.Before), ratiosOf(r.After, r.Before)
}

// scavengeMedians are over the rounds.
type scavengeMedians struct {
	Seconds              float64 `json:"seconds"`
	MBPerSecond          float64 `json:"mbPerSecond"`
	ExecutionMBPerSecond float64 `json:"executionMBPerSecond"`
	scavengeRatios
}

// scavengeReport is what all rounds came to, as --json writes it.
type scavengeReport struct {
	Bases           []string         `json:"bases"`
	Workers         int              `json:"workers"`
	Readers         int              `json:"readers"`
	Events          int64            `json:"events"`
	Streams         int              `json:"streams"`
	EventBytes      int              `json:"eventBytes"`
	Threads         int              `json:"threads"`
	Threshold       int              `json:"threshold"`
	ThrottlePercent int              `json:"throttlePercent"`
	Rounds          []*scavengeRound `json:"rounds"`
	Medians         scavengeMedians  `json:"medians"`
	Interrupted     bool             `json:"interrupted"`
}

func (s *scavengeReport) conclude() {
	of := func(value func(*scavengeRound) float64) float64 {
		var all []float64
		for _, r := range s.Rounds {
			all = append(all, value(r))
		}
		return median(all)
	}
	s.Medians = scavengeMedians{
		Seconds:              of(func(r *scavengeRound) float64 { return r.Run.Seconds }),
		MBPerSecond:          of(func(r *scavengeRound) float64 { return r.Run.MBPerSecond }),
		ExecutionMBPerSecond: of(func(r *scavengeRound) float64 { return r.Run.executionRate() }),
		scavengeRatios: scavengeRatios{
			Rate:       of(func(r *scavengeRound) float64 { return r.DuringRatio.Rate }),
			SingleRate: of(func(r *scavengeRound) float64 { return r.DuringRatio.SingleRate }),
			SingleP99:  of(func(r *scavengeRound) float64 { return r.DuringRatio.SingleP99 }),
			ManyP99:    of(func(r *scavengeRound) float64 { return r.DuringRatio.ManyP99 }),
			ReadersP99: of(func(r *scavengeRound) float64 { return r.DuringRatio.ReadersP99 }),
		},
	}
}

func (r *runStatistics) executionRate() float64 {
	for _, p := range r.Phases {
		if strings.HasPrefix(p.Phase, "Chunk execution") {
			return p.MBPerSecond
		}
	}
	return 0
}

// table writes the report for people. The help of the command explains it.
func (s *scavengeReport) table(to io.Writer) error {
	var b strings.Builder
	for _, r := range s.Rounds {
		if err := s.round(&b, r); err != nil {
			return err
		}
	}
	m := &s.Medians
	fmt.Fprintf(&b, "median of %d: scavenge %.2f s, %.0f MB/s, execution %.0f MB/s; while it ran rate x %.2f, p99 of one writer x %.2f, of %d writers x %.2f",
		len(s.Rounds), m.Seconds, m.MBPerSecond, m.ExecutionMBPerSecond, m.Rate, m.SingleP99, s.Workers, m.ManyP99)
	if s.Readers > 0 {
		fmt.Fprintf(&b, ", of readers x %.2f", m.ReadersP99)
	}
	b.WriteByte('\n')
	if s.Interrupted {
		b.WriteString("interrupted: only whole rounds are shown\n")
	}
	_, err := io.WriteString(to, b.String())
	return err
}

func (s *scavengeReport) round(b *strings.Builder, r *scavengeRound) error {
	fmt.Fprintf(b, "round %d: %d events of %d bytes in %d streams, %d removable; threads %d, threshold %d, throttle %d %%\n\n",
		r.Round, s.Events, s.EventBytes, s.Streams, r.Removable, s.Threads, s.Threshold, s.ThrottlePercent)
	t := tabwriter.NewWriter(b, 0, 0, 2, ' ', tabwriter.AlignRight)
	header := fmt.Sprintf("\t%d writers/s\tp50 ms\tp99 ms\tmax ms\t1 writer/s\tp50 ms\tp99 ms\tmax ms\t", s.Workers)
	if s.Readers > 0 {
		header += "reads/s\tp50 ms\tp99 ms\tmax ms\t"
	}
	_, _ = fmt.Fprint(t, header, "errors\t\n") // What a tabwriter cannot write shows when it is flushed.
	row := func(f *appendStatistics, indent string) {
		_, _ = fmt.Fprintf(t, "%s%s\t%s%s", indent, f.Name, cells(f.Many), cells(f.Single))
		if s.Readers > 0 {
			_, _ = fmt.Fprint(t, cells(f.Readers))
		}
		_, _ = fmt.Fprintf(t, "%d\t\n", f.ErrorTotal)
	}
	row(r.Before, "")
	row(r.During, "")
	for _, p := range r.Phases {
		row(p, "  ")
	}
	row(r.After, "")
	if err := t.Flush(); err != nil {
		return err
	}
	for _, c := range []struct {
		name   string
		ratios *scavengeRatios
	}{{"during", &r.DuringRatio}, {"after", &r.AfterRatio}} {
		x := c.ratios
		fmt.Fprintf(b, "\n%s to before: rate %.2f, of one writer %.2f; p99 of %d writers %.2f, of one %.2f", c.name, x.Rate, x.SingleRate, s.Workers, x.ManyP99, x.SingleP99)
		if s.Readers > 0 {
			fmt.Fprintf(b, ", of readers %.2f", x.ReadersP99)
		}
	}
	b.WriteString("\n\n")
	t = tabwriter.NewWriter(b, 0, 0, 2, ' ', tabwriter.AlignRight)
	_, _ = fmt.Fprint(t, "\tseconds\twent through\t\ta second\tMB/s\t\n")
	for _, p := range r.Run.Phases {
		mb := ""
		if p.MBPerSecond > 0 {
			mb = fmt.Sprintf("%.0f", p.MBPerSecond)
		}
		_, _ = fmt.Fprintf(t, "%s\t%.2f\t%d\t%s\t%.0f\t%s\t\n", p.Phase, p.Seconds, p.Units, p.Unit, p.PerSecond, mb)
	}
	_, _ = fmt.Fprintf(t, "whole\t%.2f\t%d\tbytes\t%.0f\t%.0f\t\n", r.Run.Seconds, r.Run.InputBytes, r.Run.MBPerSecond*1e6, r.Run.MBPerSecond)
	if err := t.Flush(); err != nil {
		return err
	}
	fmt.Fprintf(b, "\nremoved %d events, saved %.1f MB; chunk files executed %d, skipped %d, merged %d\n", r.Run.EventsRemoved, float64(r.Run.BytesSaved)/1e6,
		r.Run.ChunksExecuted, r.Run.ChunksSkipped, r.Run.ChunksMerged)
	if r.CPU.ServerSecondsByPid != nil {
		fmt.Fprintf(b, "cpu while it ran: driver %.2f s; servers %.2f s\n", r.CPU.DriverSeconds, r.CPU.ServerSeconds)
	}
	if r.CPU.ServersNotMeasured != "" {
		fmt.Fprintf(b, "cpu of servers not measured: %s\n", r.CPU.ServersNotMeasured)
	}
	for _, f := range []*appendStatistics{r.Before, r.During, r.After} {
		for kind, e := range f.Errors {
			fmt.Fprintf(b, "error %s: %d %s, for example: %s\n", f.Name, e.Count, kind, e.Example)
		}
	}
	b.WriteByte('\n')
	return nil
}

// cells are the columns of what one kind of client did.
func cells(f *metrics) string {
	if f == nil {
		return "-\t-\t-\t-\t"
	}
	l := &f.LatencyMs
	return fmt.Sprintf("%.0f\t%.3f\t%.3f\t%.3f\t", f.OperationsPerSecond, l.P50, l.P99, l.Max)
}
