package integration_test

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/annalsdb/annals/internal/check"
	"github.com/annalsdb/annals/internal/testkit"
)

const (
	clusterDisk     = 400 << 20
	belowTheReserve = 110 << 20 // refuses writes of clients, and stays a follower
	belowHalf       = 16 << 20  // takes nothing from a leader either
)

func (m *member) fillDisk(left int64) {
	m.cluster.t.Helper()
	check.Must(m.cluster.t, m.host.FillDisk(left))
}

func (m *member) freeDisk() {
	m.cluster.t.Helper()
	check.Must(m.cluster.t, m.host.FreeDisk())
}

// serves demands that a node answers readings.
func (m *member) serves(stream string) {
	m.cluster.t.Helper()
	if answer, err := m.ask(testkit.Request{Path: "/streams/" + stream}); err != nil || answer.Status != http.StatusOK {
		m.cluster.t.Errorf("%s does not serve %s: %s, %v", m, stream, answer, err)
	}
}

// TestLongClusterDiskFull takes the space away from one node after the other, and then from all:
// acknowledged events stay, reads still work, and everything works again by itself when there is
// space.
func TestLongClusterDiskFull(t *testing.T) {
	t.Parallel()
	c := startCluster(t, clusterOptions{disk: clusterDisk, options: patientWrites})
	l := c.startLoad(seed(t), 6, loadPatience)
	l.more(t, 100)
	leader, followers := c.settled()
	leader.append("before", bigEvent(1))
	c.level(leader) // The stream is there on the leader; the followers follow below.

	t.Run("follower", func(t *testing.T) {
		c.in(t)
		full := followers[0]
		full.fillDisk(belowHalf)
		l.more(t, 100)
		testkit.Eventually(t, settleLimit, func() error { return full.stands() })
		at := check.Value(full.end()).Must(t)
		l.more(t, 200)
		full.serves("before")
		if now, err := full.end(); err != nil || now != at {
			t.Errorf("the full follower went from %d to %d, %v", at, now, err)
		}
		if n := c.said(handedOver); n > 0 {
			t.Errorf("the leader handed over %d times because a follower is full", n)
		}
		full.freeDisk()
		c.settled()
	})

	t.Run("leader", func(t *testing.T) {
		c.in(t)
		leader, followers := c.settled()
		leader.fillDisk(belowTheReserve)
		t.Logf("%s took over", c.leader(followers...))
		l.more(t, 100)
		leader.serves("before")
		leader.freeDisk()
		c.settled()
	})

	t.Run("all", func(t *testing.T) {
		c.in(t)
		for _, m := range c.members {
			m.fillDisk(belowTheReserve)
		}
		var refused testkit.Response
		n := 0
		testkit.Eventually(t, settleLimit, func() error {
			for _, m := range c.members {
				n++
				w := &write{stream: "refused", expected: -2, events: []testkit.Event{bigEvent(10_000 + n)}}
				l.ledger.begin(w)
				ctx, cancel := context.WithTimeout(t.Context(), 5*time.Second)
				answer, err := m.Append(ctx, w.stream, -2, false, w.events...)
				cancel()
				switch {
				case err != nil:
					return err
				case answer.Status == http.StatusCreated:
					number, err := answer.FirstNumber(w.stream)
					if err != nil {
						return err
					}
					l.ledger.ack(w, number)
					return errors.New("a write is still taken")
				case answer.Status == http.StatusServiceUnavailable && strings.Contains(strings.ToLower(answer.String()), "disk"):
					refused = answer
				}
			}
			if refused.Status == 0 {
				return errors.New("no node refuses a write for lack of disk space")
			}
			return nil
		})
		t.Logf("refused: %s", refused)
		for _, m := range c.members {
			m.serves("before")
		}
		for _, m := range c.members {
			m.freeDisk()
		}
		l.more(t, 100)
		c.settled()
	})

	// Another program takes the last byte: the node may end, and starts when there is space.
	t.Run("follower filled up", func(t *testing.T) {
		c.in(t)
		leader, followers := c.settled()
		full := followers[1]
		full.fillDisk(0)
		l.more(t, 200)
		full.freeDisk()
		at := check.Value(leader.end()).Must(t)
		// A write that failed just before may end the node only now. A node that takes entries
		// again keeps serving.
		testkit.Eventually(t, settleLimit, func() error {
			select {
			case <-full.process.Done():
				t.Logf("%s ended with code %d", full, full.process.ExitCode())
				full.start()
			default:
			}
			if end, err := full.end(); err != nil || end < at {
				return fmt.Errorf("%s is at %d of %d, %v", full, end, at, err)
			}
			return nil
		})
		c.settled()
		l.more(t, 50)
	})
	l.finish(t)
	t.Logf("answers: %s", l.told())
	c.onlyHealing(l)
	c.acknowledgedOnce(l.ledger)
	c.finish()
}

// stands says whether the node's log does not grow, although it is written to.
func (m *member) stands() error {
	before, err := m.end()
	if err != nil {
		return err
	}
	if err := pause(m.cluster.t.Context(), 300*time.Millisecond); err != nil {
		return err
	}
	after, err := m.end()
	if err == nil && after != before {
		err = fmt.Errorf("the log of %s went from %d to %d", m, before, after)
	}
	return err
}
