package torture

import (
	"encoding/json"
	"fmt"
	"io"
	"maps"
	"slices"
	"strings"
	"text/tabwriter"
	"time"
)

// summary is the result of a round.
type summary struct {
	Verdict string  `json:"verdict"`
	Seed    uint64  `json:"seed"`
	Nodes   int     `json:"nodes"`
	Seconds float64 `json:"seconds"`

	Violations []violation    `json:"violations"`
	Counts     map[string]int `json:"violationCounts"`
	Kept       string         `json:"kept,omitempty"`

	Writes struct {
		OK            int64 `json:"ok"`
		WrongVersion  int64 `json:"wrongVersion"`
		Refused       int64 `json:"refused"`
		Indeterminate int64 `json:"indeterminate"`
		Events        int64 `json:"eventsAcknowledged"`
		Replays       int64 `json:"sentAgain"`
		Deletes       int64 `json:"deletes"`
	} `json:"writes"`
	Reads struct {
		Leader    int64 `json:"leader"`
		Pages     int64 `json:"pages"`
		Failed    int64 `json:"failed"`
		Redirects int64 `json:"redirects"`
	} `json:"reads"`
	LatencyMilliseconds map[string]float64    `json:"writeLatencyMilliseconds"`
	LogEvents           int                   `json:"logEvents"`
	LeaderChanges       int                   `json:"leaderChanges"`
	Term                int64                 `json:"term"`
	Linearizability     linearity             `json:"linearizability"`
	Verified            int                   `json:"foldersVerified"`
	Groups              *groupStatistics      `json:"subscriptions,omitempty"`
	Scavenges           *scavengeStatistics   `json:"scavenges,omitempty"`
	Projections         *projectionStatistics `json:"projections,omitempty"`
	Backups             *backupStatistics     `json:"backups,omitempty"`
	Redactions          *redactionStatistics  `json:"redactions,omitempty"`
	// HistoryFull says that clients ended early because the history could not hold more.
	HistoryFull bool `json:"historyFull"`
	// LongestGap is the longest time without a successful write, in seconds.
	LongestGap float64     `json:"longestGapSeconds"`
	Outages    []outage    `json:"outages"`
	Timeline   []happening `json:"timeline"`
}

const noViolation = "NO VIOLATION"

// blameAfter is how long after its end a fault still answers for a gap.
const blameAfter = int64(2 * time.Second)

func (r *round) sum(linear linearity, groups *groupStatistics, projections *projectionStatistics, verified int) *summary {
	count := &r.load.count
	s := &summary{Verdict: noViolation, Seed: r.seed, Nodes: r.c.voters(), Seconds: time.Since(r.start).Seconds()}
	s.Violations, s.Counts = r.find.list()
	if len(s.Violations) > 0 {
		s.Verdict = fmt.Sprintf("%d VIOLATIONS", r.find.total())
	}
	s.Writes.OK, s.Writes.WrongVersion = count.writes[done].Load(), count.writes[conflict].Load()
	s.Writes.Refused, s.Writes.Indeterminate = count.writes[refused].Load(), count.writes[pending].Load()
	s.Writes.Events, s.Writes.Replays, s.Writes.Deletes = count.events.Load(), count.replays.Load(), count.deletes.Load()
	s.Reads.Leader, s.Reads.Pages = count.reads.Load(), count.pages.Load()
	s.Reads.Failed, s.Reads.Redirects = count.failed.Load(), count.hops.Load()
	s.LatencyMilliseconds = map[string]float64{}
	for name, q := range quantiles {
		s.LatencyMilliseconds[name] = float64(count.latency.quantile(q)) / float64(time.Millisecond)
	}
	s.LogEvents = r.load.book.everSeen()
	s.LeaderChanges = r.watch.leaderChanges()
	_, s.Term = r.watch.leading()
	s.Linearizability, s.Groups, s.Projections, s.Verified, s.HistoryFull = linear, groups, projections, verified, r.load.hist.full()
	if r.scavenger != nil {
		r.scavenger.sum.Limits = count.limits.Load()
		for _, e := range r.shedders {
			for i := range e.streams {
				if e.streams[i].hard {
					r.scavenger.sum.Ended++
				}
			}
		}
		s.Scavenges = &r.scavenger.sum
	}
	if r.redactor != nil {
		s.Redactions = &r.redactor.sum
	}
	if r.backer != nil {
		s.Backups = &r.backer.sum
	}
	s.Timeline = r.line.list()
	gaps := r.load.gaps.known()
	for _, g := range gaps {
		s.LongestGap = max(s.LongestGap, time.Duration(g.to-g.from).Seconds())
	}
	s.Outages = outages(s.Timeline, gaps, blameAfter)
	return s
}

var quantiles = map[string]float64{"p50": 0.5, "p90": 0.9, "p99": 0.99, "p99.9": 0.999, "max": 1}

// print writes the summary for people or for programs.
func (s *summary) print(w io.Writer, asJSON bool) error {
	if asJSON {
		e := json.NewEncoder(w)
		e.SetIndent("", "  ")
		return e.Encode(s)
	}
	_, err := io.WriteString(w, s.text())
	return err
}

// Bounds of what is printed for people; the JSON document has more.
const (
	shownLines      = 400
	shownViolations = 10 // of each kind
)

func (s *summary) text() string {
	var b strings.Builder
	b.WriteString("timeline:\n")
	for _, h := range s.Timeline[:min(len(s.Timeline), shownLines)] {
		length := ""
		if h.Until > 0 {
			length = fmt.Sprintf(" (for %s)", seconds(h.Until-h.At))
		}
		what := h.What
		if h.Fault != "" {
			what = h.Fault + ": " + what
		}
		fmt.Fprintf(&b, "  %9s  %-6s  %s%s\n", seconds(h.At), h.Kind, what, length)
	}
	if more := len(s.Timeline) - shownLines; more > 0 {
		fmt.Fprintf(&b, "  ... and %d more lines\n", more)
	}
	if len(s.Outages) > 0 {
		b.WriteString("\ntimes without a successful write:\n")
		t := tabwriter.NewWriter(&b, 0, 0, 2, ' ', 0)
		// Nothing that writes into a builder fails.
		_, _ = fmt.Fprintln(t, "  fault\ttimes\tlongest\tmean")
		for _, o := range s.Outages {
			_, _ = fmt.Fprintf(t, "  %s\t%d\t%.2fs\t%.2fs\n", o.Fault, o.Times, o.LongestGap, o.MeanGap)
		}
		_ = t.Flush()
	}
	fmt.Fprintf(&b, "\nwrites: %d ok (%d events), %d wrong version, %d refused, %d indeterminate; %d sent again, %d deletions\n",
		s.Writes.OK, s.Writes.Events, s.Writes.WrongVersion, s.Writes.Refused, s.Writes.Indeterminate, s.Writes.Replays, s.Writes.Deletes)
	fmt.Fprintf(&b, "write latency: p50 %.1f ms, p90 %.1f ms, p99 %.1f ms, p99.9 %.1f ms, max %.1f ms; longest time without a write %.2fs\n",
		s.LatencyMilliseconds["p50"], s.LatencyMilliseconds["p90"], s.LatencyMilliseconds["p99"], s.LatencyMilliseconds["p99.9"],
		s.LatencyMilliseconds["max"], s.LongestGap)
	fmt.Fprintf(&b, "reads: %d on the leader, %d pages anywhere, %d without answer; %d redirects followed\n",
		s.Reads.Leader, s.Reads.Pages, s.Reads.Failed, s.Reads.Redirects)
	fmt.Fprintf(&b, "log: %d events; %d leader changes, term %d; %d folders verified\n", s.LogEvents, s.LeaderChanges, s.Term, s.Verified)
	fmt.Fprintf(&b, "linearizability: %d operations on %d streams", s.Linearizability.Operations, s.Linearizability.Streams)
	if s.Linearizability.Undecided > 0 {
		fmt.Fprintf(&b, ", %d streams undecided for want of time", s.Linearizability.Undecided)
	}
	b.WriteString("\n")
	if s.Groups != nil {
		b.WriteString(s.Groups.text())
	}
	if s.Scavenges != nil {
		b.WriteString(s.Scavenges.text())
	}
	if s.Projections != nil {
		b.WriteString(s.Projections.text())
	}
	if s.Backups != nil {
		b.WriteString(s.Backups.text())
	}
	if s.Redactions != nil {
		b.WriteString(s.Redactions.text())
	}
	if s.HistoryFull {
		b.WriteString("the history was full before the end, see --operations: clients ended early\n")
	}
	b.WriteString("\n")
	shown := map[string]int{}
	for _, v := range s.Violations {
		if shown[v.Kind]++; shown[v.Kind] <= shownViolations {
			fmt.Fprintf(&b, "violation: %s, found at %.3fs: %s\n", v.Kind, v.AtSeconds, v.Text)
		}
	}
	for _, kind := range slices.Sorted(maps.Keys(s.Counts)) {
		if n := s.Counts[kind]; n > shownViolations {
			fmt.Fprintf(&b, "%s: %d in all, %d shown\n", kind, n, shownViolations)
		}
	}
	if s.Kept != "" {
		fmt.Fprintf(&b, "evidence is kept in %s\n", s.Kept)
	}
	fmt.Fprintf(&b, "%s (seed %d, %d nodes, %.1fs)\n", s.Verdict, s.Seed, s.Nodes, s.Seconds)
	return b.String()
}
