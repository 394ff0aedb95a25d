package replication

import (
	"testing"
	"time"

	"github.com/hashicorp/go-hclog"
)

// Most clocks, this node's among them, show which clock is wrong. Without a majority none is.
func TestJudgeClocks(t *testing.T) {
	const s, tolerance = time.Second, time.Minute
	for _, c := range []struct {
		name   string
		ahead  []time.Duration
		behind time.Duration
		alone  bool
		want   clockState
		most   time.Duration
	}{
		{name: "no node answers", want: clockRight},
		{name: "no node answers, and the log is ahead", behind: 90 * s, want: clockRight},
		{name: "all agree", ahead: []time.Duration{s, -s}, want: clockRight},
		{name: "at the tolerance", ahead: []time.Duration{60 * s, 60 * s}, want: clockRight},
		{name: "the others are ahead", ahead: []time.Duration{61 * s, 62 * s}, want: clockOdd, most: 62 * s},
		{name: "the others are behind", ahead: []time.Duration{-61 * s, -62 * s}, want: clockOdd, most: -61 * s},
		{name: "another one is odd", ahead: []time.Duration{3600 * s, s}, want: clockRight},
		{name: "another one is odd, two do not answer", ahead: []time.Duration{3600 * s, s, -s, 2 * s}, want: clockRight},
		{name: "two of five are odd, this among them", ahead: []time.Duration{s, 3600 * s, 3601 * s, 3602 * s}, want: clockOdd, most: 3601 * s},
		{name: "two", ahead: []time.Duration{3600 * s}, want: clockDiffers},
		{name: "two and two", ahead: []time.Duration{s, 3600 * s, 3601 * s}, want: clockDiffers},
		{name: "all differ", ahead: []time.Duration{-3600 * s, 3600 * s}, want: clockDiffers},
		{name: "a row in which neighbours agree", ahead: []time.Duration{50 * s, 100 * s}, want: clockRight},
		{name: "most agree, and the log is ahead", ahead: []time.Duration{s, -s}, behind: 3600 * s, want: logAhead},
		{name: "odd, and the log is ahead", ahead: []time.Duration{3600 * s, 3600 * s}, behind: 3600 * s, want: clockOdd, most: 3600 * s},
		{name: "alone", alone: true, behind: -3600 * s, want: clockRight},
		{name: "alone, at the tolerance", alone: true, behind: 60 * s, want: clockRight},
		{name: "alone, behind the log", alone: true, behind: 61 * s, want: clockBehind},
	} {
		t.Run(c.name, func(t *testing.T) {
			if got, most := judgeClocks(c.ahead, c.behind, tolerance, c.alone); got != c.want || most != c.most {
				t.Errorf("%d, %v; want %d, %v", got, most, c.want, c.most)
			}
		})
	}
}

// What the time of a question and its answer may explain does not count.
func TestClockOffset(t *testing.T) {
	asked := time.Unix(1000, 0)
	for _, c := range []struct{ theirs, took, want time.Duration }{
		{1000 * time.Second, 0, 0},
		{1010 * time.Second, 0, 10 * time.Second},
		{990 * time.Second, 0, -10 * time.Second},
		{1010 * time.Second, 4 * time.Second, 6 * time.Second},
		{990 * time.Second, 4 * time.Second, -10 * time.Second},
		{1003 * time.Second, 4 * time.Second, 0},
		{1000 * time.Second, 4 * time.Second, 0},
	} {
		if got := clockOffset(int64(c.theirs), asked, c.took); got != c.want {
			t.Errorf("%v after %v: %v, want %v", c.theirs, c.took, got, c.want)
		}
	}
}

// A clock that is set forward does not count before the others agree, however soon a caller asks.
func TestClockThatLeaps(t *testing.T) {
	right := time.Now()
	now := right
	c := &Clock{now: func() time.Time { return now }, tolerance: time.Minute}
	if age := right.Sub(c.Now()); age < 365*24*time.Hour {
		t.Errorf("no clock has agreed yet, and ages are judged by the clock less %s", age)
	}
	c.agreed.Store(&agreed{clock: right, at: time.Now()})
	for _, leap := range []time.Duration{0, 30 * time.Second, -30 * time.Second, -time.Hour} {
		if now = right.Add(leap); !c.Now().Equal(now) {
			t.Errorf("set by %s, ages are judged by %s", leap, c.Now().Sub(right))
		}
	}
	now = right.AddDate(10, 0, 0)
	if off := c.Now().Sub(right); off < 0 || off > time.Hour {
		t.Errorf("set by ten years, ages are judged by %s", off)
	}
	c.agreed.Store(&agreed{clock: now, at: time.Now()})
	if !c.Now().Equal(now) {
		t.Errorf("the others agree, and ages are judged by %s", c.Now().Sub(right))
	}
}

// What a look finds counts when three in a row find it, and others' agreement is known at once.
func TestClockIsJudgedByThreeLooks(t *testing.T) {
	others := []time.Duration{0, 0}
	k := &Clock{
		now: time.Now, tolerance: time.Minute, logger: hclog.NewNullLogger(), known: make(chan struct{}),
		newest: func() (int64, bool) { return 0, false },
		members: func() (list []looked) {
			for _, ahead := range others {
				list = append(list, looked{ahead, agreed{time.Now(), time.Now()}})
			}
			return list
		},
	}
	look := func(times int, wrong bool) {
		t.Helper()
		for range times {
			k.judge()
		}
		if err := k.Wrong(); (err != nil) != wrong {
			t.Errorf("after %d looks: %v", times, err)
		}
	}
	look(1, false)
	if err := k.Await(t.Context()); err != nil || k.agreed.Load() == nil {
		t.Errorf("they agree: %v", err)
	}
	others = []time.Duration{time.Hour, time.Hour}
	look(clockLooks-1, false)
	look(1, true)
	// within the tolerance, and not by a quarter of it
	others = []time.Duration{50 * time.Second, 50 * time.Second}
	look(clockLooks, true)
	others = []time.Duration{0, 0}
	look(clockLooks-1, true)
	others = []time.Duration{time.Hour, time.Hour}
	look(1, true)
	others = []time.Duration{0, 0}
	look(clockLooks-1, true)
	look(1, false)
}
