package grpcapi_test

import (
	"strings"
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/kurrent-io/KurrentDB-Client-Go/protos/kurrentdb/protocols/v1/shared"
	"github.com/kurrent-io/KurrentDB-Client-Go/protos/kurrentdb/protocols/v1/streams"
	"google.golang.org/grpc/codes"
	"google.golang.org/protobuf/proto"

	"github.com/annalsdb/annals/internal/check"
)

func TestReadStream(t *testing.T) {
	conn, c := ownNode(t)
	write(t, c, "reads", "t", numbered(5)...)
	write(t, c, "cut", "t", numbered(5)...)
	describe(t, c, "cut", `{"$tb":2}`)
	write(t, c, "empty", "t", "1")
	describe(t, c, "empty", `{"$tb":1}`)
	write(t, c, "soft", "t", "1")
	remove(t, c, "soft", false)
	write(t, c, "hard", "t", "1")
	remove(t, c, "hard", true)
	describe(t, c, "described", `{"a":1}`)
	write(t, c, "long", "t", numbered(1200)...)
	describe(t, c, "long", `{"$maxCount":700}`)

	const gone = "FailedPrecondition: Event stream 'hard' is deleted. exception=stream-deleted;stream-name=hard;"
	for _, s := range []struct {
		name string
		req  *streams.ReadReq
		want string
	}{
		{"forward", read(ofStream("reads", start)), "reads/0 reads/1 reads/2 reads/3 reads/4"},
		{"from a number", read(ofStream("reads", 3)), "reads/3 reads/4"},
		{"from the end", read(ofStream("reads", end)), ""},
		{"beyond", read(ofStream("reads", 77)), ""},
		{"far beyond", read(ofStream("reads", 1<<63-1)), ""},
		{"count", read(ofStream("reads", 1), count(2)), "reads/1 reads/2"},
		{"count of nothing", read(ofStream("reads", 1), count(0)), ""},
		{"all in doubles", read(ofStream("reads", 3), count(1<<53-1)), "reads/3 reads/4"},
		{"all in unsigned", read(ofStream("reads", 3), count(1<<64-1)), "reads/3 reads/4"},
		{"backward", read(ofStream("reads", end), backward), "reads/4 reads/3 reads/2 reads/1 reads/0"},
		{"backward, count", read(ofStream("reads", end), backward, count(1)), "reads/4"},
		{"backward from a number", read(ofStream("reads", 1), backward), "reads/1 reads/0"},
		{"backward from beyond", read(ofStream("reads", 1000), backward, count(2)), "reads/4 reads/3"},
		{"backward from far beyond", read(ofStream("reads", 1<<63-1), backward, count(2)), "reads/4 reads/3"},
		{"backward from the start", read(ofStream("reads", start), backward), "reads/0"},
		{"positions", read(ofStream("reads", start), positions), "reads/0 reads/1 reads/2 reads/3 reads/4 last:4"},
		{"positions, backward", read(ofStream("reads", 1), positions, backward), "reads/1 reads/0 last:4"},
		{"positions at the end", read(ofStream("reads", end), positions), "last:4"},
		{"positions, count", read(ofStream("reads", start), positions, count(1)), "reads/0 last:4"},
		{"truncated", read(ofStream("cut", start)), "cut/2 cut/3 cut/4"},
		{"truncated, positions", read(ofStream("cut", 1), positions, count(1)), "first:2 cut/2 last:4"},
		{"truncated, positions at the first", read(ofStream("cut", 2), positions, count(1)), "cut/2 last:4"},
		{"truncated, backward", read(ofStream("cut", end), positions, backward), "cut/4 cut/3 cut/2 last:4"},
		{"truncated, backward from the start", read(ofStream("cut", start), backward), ""},
		{"all hidden", read(ofStream("empty", start)), ""},
		{"all hidden, positions", read(ofStream("empty", start), positions), "last:0"},
		{"none", read(ofStream("nobody", start)), "not-found:nobody"},
		{"none, end, positions", read(ofStream("nobody", end), positions), "not-found:nobody"},
		{"none, nothing asked", read(ofStream("nobody", end), count(0)), "not-found:nobody"},
		{"soft-deleted", read(ofStream("soft", start)), "not-found:soft"},
		{"only metadata", read(ofStream("described", start)), "not-found:described"},
		{"hard-deleted", read(ofStream("hard", start)), gone},
		{"hard-deleted, end", read(ofStream("hard", end)), gone},
		{"metadata", read(ofStream("$$cut", end), backward, count(1)), "$$cut/0"},
		{"no metadata", read(ofStream("$$reads", end), backward, count(1)), "not-found:$$reads"},
	} {
		t.Run(s.name, func(t *testing.T) { check.Equal(t, whole(t, conn, "admin", s.req), s.want, "messages") })
	}
	for _, s := range []struct {
		name        string
		req         *streams.ReadReq
		first, last string
		n           int
	}{
		{"forward", read(ofStream("long", start)), "long/500", "long/1199", 700},
		{"backward", read(ofStream("long", end), backward), "long/1199", "long/500", 700},
		{"many", read(ofStream("long", 600), count(590)), "long/600", "long/1189", 590},
	} {
		rest, e := open(t, conn, "", s.req).end()
		if e.code != codes.OK || len(rest) != s.n || short(rest[0]) != s.first || short(rest[s.n-1]) != s.last {
			t.Errorf("%s: %d messages, %+v", s.name, len(rest), e)
		}
	}
}

func TestReadRequestInvalid(t *testing.T) {
	conn := dial(t, address)
	broken := func(change func(o *streams.ReadReq_Options), set ...option) *streams.ReadReq {
		r := read(set...)
		change(r.Options)
		return r
	}
	for name, req := range map[string]*streams.ReadReq{
		"nothing":               {},
		"no stream":             read(),
		"no name":               read(ofStream("", start)),
		"no UTF-8":              read(ofStream("\xff", start)),
		"large revision":        read(ofStream("s", -5)),
		"no revision":           broken(func(o *streams.ReadReq_Options) { o.GetStream().RevisionOption = nil }, ofStream("s", start)),
		"no position":           broken(func(o *streams.ReadReq_Options) { o.GetAll().AllOption = nil }, ofAll(start)),
		"prepare above":         broken(func(o *streams.ReadReq_Options) { o.GetAll().GetPosition().CommitPosition = 0 }, ofAll(8)),
		"direction":             broken(func(o *streams.ReadReq_Options) { o.ReadDirection = 7 }, ofAll(start)),
		"no count":              broken(func(o *streams.ReadReq_Options) { o.CountOption = nil }, ofAll(start)),
		"backward subscription": read(ofAll(start), backward, subscribed),
		"filter of a stream":    read(ofStream("s", start), window(byType("a"), 1, 1)),
		"empty filter":          read(ofAll(start), window(byType(""), 1, 1)),
		"filter of nothing":     read(ofAll(start), window(&streams.ReadReq_Options_FilterOptions{}, 1, 1)),
		"bad expression":        read(ofAll(start), window(byType("("), 1, 1)),
		"no window":             broken(func(o *streams.ReadReq_Options) { o.GetFilter().Window = nil }, ofAll(start), window(byType("a"), 1, 1)),
		"multiplier":            read(ofAll(start), subscribed, window(byType("a"), 1, 0)),
		"no record":             read(ofAll(3)),
		"no record, backward":   read(ofAll(3), backward),
		"no record, subscribed": read(ofAll(3), subscribed),
	} {
		t.Run(name, func(t *testing.T) {
			rest, e := open(t, conn, "admin", req).end()
			if e.code != codes.InvalidArgument || e.text == "" || len(rest) > 0 {
				t.Errorf("%d messages, %+v", len(rest), e)
			}
		})
	}
}

func TestReadRights(t *testing.T) {
	conn, c := ownNode(t)
	write(t, c, "secret", "t", "1")
	describe(t, c, "secret", `{"$acl":{"$r":"$admins"}}`)
	const denied = "PermissionDenied: Access Denied exception=access-denied;"
	for _, s := range []struct {
		login string
		req   *streams.ReadReq
		want  string
	}{
		{"", read(ofStream("secret", start)), denied},
		{"ops", read(ofStream("secret", start), subscribed), denied},
		{"admin", read(ofStream("secret", start)), "secret/0"},
		{"", read(ofAll(start), count(0)), denied},
		{"admin", read(ofAll(start), count(0)), ""},
		{"", read(ofStream("$$secret", start)), "$$secret/0"},
	} {
		check.Equal(t, whole(t, conn, s.login, s.req), s.want, s.login+" "+s.req.String())
	}
}

// A right that is withdrawn ends a subscription before it is sent what came after.
func TestReadRightWithdrawn(t *testing.T) {
	conn, c := ownNode(t)
	write(t, c, "open", "t", "1")
	r := open(t, conn, "", read(ofStream("open", start), subscribed))
	r.expect("confirmed", "open/0", "caught-up:0")
	write(t, c, "open", "t", "1")
	r.expect("open/1")
	describe(t, c, "open", `{"$acl":{"$r":"$admins"}}`)
	write(t, c, "open", "t", "1")
	rest, e := r.end()
	if len(rest) > 0 || e.code != codes.PermissionDenied {
		t.Errorf("%v, %+v", rest, e)
	}
}

// A message has all fields of its event.
func TestReadEvent(t *testing.T) {
	conn, c := ownNode(t)
	write(t, c, "told", "order \u00e4", `{"a":1}`)
	writeBytes(t, c, "told", "bytes", []byte{0, 1, 0xff})
	writeBytes(t, c, "links", "$>", []byte("1@told"))
	writeBytes(t, c, "links", "$>", []byte("7@told"))
	writeBytes(t, c, "links", "$>", []byte("no link"))

	first, _ := open(t, conn, "", read(ofStream("told", start), textIDs)).end()
	e := first[0].GetEvent().GetEvent()
	if _, err := uuid.Parse(e.Id.GetString_()); err != nil {
		t.Error(err)
	}
	created, err := time.ParseDuration(e.Metadata["created"] + "ns") // of 100 ns
	if err != nil || time.Since(time.Unix(0, 100*created.Nanoseconds())).Abs() > time.Minute {
		t.Errorf("created %v, %v", created, err)
	}
	for _, m := range first {
		e := m.GetEvent().GetEvent()
		if e.PreparePosition != e.CommitPosition || e.CommitPosition != m.GetEvent().GetCommitPosition() {
			t.Errorf("positions: %v", m)
		}
		delete(e.Metadata, "created")
		e.PreparePosition, e.CommitPosition, e.Id = 0, 0, nil
	}
	want := []*streams.ReadResp_ReadEvent_RecordedEvent{
		{StreamIdentifier: &shared.StreamIdentifier{StreamName: []byte("told")}, Data: []byte(`{"a":1}`),
			Metadata: map[string]string{"type": "order \u00e4", "content-type": "application/json"}},
		{StreamIdentifier: &shared.StreamIdentifier{StreamName: []byte("told")}, StreamRevision: 1, Data: []byte{0, 1, 0xff},
			Metadata: map[string]string{"type": "bytes", "content-type": "application/octet-stream"}},
	}
	for i, w := range want {
		if got := first[i].GetEvent().GetEvent(); !proto.Equal(got, w) {
			t.Errorf("got %v, want %v", got, w)
		}
	}

	check.Equal(t, whole(t, conn, "", read(ofStream("links", start))), "links/0 links/1 links/2", "links")
	check.Equal(t, whole(t, conn, "", read(ofStream("links", start), resolved)), "told/1<-links/0 <-links/1 links/2", "resolved")
	links, _ := open(t, conn, "", read(ofStream("links", start), resolved)).end()
	for _, m := range links[:2] {
		if l := m.GetEvent().GetLink(); l.CommitPosition != m.GetEvent().GetCommitPosition() {
			t.Errorf("position of a link: %v", m)
		}
	}
	if l := links[0].GetEvent(); l.GetEvent().CommitPosition >= l.GetLink().CommitPosition {
		t.Errorf("position of a target: %v", l)
	}
}

// Events that are larger than a page may be are read one by one.
func TestReadLarge(t *testing.T) {
	conn, c := ownNode(t)
	for i := range 4 {
		writeBytes(t, c, "large", "t", []byte(strings.Repeat(string(rune('a'+i)), 1<<20)))
		writeBytes(t, c, "large-links", "$>", []byte{byte('0' + i), '@', 'l', 'a', 'r', 'g', 'e'})
	}
	for _, req := range []*streams.ReadReq{
		read(ofStream("large", start)), read(ofStream("large-links", start), resolved),
		read(ofAll(start), window(byStream("", "large"), 1000, 0)), read(ofAll(start), resolved, window(byStream("^large-"), 1000, 0)),
	} {
		rest, e := open(t, conn, "admin", req).end()
		n := 0
		for _, m := range rest {
			if of := m.GetEvent().GetEvent(); of != nil && of.Metadata["type"] == "t" {
				if want := strings.Repeat(string(rune('a'+n)), 1<<20); string(of.Data) != want {
					t.Errorf("event %d has %d bytes", n, len(of.Data))
				}
				n++
			}
		}
		if e.code != codes.OK || n != 4 {
			t.Errorf("%v: %d events, %+v", req, n, e)
		}
	}
}
