package main

import (
	"cmp"
	"errors"
	"fmt"
	"io"
	"strconv"
	"strings"
	"time"

	"github.com/annalsdb/annals/admin/scavenge"
)

// scavengeRun is a run as a node describes it. Servers of other products may leave out
// all but the id and the result.
type scavengeRun struct {
	Node      string          `json:"node"`
	ID        string          `json:"scavengeId"`
	Result    scavenge.Result `json:"scavengeResult"`
	Error     string          `json:"error"`
	Started   string          `json:"started"` // an instant by RFC 3339, or empty
	Ended     string          `json:"ended"`
	Resumed   bool            `json:"resumed"`
	Threads   int             `json:"threads"`
	Threshold int             `json:"threshold"`
	Throttle  int             `json:"throttlePercent"`
	Point     *scavenge.Point `json:"point"`
	Phase     scavenge.Phase  `json:"phase"`
	Done      int64           `json:"done"`
	Total     int64           `json:"total"` // 0: not known
	Unit      string          `json:"unit"`
	Saved     int64           `json:"bytesSaved"`
	Removed   int64           `json:"eventsRemoved"`
	Executed  int             `json:"chunksExecuted"`
	Skipped   int             `json:"chunksSkipped"`
	Merged    int             `json:"chunksMerged"`
}

// unitBytes is the unit that is shown in powers of 1024.
const unitBytes = "bytes"

// phaseName is a phase within a sentence.
func phaseName(p scavenge.Phase) string {
	if p == scavenge.PhaseIdle || p == "" {
		return "starting"
	}
	return strings.ToLower(strings.TrimSuffix(string(p), " Phase"))
}

// amount is a number of the unit of a phase.
func amount(n int64, unit string) string {
	if unit == unitBytes {
		return humanBytes(n)
	}
	return strconv.FormatInt(n, 10)
}

// unitWord follows an amount; that of bytes has its unit.
func unitWord(unit string) string {
	if unit == unitBytes {
		return ""
	}
	return " " + cmp.Or(unit, "done")
}

// progress says how far the phase is.
func (r *scavengeRun) progress() string {
	unit := unitWord(r.Unit)
	switch {
	case r.Total > 0:
		return fmt.Sprintf("%s of %s%s (%.1f %%)", amount(r.Done, r.Unit), amount(r.Total, r.Unit), unit, 100*float64(r.Done)/float64(r.Total))
	case r.Done > 0:
		return amount(r.Done, r.Unit) + unit
	}
	return ""
}

// humanBytes is a number of bytes as people read it.
func humanBytes(n int64) string {
	const units = "KMGTPE"
	v, unit := float64(n), -1
	for (v >= 1023.95 || v <= -1023.95) && unit < len(units)-1 {
		v /= 1024
		unit++
	}
	if unit < 0 {
		return fmt.Sprintf("%d B", n)
	}
	return fmt.Sprintf("%.1f %ciB", v, units[unit])
}

// print prints what is known of a run, or that there is none.
func (r *scavengeRun) print(w io.Writer, asJSON bool, now time.Time) error {
	if asJSON {
		return printJSON(w, r)
	}
	if r.ID == "" {
		_, err := fmt.Fprintf(w, "no scavenge is running on %s, and none has since it started; earlier ones are in the stream $scavenges\n", r.Node)
		return err
	}
	var t table
	row := func(name, format string, args ...any) { t.row(name+"\t"+format, args...) }
	row("node", "%s", r.Node)
	row("scavenge", "%s", visible(r.ID))
	running := r.Result == scavenge.ResultInProgress
	if running {
		state := "running: " + phaseName(r.Phase)
		if p := r.progress(); p != "" {
			state += ", " + p
		}
		row("state", "%s", visible(state))
	} else {
		row("result", "%s", visible(string(r.Result)))
	}
	if r.Error != "" {
		row("error", "%s", visible(r.Error))
	}
	started, known := instant(r.Started)
	if known {
		resumed := ""
		if r.Resumed {
			resumed = ", resumes a run that was stopped"
		}
		row("started", "%s%s", second(started), resumed)
	}
	if ended, over := instant(r.Ended); over {
		row("ended", "%s", second(ended))
		now = ended
	}
	if known && (running || r.Ended != "") {
		row("time taken", "%v", max(0, now.Sub(started)).Round(time.Millisecond*100))
	}
	if p := r.Point; p != nil {
		row("point", "%d@$scavengePoints at position %d, of %s, threshold %d", p.Number, p.Position, second(p.EffectiveNow), p.Threshold)
	}
	if r.Threads > 0 {
		row("threads", "%d, active %d %% of the time", r.Threads, cmp.Or(r.Throttle, 100))
	}
	row("removed", "%d events, %s", r.Removed, humanBytes(r.Saved))
	row("chunk files", "%d rewritten, %d left as they are, %d merged", r.Executed, r.Skipped, r.Merged)
	return t.print(w)
}

// conclude prints how a run ended, and returns an error that has the exit code of
// that when it did not succeed.
func (r *scavengeRun) conclude(w io.Writer, asJSON bool) error {
	if err := r.print(w, asJSON, time.Now()); err != nil {
		return err
	}
	switch r.Result {
	case scavenge.ResultSuccess:
		return nil
	case scavenge.ResultStopped:
		return &codedError{code: exitStopped, err: fmt.Errorf("scavenge %s on %s was stopped; the next start resumes it", visible(r.ID), r.Node)}
	}
	return errors.New(visible(fmt.Sprintf("scavenge %s on %s failed: %s", r.ID, r.Node, cmp.Or(r.Error, string(r.Result)))))
}

// instant reads an instant, which a node may leave out.
func instant(text string) (time.Time, bool) {
	t, err := time.Parse(time.RFC3339, text)
	return t, err == nil && !t.IsZero()
}

func second(t time.Time) string { return t.UTC().Format("2006-01-02 15:04:05 UTC") }
