package integration_test

import (
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/annalsdb/annals/client"
	"github.com/annalsdb/annals/internal/check"
	"github.com/annalsdb/annals/internal/testkit"
)

// mediaCompeting is the type in which messages are handed out.
const mediaCompeting = "application/vnd.eventstore.competingatom+json"

// groupPath is the path of a group, and of what lies below it.
func groupPath(stream, group string, more ...string) string {
	return strings.Join(append([]string{"/subscriptions", url.PathEscape(stream), url.PathEscape(group)}, more...), "/")
}

// message is one message as a reader gets it. Its number is that of the event, which is what a link
// leads to where links are resolved.
type message struct {
	testkit.Entry
	ID string // what its answer names
}

func (m message) String() string { return fmt.Sprintf("%d@%s", m.Number, m.Stream) }

// messages is an answer to a reader, oldest message first.
type messages struct {
	all    []message
	ackAll string
}

func (m messages) numbers() (all []int64) {
	for _, one := range m.all {
		all = append(all, one.Number)
	}
	return all
}

func (m messages) ids() (all []string) {
	for _, one := range m.all {
		all = append(all, one.ID)
	}
	return all
}

// takeFrom asks for messages. The answer is that of a status other than 200.
func takeFrom(ctx context.Context, c *testkit.Client, r testkit.Request) (got messages, answer testkit.Response, err error) {
	r.Header = map[string]string{"Accept": mediaCompeting}
	if !strings.Contains(r.Path, "?") {
		r.Path += "?embed=rich"
	}
	answer, err = c.Do(ctx, r)
	if err != nil || answer.Status != http.StatusOK {
		return got, answer, err
	}
	feed, err := client.ParsePage(answer.Body)
	if err != nil {
		return got, answer, fmt.Errorf("messages of %s: %w", r.Path, err)
	}
	got.ackAll = feed.Links.Of("ackAll")
	for _, e := range slices.Backward(feed.Entries) {
		ack := e.Links.Of("ack")
		got.all = append(got.all, message{e, ack[strings.LastIndex(ack, "/")+1:]})
	}
	return got, answer, nil
}

// group is a group of a node as the administrator sees it. Whatever is not answered with 200 fails
// the test.
type group struct {
	t            *testing.T
	node         *testkit.Client
	stream, name string
}

// do sends a request below the path of the group. Settings are the body of one that has any.
func (g *group) do(method string, settings any, more ...string) testkit.Response {
	g.t.Helper()
	r := testkit.Request{Method: method, Path: groupPath(g.stream, g.name, more...), Admin: true}
	if settings != nil {
		body := check.Value(json.Marshal(settings)).Must(g.t)
		r.Body, r.Header = body, map[string]string{"Content-Type": testkit.MediaJSON}
	}
	answer := check.Value(g.node.Do(g.t.Context(), r)).Must(g.t, method, r.Path)
	return answer
}

func (g *group) must(method string, settings any, more ...string) testkit.Response {
	g.t.Helper()
	answer := g.do(method, settings, more...)
	if answer.Status != http.StatusOK {
		g.t.Fatalf("%s %s: %s", method, groupPath(g.stream, g.name, more...), answer)
	}
	return answer
}

// settings are what a test gives of a group's settings.
type settings map[string]any

// prompt are settings by which every answer is checkpointed at once, with more or other ones.
func prompt(other settings) settings {
	s := settings{"minCheckPointCount": 1, "maxCheckPointCount": 1, "messageTimeoutMilliseconds": 600_000}
	maps.Copy(s, other)
	return s
}

// newGroup makes a group.
func newGroup(t *testing.T, node *testkit.Client, stream, name string, s settings) *group {
	t.Helper()
	g := &group{t, node, stream, name}
	g.must(http.MethodPut, s)
	return g
}

func (g *group) take(count int) messages {
	g.t.Helper()
	ctx, cancel := context.WithTimeout(g.t.Context(), settleLimit)
	defer cancel()
	got, answer, err := takeFrom(ctx, g.node, testkit.Request{Path: groupPath(g.stream, g.name, fmt.Sprint(count)), Admin: true})
	if err != nil || answer.Status != http.StatusOK {
		g.t.Fatalf("read %s::%s: %s, %v", g.stream, g.name, answer, err)
	}
	return got
}

// takeAll takes messages until there are none, and answers none.
func (g *group) takeAll() (all messages) {
	g.t.Helper()
	for {
		got := g.take(100)
		if len(got.all) == 0 {
			return all
		}
		all.all = append(all.all, got.all...)
	}
}

func (g *group) ack(ids ...string) {
	g.t.Helper()
	g.must(http.MethodPost, nil, "ack?ids="+strings.Join(ids, ","))
}

func (g *group) park(ids ...string) {
	g.t.Helper()
	g.must(http.MethodPost, nil, "nack?ids="+strings.Join(ids, ",")+"&action=park")
}

// groupInfo is what is reported of a group, as far as tests are about it.
type groupInfo struct {
	Status      string
	Stream      string  `json:"eventStreamId"`
	Name        string  `json:"groupName"`
	Checkpoint  *string `json:"lastCheckpointedEventPosition"`
	LastKnown   int64   `json:"lastKnownEventNumber"`
	Outstanding int     `json:"outstandingMessagesCount"`
	Retried     int     `json:"retryBufferCount"`
	Parked      int64   `json:"parkedMessageCount"`
	Config      settings
}

// at is the checkpoint, "none" if there is none.
func (i groupInfo) at() string {
	if i.Checkpoint == nil {
		return "none"
	}
	return *i.Checkpoint
}

func (g *group) info() (i groupInfo) {
	g.t.Helper()
	check.Must(g.t, json.Unmarshal(g.must(http.MethodGet, nil, "info").Body, &i))
	return i
}

// await waits until the group is as it should be.
func (g *group) await(what string, is func(i *groupInfo) bool) {
	g.t.Helper()
	testkit.Eventually(g.t, settleLimit, func() error {
		if i := g.info(); !is(&i) {
			return fmt.Errorf("%s::%s: no %s: %+v, checkpoint %s", g.stream, g.name, what, i, i.at())
		}
		return nil
	})
}

func (g *group) awaitCheckpoint(number int64) {
	g.t.Helper()
	g.await(fmt.Sprintf("checkpoint %d", number), func(i *groupInfo) bool { return i.at() == fmt.Sprint(number) })
}

// parked are the parked messages as events, oldest first.
func (g *group) parked() []message {
	g.t.Helper()
	path := groupPath("viewparkedmessages", g.stream, url.PathEscape(g.name), "0", "forward", "1000")
	got, answer, err := takeFrom(g.t.Context(), g.node, testkit.Request{Path: path, Admin: true})
	if err != nil || answer.Status != http.StatusOK && answer.Status != http.StatusNotFound {
		g.t.Fatalf("parked messages of %s::%s: %s, %v", g.stream, g.name, answer, err)
	}
	return got.all
}

// listGroups are the groups of a node, each as stream::group. An answer other than 200 is an error.
func listGroups(ctx context.Context, c *testkit.Client) (names []string, status int, err error) {
	answer, err := c.Do(ctx, testkit.Request{Path: "/subscriptions", Admin: true, Header: map[string]string{"Accept": testkit.MediaJSON}})
	if err != nil || answer.Status != http.StatusOK {
		return nil, answer.Status, fmt.Errorf("list of groups: %s, %w", answer, err)
	}
	var list []groupInfo
	err = json.Unmarshal(answer.Body, &list)
	for _, one := range list {
		names = append(names, one.Stream+"::"+one.Name)
	}
	return names, answer.Status, err
}

// awaitGroups waits until a node that was started knows its groups, and demands which they are.
func awaitGroups(t *testing.T, c *testkit.Client, want ...string) (took time.Duration) {
	t.Helper()
	begun := time.Now()
	testkit.Eventually(t, settleLimit, func() error {
		names, status, err := listGroups(t.Context(), c)
		switch {
		case status == http.StatusServiceUnavailable:
			return err
		case err != nil:
			t.Fatal(err)
		case !slices.Equal(names, want):
			t.Fatalf("the groups are %q, want %q", names, want)
		}
		return nil
	})
	return time.Since(begun)
}

// span are the numbers from one to another.
func span(from, to int64) (all []int64) {
	for n := from; n <= to; n++ {
		all = append(all, n)
	}
	return all
}

// wantNumbers demands that messages are of these numbers, in this order.
func wantNumbers(t *testing.T, what string, got messages, want []int64) {
	t.Helper()
	check.Slice(t, got.numbers(), want, what)
}

// setMetadata writes the metadata of a stream.
func setMetadata(t *testing.T, node *testkit.Client, stream, document string) {
	t.Helper()
	answer, err := node.Do(t.Context(), testkit.Request{Path: "/streams/" + stream + "/metadata", Admin: true, Body: []byte(document), Header: map[string]string{
		"Content-Type": testkit.MediaJSON, testkit.HeaderEventType: "$metadata", testkit.HeaderExpectedVersion: "-2",
	}})
	check.Must(t, err)
	check.MustEqual(t, answer.Status, http.StatusCreated, "metadata of", stream, answer)
}

// deleteStream deletes a stream, for good if hard is set.
func deleteStream(t *testing.T, node *testkit.Client, stream string, hard bool) {
	t.Helper()
	answer, err := node.Do(t.Context(), testkit.Request{Method: http.MethodDelete, Path: "/streams/" + stream, Admin: true,
		Header: map[string]string{testkit.HeaderHardDelete: fmt.Sprint(hard)}})
	check.Must(t, err)
	check.MustEqual(t, answer.Status, http.StatusNoContent, "delete", stream, answer)
}
