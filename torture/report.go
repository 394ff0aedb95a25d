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

// Summary is the result of a round.
type Summary struct {
	Verdict string  `json:"verdict"`
	Seed    uint64  `json:"seed"`
	Nodes   int     `json:"nodes"`
	Seconds float64 `json:"seconds"`

	Violations []violation    `json:"violations"`
	Counts     map[string]int `json:"violationCounts"`
	Kept       string         `json:"kept,omitempty"`

	// Counts of operations.
	Writes      map[string]int64 `json:"writes"`
	Reads       map[string]int64 `json:"reads"`
	Groups      map[string]int64 `json:"subscriptions,omitempty"`
	Scavenges   map[string]int64 `json:"scavenges,omitempty"`
	Projections map[string]int64 `json:"projections,omitempty"`
	Backups     map[string]int64 `json:"backups,omitempty"`
	Redactions  map[string]int64 `json:"redactions,omitempty"`
	Transfers   map[string]int64 `json:"transfers,omitempty"`
	Indexes     map[string]int64 `json:"indexes,omitempty"`
	Decisions   map[string]int64 `json:"decisions,omitempty"`
	Users       map[string]int64 `json:"users,omitempty"`

	LogEvents       int       `json:"logEvents"`
	LeaderChanges   int       `json:"leaderChanges"`
	Term            int64     `json:"term"`
	Linearizability linearity `json:"linearizability"`
	Verified        int       `json:"foldersVerified"`
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

func (r *round) sum(linear linearity, verified int) *Summary {
	s := &Summary{
		Verdict: noViolation, Seed: r.seed, Nodes: r.c.Voters(), Seconds: time.Since(r.start).Seconds(),
		LeaderChanges: r.watch.leaderChanges(), Linearizability: linear, Verified: verified,
	}
	s.Violations, s.Counts = r.find.list()
	if len(s.Violations) > 0 {
		s.Verdict = fmt.Sprintf("%d VIOLATIONS", r.find.total())
	}
	_, s.Term = r.watch.leading()
	s.Timeline = r.line.list()
	if r.load != nil { // Clients have begun.
		r.load.sum(s)
	}
	return s
}

// sum adds what clients did, to a summary with the timeline.
func (l *load) sum(s *Summary) {
	count := &l.count
	s.Writes, s.Reads, s.Groups, s.Scavenges = count.of(ofWrites), count.of(ofReads), count.of(ofSubscriptions), count.of(ofScavenges)
	s.Projections, s.Backups, s.Redactions = count.of(ofProjections), count.of(ofBackups), count.of(ofRedactions)
	s.Transfers, s.Indexes, s.Decisions, s.Users = count.of(ofTransfers), count.of(ofIndexes), count.of(ofDecisions), count.of(ofUsers)
	s.LogEvents, s.HistoryFull = l.book.everSeen(), l.hist.full()
	gaps := l.gaps.known()
	for _, g := range gaps {
		s.LongestGap = max(s.LongestGap, time.Duration(g.to-g.from).Seconds())
	}
	s.Outages = outages(s.Timeline, gaps, blameAfter)
}

// print writes the summary for people or for programs.
func (s *Summary) print(w io.Writer, asJSON bool) error {
	if asJSON {
		e := json.NewEncoder(w)
		e.SetIndent("", "  ")
		return e.Encode(s)
	}
	_, err := io.WriteString(w, s.Text())
	return err
}

// Bounds of what is printed for people; the JSON document has more.
const (
	shownLines      = 400
	shownViolations = 10 // of each kind
)

// Text is the summary for people.
func (s *Summary) Text() string {
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
	b.WriteString("\n")
	for _, done := range []struct {
		of     string
		counts map[string]int64
	}{
		{ofWrites, s.Writes}, {ofReads, s.Reads}, {ofSubscriptions, s.Groups}, {ofScavenges, s.Scavenges},
		{ofProjections, s.Projections}, {ofBackups, s.Backups}, {ofRedactions, s.Redactions}, {ofTransfers, s.Transfers}, {ofIndexes, s.Indexes}, {ofDecisions, s.Decisions}, {ofUsers, s.Users},
	} {
		var list []string
		for _, what := range slices.Sorted(maps.Keys(done.counts)) {
			list = append(list, fmt.Sprintf("%d %s", done.counts[what], what))
		}
		if list != nil {
			fmt.Fprintf(&b, "%s: %s\n", done.of, strings.Join(list, ", "))
		}
	}
	fmt.Fprintf(&b, "longest time without a write %.2fs\n", s.LongestGap)
	fmt.Fprintf(&b, "log: %d events; %d leader changes, term %d; %d folders verified\n", s.LogEvents, s.LeaderChanges, s.Term, s.Verified)
	fmt.Fprintf(&b, "linearizability: %d operations on %d streams", s.Linearizability.Operations, s.Linearizability.Streams)
	if s.Linearizability.Undecided > 0 {
		fmt.Fprintf(&b, ", %d streams undecided for want of time", s.Linearizability.Undecided)
	}
	b.WriteString("\n")
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
