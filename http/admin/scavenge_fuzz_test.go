package admin

import (
	"errors"
	"net/http"
	"net/url"
	"strconv"
	"strings"
	"testing"

	"github.com/annalsdb/annals/http/problem"
)

func FuzzScavengeQuery(f *testing.F) {
	for _, s := range []string{
		"", "threads=2&throttlePercent=100", "startFromChunk=-1", "threshold=-2147483648&syncOnly=TRUE", "dryRun=true&top=1000", "threads=%32&&=&a=%zz", "THREADS=+7+&threads=x",
		"throttlePercent=100.0", "top=0", "syncOnly", "threads=1;threads=2",
	} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, raw string) {
		o, err := parseScavenge(raw)
		if err != nil {
			var p *problem.Problem
			if !errors.As(err, &p) || p.Status != http.StatusBadRequest || p.Text == "" {
				t.Fatalf("%q: %v", raw, err)
			}
			return
		}
		if o.Threads < 1 || o.ThrottlePercent < 1 || o.ThrottlePercent > 100 || o.Threads > 1 && o.ThrottlePercent < 100 || o.top < 1 || o.top > maxTop {
			t.Fatalf("%q gave %+v", raw, o)
		}
		// What was read says the same when it is written again.
		again := url.Values{
			"threads": {strconv.Itoa(o.Threads)}, "threshold": {strconv.Itoa(o.Threshold)}, "throttlePercent": {strconv.Itoa(o.ThrottlePercent)},
			"syncOnly": {strconv.FormatBool(o.SyncOnly)}, "dryRun": {strconv.FormatBool(o.dryRun)}, "top": {strconv.Itoa(o.top)},
		}
		if got, err := parseScavenge(again.Encode()); err != nil || got != o {
			t.Fatalf("%q gave %+v, and then %+v, %v", raw, o, got, err)
		}
		// One parameter in plain letters is what it looks like.
		if v, ok := strings.CutPrefix(raw, "threads="); ok && !strings.ContainsAny(v, "&;%+") {
			if n, err := strconv.Atoi(strings.TrimSpace(v)); err != nil || n != o.Threads {
				t.Fatalf("%q gave %d threads", raw, o.Threads)
			}
		}
	})
}
