package integration_test

import (
	"context"
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/annalsdb/annals/internal/check"
	"github.com/annalsdb/annals/internal/testkit"
)

// TestClusterRedaction: the data of redacted events are nowhere on any disk, and everything else
// stays as it was. Torture redacts on nodes with the other store of the Raft log as well.
func TestClusterRedaction(t *testing.T) {
	t.Parallel()
	c := startCluster(t, clusterOptions{options: []string{"--raft-log-store", "Wal", "--enable-unix-socket"}})
	needle := "needle-" + strings.Repeat("y", 9) + fmt.Sprint(time.Now().UnixNano())
	sting := func() testkit.Event {
		id := fmt.Sprintf("40000000-0000-4000-8000-%012d", c.number())
		return testkit.Event{ID: id, Type: "Secret", Data: []byte(`{"secret":"` + needle + `"}`)}
	}
	for range 3 {
		c.leader().append("private", sting())
		c.leader().append("private", c.small(1)...)
	}
	c.leader().append("at@sign", c.small(1)...)
	c.leader().append("at@sign", sting(), sting(), sting(), sting(), sting())
	named := "0@private,2@private,4@private,1@at@sign"
	leader := c.leader()
	if out := leader.redact(1, "--node", leader.URL(), "--all-nodes", "--events", named); !strings.Contains(out, "its chunk is still being written") {
		t.Fatalf("the active chunk: %s", out)
	}
	leader.scavenge("") // Its point completes the chunk, everywhere.
	c.level()
	group := leader.readAhead("private")
	before := check.Value(contents(t.Context(), leader.Client)).Must(t)
	if out := leader.redact(1, "--node", leader.URL(), "--all-nodes", "--events", named+",9@private"); !strings.Contains(out, "9@private: there is no such event") {
		t.Fatalf("an event that is not there: %s", out)
	}
	if out := leader.redact(0, "--node", leader.URL(), "--all-nodes", "--events", named, "--reason", "asked to"); strings.Count(out, ": redacted (") != 12 {
		t.Fatalf("redacted: %s", out)
	}
	for _, m := range c.members {
		after, err := contents(t.Context(), m.Client)
		if err != nil || len(after) < len(before) {
			t.Fatalf("%s shows %d events of %d, %v", m, len(after), len(before), err)
		}
		for i, was := range before {
			redacted := false
			for event := range strings.SplitSeq(named, ",") {
				redacted = redacted || strings.Contains(was, ": "+event+" ")
			}
			if is := after[i]; redacted == (is == was) {
				t.Errorf("%s: %s\nwas %s", m, is, was)
			}
		}
	}
	if handed := group(); strings.Contains(handed, needle) || !strings.Contains(handed, "0@private") {
		t.Errorf("a group that had read ahead hands out %s", handed)
	}
	// The others one at a time over the socket, with the node killed in the middle.
	victim := c.others(c.leader())[0]
	for n := 2; n <= 5; n++ {
		event := fmt.Sprintf("%d@at@sign", n)
		asked := make(chan struct{})
		go func() {
			defer close(asked)
			ctx, cancel := context.WithTimeout(t.Context(), time.Duration(n-1)*4*time.Millisecond)
			defer cancel()
			// Whether it is answered is not what this is about.
			_, _ = victim.Do(ctx, testkit.Request{Method: http.MethodPost, Path: "/admin/redact", Body: []byte(`{"events":["` + event + `"]}`)})
		}()
		<-asked
		victim.kill()
		victim.start()
		c.settled()
		victim.redact(0, "--db", victim.db(), "--events", event)
	}
	for _, m := range c.others(victim) {
		m.redact(0, "--node", m.URL(), "--events", "2@at@sign,3@at@sign,4@at@sign,5@at@sign")
	}
	gone := func() {
		t.Helper()
		for _, m := range c.members {
			if found := holding(t, m.db(), needle); len(found) > 0 {
				t.Errorf("%s: what was redacted is still in %v", m, found)
			}
		}
	}
	gone()
	for _, m := range c.members {
		m.stop()
	}
	gone()
	// Without its Raft log it gets what it lacks from others, and may lack nothing of this.
	check.Must(t, os.RemoveAll(filepath.Join(victim.db(), "raft")))
	for _, m := range c.members {
		m.start()
	}
	c.settled()
	c.quiet()
	gone()
	victim.wipe()
	victim.start()
	c.settled()
	c.leader().append("after", c.small(3)...)
	c.quiet()
	gone()
	c.same()
	c.finish()
	gone()
}

// TestClusterRedactedMetadata: one node redacts an event with its metadata, the others keep their
// bytes. From then on no node finds the event by its tags: under each leader, after restarts, with
// an index that is built again, and on a node that gets everything from the others.
func TestClusterRedactedMetadata(t *testing.T) {
	t.Parallel()
	c := startCluster(t, clusterOptions{options: []string{"--raft-log-store", "Wal"}})
	leader, followers := c.settled()
	tag := "needle-" + fmt.Sprint(time.Now().UnixNano())
	write := func(stream, more string) int {
		c.t.Helper()
		body := fmt.Sprintf(`{"stream":%q,"events":[{"eventId":"40000000-0000-4000-8000-%012d","eventType":"Booked","data":{}%s`, stream, c.number(), more)
		header := map[string]string{"Content-Type": testkit.MediaJSON}
		answer := check.Value(c.leader().askReady(testkit.Request{Method: http.MethodPost, Path: "/streams", Header: header, Body: []byte(body)})).Must(t)
		return answer.Status
	}
	condition := fmt.Sprintf(`}],"conditions":[{"failIfEventsMatch":{"items":[{"tags":[%q]}]}}]}`, tag)
	check.Equal(t, write("seat-12", fmt.Sprintf(`,"tags":[%q]}]}`, tag)), http.StatusCreated, "tagged")
	check.Equal(t, write("other", condition), http.StatusConflict, "found by its tag")
	leader.scavenge("")
	c.level()
	victim := followers[0]
	found := func(m *member, query string) (n int) {
		t.Helper()
		var answer struct{ Events []struct{ Stream string } }
		testkit.Eventually(t, settleLimit, func() error { return m.askJSON("/query?"+query, &answer) })
		return len(answer.Events)
	}
	for _, m := range c.members {
		check.Equal(t, found(m, "tags="+tag), 1, m, "before")
	}
	if out := victim.redact(0, "--node", victim.URL(), "--events", "0@seat-12", "--metadata"); !strings.Contains(out, "0@seat-12: redacted (") {
		t.Fatal(out)
	}
	if files := holding(t, victim.db(), tag); len(files) > 0 {
		t.Errorf("the tag is in %v", files)
	}
	nowhere := func(when string) {
		t.Helper()
		c.level()
		for _, m := range c.members {
			check.Equal(t, found(m, "tags="+tag), 0, m, "by the tag", when)
			check.Equal(t, found(m, "categories=seat"), 1, m, "by the category", when)
		}
		check.Equal(t, write("free", condition), http.StatusCreated, when)
	}
	nowhere("as it is")
	for _, heir := range []*member{victim, followers[1]} {
		testkit.Eventually(t, settleLimit, func() error {
			now, _ := c.settled()
			if now == heir {
				return nil
			}
			now.order("/admin/node/resign")
			return fmt.Errorf("%s leads, not %s", now, heir)
		})
		nowhere(heir.String() + " leads")
	}
	must(t, followers[1], testkit.Request{Method: http.MethodPost, Path: "/admin/index/rebuild", Admin: true}, http.StatusAccepted)
	nowhere("rebuilt")
	for _, m := range c.members {
		m.kill()
	}
	for _, m := range c.members {
		m.start()
	}
	c.settled()
	nowhere("restarted")
	victim.stop()
	victim.wipe()
	victim.start()
	c.settled()
	nowhere("fetched")
	c.finish()
}

// readAhead makes a group that has read events of a stream, and returns what asks for them.
func (m *member) readAhead(stream string) (read func() string) {
	t := m.cluster.t
	t.Helper()
	path := "/subscriptions/" + stream + "/ahead"
	ask := func(r testkit.Request, want int) (body string) {
		testkit.Eventually(t, settleLimit, func() error {
			answer, err := m.Do(t.Context(), r)
			if err == nil && answer.Status != want {
				err = fmt.Errorf("%s", answer)
			}
			body = string(answer.Body)
			return err
		})
		return body
	}
	ask(testkit.Request{Method: http.MethodPut, Path: path, Header: map[string]string{"Content-Type": testkit.MediaJSON}, Body: []byte(`{"startFrom": 0}`)}, 200)
	testkit.Eventually(t, settleLimit, func() error {
		if info := ask(testkit.Request{Path: path + "/info"}, 200); strings.Contains(info, `"readBufferCount": 0`) {
			return fmt.Errorf("nothing is read ahead: %s", info)
		}
		return nil
	})
	return func() string {
		return ask(testkit.Request{Path: path + "/10?embed=body", Header: map[string]string{"Accept": "application/vnd.eventstore.competingatom+json"}}, 200)
	}
}

// redact runs annals redact on the member's machine, and returns what it printed.
func (m *member) redact(code int, args ...string) string {
	t := m.cluster.t
	t.Helper()
	p, got := testkit.Run(t, testkit.Command{Args: append([]string{"redact"}, args...), Quiet: true})
	if got != code {
		t.Errorf("annals redact %s: exit code %d, want %d\n%s", strings.Join(args, " "), got, code, p.Output())
	}
	return p.Output()
}
