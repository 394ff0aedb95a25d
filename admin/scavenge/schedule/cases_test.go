package schedule

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/annalsdb/annals/admin/scavenge"
	"github.com/annalsdb/annals/event"
	"github.com/annalsdb/annals/internal/check"
)

// inWorld runs a test in a cluster whose nodes have a schedule and are not started.
func inWorld(t *testing.T, size, replicas int, expression string, test func(w *world)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, uint64(size), size, replicas)
		for _, n := range w.nodes {
			n.expression = expression
			n.skew = 0
			n.duration = func() time.Duration { return 20 * time.Minute }
		}
		defer w.close()
		test(w)
	})
}

// told returns the turns of the rounds so far: when due, and who had which result.
func (w *world) told() (list []string) {
	w.mu.Lock()
	defer w.mu.Unlock()
	for _, r := range w.rounds() {
		text := r.Due.Format("02 15:04")
		for i := range r.Turns {
			text += fmt.Sprintf(" %s=%s", strings.TrimSuffix(r.Turns[i].Endpoint, ":2113"), r.Turns[i].Result)
		}
		if r.Turn != nil {
			text += fmt.Sprintf(" %s...", strings.TrimSuffix(r.Turn.Endpoint, ":2113"))
		}
		list = append(list, strings.TrimSpace(text+" "+r.Result))
	}
	return list
}

func (w *world) expect(want ...string) {
	w.t.Helper()
	if got := w.told(); !slices.Equal(got, want) {
		w.errorf("rounds are\n%s\nexpected\n%s", strings.Join(got, "\n"), strings.Join(want, "\n"))
	}
}

// leads makes a node the leader.
func (w *world) leads(n *node) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.lead(n)
}

func TestSingleNode(t *testing.T) {
	inWorld(t, 1, 0, "@hourly", func(w *world) {
		w.pass(10 * time.Minute)
		w.startAll()
		w.pass(2 * time.Hour)
		w.expect("01 01:00 node1=Success Completed", "01 02:00 node1...")
		if r := w.record(); r.Round == nil || r.Round.Turn == nil || r.Last == nil || r.Last.Result != RoundComplete || len(r.Schedules) != 1 {
			w.errorf("the record is %+v", r)
		}
		if due := int64(w.nodes[0].scheduler.nextDue()); time.Unix(due, 0).UTC().Hour() != 3 {
			w.errorf("scavenges are due next at %d", due)
		}
	})
}

func TestLeaderIsLast(t *testing.T) {
	inWorld(t, 3, 1, "0 2 * * *", func(w *world) {
		w.startAll()
		w.leads(w.nodes[0])
		w.pass(4 * time.Hour)
		got := w.told()
		if len(got) != 1 || !strings.HasSuffix(got[0], " node1=Success Completed") || strings.Count(got[0], "=Success") != 4 {
			w.errorf("%v", got)
		}
		if w.leader == w.nodes[0] {
			w.errorf("leadership was not handed over")
		}
	})
}

func TestLeaderThatCannotHandOver(t *testing.T) {
	inWorld(t, 3, 0, "0 2 * * *", func(w *world) {
		w.handsOver = 0
		w.startAll()
		w.leads(w.nodes[1])
		w.pass(4 * time.Hour)
		got := w.told()
		if len(got) != 1 || !strings.HasSuffix(got[0], " node2=Success Completed") || strings.Count(got[0], "=Success") != 3 {
			w.errorf("%v", got)
		}
	})
}

func TestNodesWithoutSchedule(t *testing.T) {
	inWorld(t, 3, 0, "0 2 * * *", func(w *world) {
		w.nodes[0].expression, w.nodes[1].expression = "", ""
		w.startAll()
		w.leads(w.nodes[0])
		w.pass(3 * time.Hour)
		w.expect("01 02:00 node3=Success Completed")
	})
}

// A node that takes turns by the stream and has a version that does not know of
// them, or hangs, delays a round and does not stop it.
func TestHungNode(t *testing.T) {
	inWorld(t, 3, 0, "0 2 * * *", func(w *world) {
		w.startAll()
		w.leads(w.nodes[0])
		w.pass(time.Hour)
		w.nodes[1].stop()
		w.nodes[1].hung = true
		w.nodes[1].start()
		w.pass(3 * time.Hour)
		w.expect("01 02:00 node3=Success node1=Success Completed")
	})
}

func TestRestartInTurn(t *testing.T) {
	inWorld(t, 1, 0, "0 2 * * *", func(w *world) {
		w.startAll()
		w.pass(2*time.Hour + 15*time.Minute)
		w.nodes[0].stop()
		w.pass(24 * time.Minute)
		w.nodes[0].start()
		w.pass(4 * time.Minute)
		w.expect("01 02:00 node1...")
		w.pass(2 * time.Minute)
		w.expect("01 02:00 node1=Success Completed")
	})
}

func TestCrashLoopEndsTurn(t *testing.T) {
	inWorld(t, 3, 0, "0 2 * * *", func(w *world) {
		bad := w.nodes[2]
		w.startAll()
		w.leads(w.nodes[0])
		w.pass(2 * time.Hour)
		for range 200 {
			w.pass(30 * time.Second)
			w.mu.Lock()
			crash := bad.run != nil
			w.mu.Unlock()
			if crash {
				bad.remaining = 0
				bad.stop()
				bad.remaining = 0
				w.pass(time.Minute)
				bad.start()
			}
		}
		got := w.told()
		if len(got) != 1 || !strings.Contains(got[0], "node3=Errored") || strings.Count(got[0], "=Success") != 2 || !strings.HasSuffix(got[0], "Completed") {
			w.errorf("%v", got)
		}
	})
}

func TestLostTurn(t *testing.T) {
	for _, cut := range []bool{false, true} {
		t.Run(fmt.Sprintf("cut off %t", cut), func(t *testing.T) {
			inWorld(t, 3, 0, "0 2 * * *", func(w *world) {
				w.nodes[0].expression = ""
				first := w.nodes[1]
				w.startAll()
				w.leads(w.nodes[0])
				w.pass(2*time.Hour + 5*time.Minute)
				w.expect("01 02:00 node2...")
				if cut {
					first.cutOff(true)
				} else {
					first.stop()
				}
				w.pass(4 * time.Minute)
				w.expect("01 02:00 node2...")
				w.pass(2 * time.Minute)
				w.expect("01 02:00 node2=Lost node3...")
				// It comes back: its scavenge ends while it is the turn of another, and is its turn
				// later.
				if cut {
					first.cutOff(false)
				} else {
					first.start()
				}
				w.pass(time.Minute)
				if first.run != nil {
					w.errorf("the node whose turn was lost is still scavenged")
				}
				w.pass(time.Hour)
				w.expect("01 02:00 node2=Lost node3=Success node2=Success Completed")
			})
		})
	}
}

// A node that is cut off sees all others dead, and must not act on that when it is back.
func TestCutOffNodeEndsNoTurn(t *testing.T) {
	inWorld(t, 3, 0, "0 2 * * *", func(w *world) {
		w.startAll()
		w.leads(w.nodes[0])
		w.pass(2*time.Hour + time.Minute)
		w.expect("01 02:00 node2...")
		w.nodes[2].cutOff(true)
		w.pass(10 * time.Minute)
		w.nodes[2].cutOff(false)
		w.pass(7 * time.Minute)
		w.expect("01 02:00 node2...")
		w.pass(time.Hour)
		w.expect("01 02:00 node2=Success node3=Success node1=Success Completed")
	})
}

func TestSlowNodeIsNotOvertaken(t *testing.T) {
	inWorld(t, 3, 0, "0 2 * * *", func(w *world) {
		w.nodes[1].duration = func() time.Duration { return 25 * time.Hour }
		w.startAll()
		w.leads(w.nodes[0])
		w.pass(26 * time.Hour)
		w.expect("01 02:00 node2...")
		w.pass(2 * time.Hour)
		// Times that were due meanwhile are done with.
		w.expect("01 02:00 node2=Success node3=Success node1=Success Completed")
	})
}

func TestMissedTimes(t *testing.T) {
	cases := []struct {
		name, expression string
		back             time.Duration
		want             []string
	}{
		{"one", "0 2 * * *", 9 * time.Hour, []string{"01 02:00 node1=Success Completed"}},
		{"several count as one", "0 */2 * * *", 9*time.Hour + 15*time.Minute, []string{"01 08:00 node1=Success Completed"}},
		{"too long ago", "0 2 1 * *", 27 * time.Hour, nil},
	}
	for _, c := range cases {
		t.Run(c.name, func(t *testing.T) {
			inWorld(t, 1, 0, c.expression, func(w *world) {
				w.pass(time.Minute)
				w.startAll()
				w.pass(30 * time.Minute)
				w.nodes[0].stop()
				w.pass(c.back - 31*time.Minute)
				w.startAll()
				w.pass(30 * time.Minute)
				w.expect(c.want...)
			})
		})
	}
}

func TestNewExpressionMissesNothing(t *testing.T) {
	inWorld(t, 1, 0, "0 2 * * *", func(w *world) {
		w.startAll()
		w.pass(time.Hour)
		w.nodes[0].stop()
		w.pass(9 * time.Hour)
		w.nodes[0].expression = "0 4 * * *"
		w.startAll()
		w.pass(10 * time.Hour)
		w.expect()
		w.pass(9 * time.Hour)
		w.expect("02 04:00 node1=Success Completed")
	})
}

func TestScheduleRemovedInTurn(t *testing.T) {
	inWorld(t, 3, 0, "0 2 * * *", func(w *world) {
		w.startAll()
		w.leads(w.nodes[0])
		w.pass(2*time.Hour + time.Minute)
		w.expect("01 02:00 node2...")
		for _, i := range []int{1, 2, 0} {
			w.nodes[i].stop()
			w.nodes[i].expression = ""
			w.pass(time.Minute)
			w.nodes[i].start()
			w.pass(time.Minute)
		}
		w.pass(3 * 24 * time.Hour)
		got := w.told()
		if len(got) != 1 || !strings.HasPrefix(got[0], "01 02:00 node2=Withdrawn") || !strings.HasSuffix(got[0], RoundAbandon) {
			w.errorf("%v", got)
		}
		if r := w.record(); len(r.Schedules) != 0 {
			w.errorf("still there: %v", r.Schedules)
		}
	})
}

func TestDifferentExpressions(t *testing.T) {
	inWorld(t, 3, 0, "0 2 * * *", func(w *world) {
		w.nodes[1].expression = "0 2,6 * * *"
		w.startAll()
		w.leads(w.nodes[0])
		w.pass(10 * time.Hour)
		got := w.told()
		if len(got) != 2 || !strings.HasPrefix(got[0], "01 02:00") || !strings.HasPrefix(got[1], "01 06:00") ||
			strings.Count(strings.Join(got, ""), "=Success") != 6 {
			w.errorf("%v", got)
		}
	})
}

func TestOperatorsScavenge(t *testing.T) {
	inWorld(t, 1, 0, "0 2 * * *", func(w *world) {
		n := w.nodes[0]
		begin := func() {
			w.mu.Lock()
			defer w.mu.Unlock()
			check.NoError(t, check.Err(n.begin(false)))
		}
		w.startAll()
		w.pass(2*time.Hour - 10*time.Minute)
		begin() // Before the round: the turn waits for it and is another one.
		w.pass(15 * time.Minute)
		w.expect("01 02:00 node1...")
		w.pass(20 * time.Minute)
		w.expect("01 02:00 node1...")
		w.pass(10 * time.Minute)
		w.expect("01 02:00 node1=Success Completed")
	})
	inWorld(t, 3, 0, "0 2 * * *", func(w *world) {
		n := w.nodes[0]
		w.startAll()
		w.leads(n)
		w.pass(2*time.Hour + 5*time.Minute)
		w.mu.Lock()
		_, err := n.begin(false) // In the round, before the turn: it counts.
		w.mu.Unlock()
		w.pass(36 * time.Minute)
		got := w.told()
		if err != nil || len(got) != 1 || !strings.HasSuffix(got[0], "node1=Success Completed") {
			w.errorf("%v, %v", err, got)
		}
	})
}

func TestOperatorStopsScheduledRun(t *testing.T) {
	inWorld(t, 1, 0, "0 2 * * *", func(w *world) {
		w.startAll()
		w.pass(2*time.Hour + 5*time.Minute)
		if _, err := (*fakeRunner)(w.nodes[0]).Stop(t.Context(), w.nodes[0].run.status.ID); err != nil {
			t.Error(err)
		}
		w.pass(time.Minute)
		w.expect("01 02:00 node1=Stopped Completed")
		w.pass(10 * time.Hour)
		w.expect("01 02:00 node1=Stopped Completed")
	})
}

func TestScavengeThatCannotStart(t *testing.T) {
	cases := []struct {
		err  error
		took time.Duration
	}{
		{scavenge.ErrInMemory, time.Minute},
		{errors.New("disk on fire"), time.Minute},
		{event.ErrChunksLocked, startPatience + time.Minute},
	}
	for _, c := range cases {
		t.Run(c.err.Error(), func(t *testing.T) {
			inWorld(t, 1, 0, "0 2 * * *", func(w *world) {
				w.nodes[0].startErr = c.err
				w.startAll()
				w.pass(2*time.Hour + c.took)
				w.expect("01 02:00 node1=Errored Completed")
				if r := w.rounds()[0]; !strings.Contains(r.Turns[0].Error, c.err.Error()) {
					w.errorf("%q", r.Turns[0].Error)
				}
			})
		})
	}
	t.Run("for a while", func(t *testing.T) {
		inWorld(t, 1, 0, "0 2 * * *", func(w *world) {
			w.nodes[0].startErr = event.ErrChunksLocked
			w.startAll()
			w.pass(2*time.Hour + 10*time.Minute)
			w.mu.Lock()
			w.nodes[0].startErr = nil
			w.mu.Unlock()
			w.pass(21 * time.Minute)
			w.expect("01 02:00 node1=Success Completed")
		})
	})
}

// A stream that is deleted is forgotten, with the turn that is held.
func TestStreamDeleted(t *testing.T) {
	inWorld(t, 3, 0, "0 2 * * *", func(w *world) {
		w.startAll()
		w.leads(w.nodes[0])
		w.pass(2*time.Hour + 5*time.Minute)
		w.mu.Lock()
		w.metadata.TruncateBefore = event.TombstoneNumber
		w.wake()
		w.mu.Unlock()
		w.pass(4 * time.Hour)
		for _, n := range w.nodes {
			if n.run != nil {
				w.errorf("%s is scavenged though no node knows of a round", n.name)
			}
		}
		if r := w.record(); r.Round != nil || len(r.Schedules) != 1 {
			w.errorf("%+v", r)
		}
		w.pass(23 * time.Hour)
		if r := w.record(); r.Last == nil || r.Last.Due.Day() != 2 || len(r.Last.Turns) != 3 {
			w.errorf("%+v", r)
		}
	})
	inWorld(t, 1, 0, "0 2 * * *", func(w *world) {
		w.deleted = true
		w.startAll()
		w.pass(5 * time.Hour)
		synctest.Wait()
		if warned := fmt.Sprint(w.nodes[0].scheduler.warned); !strings.Contains(warned, "deleted for good") {
			w.errorf("%s", warned)
		}
	})
}

func TestMetadata(t *testing.T) {
	inWorld(t, 1, 0, "* * * * *", func(w *world) {
		w.nodes[0].duration = func() time.Duration { return time.Second }
		w.startAll()
		w.pass(8 * time.Minute)
		want := event.Metadata{Retention: event.Retention{MaxCount: keptEvents}}
		if w.metadata.MaxCount != want.MaxCount || !slices.Equal(w.metadata.ACL.Read, []string{"$ops"}) || w.metadata.ACL.Write == nil {
			w.errorf("%+v", w.metadata)
		}
		w.mu.Lock()
		w.metadata = event.Metadata{Retention: event.Retention{MaxCount: 3}}
		w.metaLast++
		w.mu.Unlock()
		w.pass(8 * time.Minute)
		if w.metadata.MaxCount != want.MaxCount {
			w.errorf("%+v", w.metadata)
		}
	})
}

// A node whose clock was years ahead must not keep the cluster from its rounds.
func TestClockAhead(t *testing.T) {
	inWorld(t, 3, 0, "0 2 * * *", func(w *world) {
		w.nodes[1].skew = 10 * 365 * 24 * time.Hour
		w.startAll()
		w.leads(w.nodes[0])
		w.pass(26 * time.Hour)
		w.nodes[1].stop()
		w.nodes[1].skew = 0
		w.startAll()
		w.pass(5 * 24 * time.Hour)
		own := 0
		for _, line := range w.told() {
			if strings.Count(line, "=Success") == 3 {
				own++
			}
		}
		if own < 5 || own > 7 {
			w.errorf("%d rounds: %v", own, w.told())
		}
	})
}

// What makes no sense in the stream, written by hand, does no harm.
func TestStrangeEvents(t *testing.T) {
	inWorld(t, 1, 0, "0 2 * * *", func(w *world) {
		n := w.nodes[0]
		w.startAll()
		w.pass(time.Hour)
		w.write(n, TypeRecord, "text")
		w.write(n, "other", record{Round: &round{Due: time.Now()}})
		w.pass(65 * time.Minute)
		w.write(n, TypeRecord, []int{7})
		w.write(n, "$scavengeRoundStarted", map[string]any{"round": time.Now(), "node": n.id})
		w.pass(2 * time.Hour)
		w.expect("01 02:00 node1=Success Completed")
	})
}

func TestNewRefuses(t *testing.T) {
	check.Fails(t, check.Err(New(Options{Expression: "often"})), "accepted")
	check.NoError(t, check.Err(New(Options{})))
}
