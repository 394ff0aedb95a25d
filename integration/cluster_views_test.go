package integration_test

import (
	"context"
	"crypto/sha256"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"testing"

	"github.com/annalsdb/annals/internal/check"
	"github.com/annalsdb/annals/internal/testkit"
)

// ask sends a request that must get an answer of any kind.
func (m *member) ask(r testkit.Request) (testkit.Response, error) {
	ctx, cancel := context.WithTimeout(m.cluster.t.Context(), settleLimit)
	defer cancel()
	return m.Do(ctx, r)
}

// order sends a POST of an administrator that must succeed.
func (m *member) order(path string) {
	t := m.cluster.t
	t.Helper()
	must(t, m, testkit.Request{Method: http.MethodPost, Path: path, Admin: true}, http.StatusOK)
}

// askJSON reads a document.
func (m *member) askJSON(path string, into any) error {
	answer, err := m.ask(testkit.Request{Path: path, Admin: true, Header: map[string]string{"Accept": testkit.MediaJSON}})
	if err != nil {
		return err
	}
	if answer.Status != http.StatusOK {
		return fmt.Errorf("%s on %s: %s", path, m, answer)
	}
	return json.Unmarshal(answer.Body, into)
}

// state is what the node says that it is, in lower case.
func (m *member) state() (string, error) {
	var info struct{ State string }
	err := m.askJSON("/info", &info)
	return info.State, err
}

// gossiped is a member as gossip shows it.
type gossiped struct {
	Node     string `json:"instanceId"`
	State    string `json:"state"`
	Alive    bool   `json:"isAlive"`
	IP       string `json:"httpEndPointIp"`
	Writer   int64  `json:"writerCheckpoint"`
	EpochID  string `json:"epochId"`
	Priority int    `json:"nodePriority"`
	ReadOnly bool   `json:"isReadOnlyReplica"`
}

func (m *member) gossip() ([]gossiped, error) {
	var view struct{ Members []gossiped }
	err := m.askJSON("/gossip", &view)
	return view.Members, err
}

// listed is a member as annals cluster list shows it.
type listed struct {
	Node     string `json:"nodeId"`
	State    string `json:"state"`
	Alive    bool   `json:"isAlive"`
	Voter    bool   `json:"voter"`
	ReadOnly bool   `json:"readOnly"`
	Address  string `json:"replicationAddress"`
}

func (m *member) list() ([]listed, error) {
	var list []listed
	err := m.askJSON("/admin/cluster/members", &list)
	return list, err
}

// voters are the ids of those that vote, as this node knows them.
func (m *member) voters() ([]string, error) {
	list, err := m.list()
	var ids []string
	for _, l := range list {
		if l.Voter {
			ids = append(ids, l.Node)
		}
	}
	slices.Sort(ids)
	return ids, err
}

// id is the node id of the member at an address as another one knows it.
func (m *member) id(of *member) string {
	t := m.cluster.t
	t.Helper()
	list := check.Value(m.list()).Must(t)
	for _, l := range list {
		if l.Address == of.replication() && l.Alive {
			return l.Node
		}
	}
	t.Fatalf("%s knows no node at %s: %+v", m, of.replication(), list)
	return ""
}

// running are the members whose node was started and not ended by the test.
func (c *cluster) running() []*member {
	var list []*member
	for _, m := range c.members {
		if m.process != nil {
			list = append(list, m)
		}
	}
	return list
}

// others are the running members but one.
func (c *cluster) others(m *member) []*member {
	return slices.DeleteFunc(c.running(), func(o *member) bool { return o == m })
}

// settled waits until those members, or all that run, are one cluster: one leads,
// and all others follow it.
func (c *cluster) settled(among ...*member) (leader *member, followers []*member) {
	c.t.Helper()
	if len(among) == 0 {
		among = c.running()
	}
	testkit.Eventually(c.t, settleLimit, func() error {
		leader, followers = nil, nil
		for _, m := range among {
			select {
			case <-m.process.Done():
				c.t.Fatalf("%s ended with code %d", m, m.process.ExitCode())
			default:
			}
			state, err := m.state()
			switch {
			case err != nil:
				return err
			case state == "leader" && leader != nil:
				return fmt.Errorf("%s and %s both lead", leader, m)
			case state == "leader":
				leader = m
			case state == "follower" || state == "readonlyreplica":
				followers = append(followers, m)
			default:
				return fmt.Errorf("%s is %s", m, state)
			}
		}
		if leader == nil {
			return errors.New("no node leads")
		}
		for _, m := range among {
			members, err := m.gossip()
			if err != nil {
				return err
			}
			alive := 0
			for _, g := range members {
				if g.Alive && slices.ContainsFunc(among, func(o *member) bool { return o.host.Addr() == g.IP }) {
					alive++
				}
				if g.Alive && g.State == "Leader" && g.IP != leader.host.Addr() {
					return fmt.Errorf("to %s the node at %s leads, and not %s", m, g.IP, leader)
				}
			}
			if alive != len(among) {
				return fmt.Errorf("to %s %d of %d nodes are alive", m, alive, len(among))
			}
		}
		return nil
	})
	return leader, followers
}

// leader waits until one of those members, or of all that run, leads and is ready for writes.
func (c *cluster) leader(among ...*member) (leader *member) {
	c.t.Helper()
	if len(among) == 0 {
		among = c.running()
	}
	testkit.Eventually(c.t, settleLimit, func() error {
		for _, m := range among {
			if state, err := m.state(); err == nil && state == "leader" {
				leader = m
				return nil
			}
		}
		return errors.New("no node leads")
	})
	return leader
}

// end is where the node's own log ends.
func (m *member) end() (int64, error) {
	members, err := m.gossip()
	if err != nil {
		return 0, err
	}
	for _, g := range members {
		if g.IP == m.host.Addr() && g.Alive {
			return g.Writer, nil
		}
	}
	return 0, fmt.Errorf("%s does not know itself: %+v", m, members)
}

// level waits until the logs of those members, or all that run, end at the same position.
func (c *cluster) level(among ...*member) {
	c.t.Helper()
	if len(among) == 0 {
		among = c.running()
	}
	testkit.Eventually(c.t, settleLimit, func() error {
		first, err := among[0].end()
		if err != nil {
			return err
		}
		for _, m := range among[1:] {
			end, err := m.end()
			if err != nil {
				return err
			}
			if end != first {
				return fmt.Errorf("the log of %s ends at %d, that of %s at %d", among[0], first, m, end)
			}
		}
		return nil
	})
}

// identical demands that all nodes serve the same events at the same positions,
// and returns what they serve.
func (c *cluster) identical(among ...*member) *mirror {
	c.t.Helper()
	if len(among) == 0 {
		among = c.running()
	}
	c.same(among...)
	seen := newMirror()
	if err := seen.advance(c.t.Context(), among[0].Client); err != nil {
		c.t.Fatalf("%s: %v", among[0], err)
	}
	return seen
}

// same is identical for who does not demand that every id is there once.
func (c *cluster) same(among ...*member) {
	c.t.Helper()
	if len(among) == 0 {
		among = c.running()
	}
	// What a node writes by itself, as projections do, may come between two reads.
	testkit.Eventually(c.t, settleLimit, func() error {
		c.level(among...)
		var first []string
		for i, m := range among {
			all := check.Value(contents(c.t.Context(), m.Client)).Must(c.t, m)
			if i == 0 {
				first = all
			}
			for k := range min(len(first), len(all)) {
				if first[k] != all[k] {
					c.t.Fatalf("%s and %s differ in line %d of all events:\n%s\n%s", among[0], m, k, first[k], all[k])
				}
			}
			if len(first) != len(all) {
				return fmt.Errorf("%s has %d events, %s has %d", among[0], len(first), m, len(all))
			}
		}
		return nil
	})
}

// contents reads all events in small pages. The addresses of these hold positions, so that equal
// contents lie at equal positions. The stream of who did what is left out, together with its
// metadata: it is written after the answer, and so may come between two pages.
func contents(ctx context.Context, c *testkit.Client) (lines []string, err error) {
	page := strings.Replace(testkit.AllStart, fmt.Sprint(testkit.PageLimit), "100", 1)
	for {
		feed, ok, err := c.ReadFeed(ctx, page, nil)
		if err != nil || !ok {
			return nil, fmt.Errorf("read %s: there: %t, %w", page, ok, err)
		}
		if len(feed.Entries) == 0 {
			return lines, nil
		}
		for _, e := range slices.Backward(feed.Entries) {
			if e.Stream == "$operations" || e.Stream == "$$$operations" {
				continue
			}
			lines = append(lines, fmt.Sprintf("%s: %d@%s %s %s %x", page, e.Number, e.Stream, e.ID, e.Type, sha256.Sum256([]byte(e.Data))))
		}
		page = strings.TrimPrefix(feed.Links.Of("previous"), c.URL())
	}
}

// eventuallyGossiped waits until what a node knows of another one is as it should be.
func eventuallyGossiped(t *testing.T, at, of *member, what string, is func(gossiped) bool) {
	t.Helper()
	testkit.Eventually(t, settleLimit, func() error {
		view, err := at.gossip()
		if err != nil {
			return err
		}
		for _, g := range view {
			if g.IP == of.host.Addr() && is(g) {
				return nil
			}
		}
		return fmt.Errorf("%s does not know %s of %s: %+v", at, what, of, view)
	})
}
