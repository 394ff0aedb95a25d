package grpcapi_test

import (
	"slices"
	"strings"
	"testing"

	"github.com/kurrent-io/KurrentDB-Client-Go/protos/kurrentdb/protocols/v1/streams"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"

	"github.com/annalsdb/annals/internal/check"
)

// readAll reads the log and returns its events, but for the node's own, with their positions.
func readAll(t testing.TB, conn *grpc.ClientConn, req *streams.ReadReq) (events []string, at []int64) {
	t.Helper()
	rest, e := open(t, conn, "admin", req).end()
	if e.code != codes.OK {
		t.Fatal(e)
	}
	for _, m := range rest {
		if what := short(m); what[0] != '$' {
			p, _ := positionOf(m)
			events, at = append(events, what), append(at, p)
		}
	}
	return events, at
}

func TestReadAll(t *testing.T) {
	conn, c := ownNode(t)
	write(t, c, "all-a", "even", numbered(3)...)
	write(t, c, "all-b", "odd", numbered(2)...)
	write(t, c, "all-a", "odd", numbered(1)...)
	remove(t, c, "all-b", true)
	events, at := readAll(t, conn, read(ofAll(start)))
	first := slices.Index(events, "all-a/0")
	tail := []string{"all-a/0", "all-a/1", "all-a/2", "all-b/0", "all-b/1", "all-a/3", "all-b/9223372036854775807"}
	if first < 0 || !slices.Equal(events[first:], tail) || !slices.IsSorted(at) {
		t.Fatalf("the log is %v at %v", events, at)
	}
	reversed := slices.Clone(events)
	slices.Reverse(reversed)
	if got, _ := readAll(t, conn, read(ofAll(end), backward)); !slices.Equal(got, reversed) {
		t.Errorf("backward: %v", got)
	}
	for i, p := range at {
		if got, _ := readAll(t, conn, read(ofAll(p))); !slices.Equal(got, events[i:]) {
			t.Errorf("from %d: %v", p, got)
		}
		if got, _ := readAll(t, conn, read(ofAll(p), backward)); !slices.Equal(got, reversed[len(events)-i:]) {
			t.Errorf("backward from %d: %v", p, got)
		}
	}
	names := byStream("", "all-")
	for _, s := range []struct {
		name string
		req  *streams.ReadReq
		want string
	}{
		{"end", read(ofAll(end)), ""},
		{"beyond", read(ofAll(1 << 40)), ""},
		{"start, backward", read(ofAll(start), backward), ""},
		{"beyond, backward", read(ofAll(1<<40), backward, count(1), window(names, 1, 0)), "all-b/9223372036854775807"},
		{"count", read(ofAll(at[first]), count(2)), "all-a/0 all-a/1"},
		{"positions are never told", read(ofAll(at[first]), count(1), positions), "all-a/0"},
		{"by streams", read(ofAll(start), window(names, 1, 0)), strings.Join(tail, " ")},
		{"by streams, count, small window", read(ofAll(start), count(2), window(names, 1, 0)), "all-a/0 all-a/1"},
		{"by streams, backward", read(ofAll(end), backward, count(2), window(byStream("^all-a$"), 0, 0)), "all-a/3 all-a/2"},
		{"by several prefixes", read(ofAll(at[first]), window(byStream("", "x", "all-b"), 0, 0)), "all-b/0 all-b/1 all-b/9223372036854775807"},
		{"an expression beats prefixes", read(ofAll(at[first]), window(byStream("a$", "all-b"), 0, 0)), "all-a/0 all-a/1 all-a/2 all-a/3"},
		{"by types", read(ofAll(at[first]), window(byType("od"), 0, 0)), "all-b/0 all-b/1 all-a/3"},
		{"no system events", read(ofAll(at[first]), window(byType(`^[^\$].*`), 0, 0)), strings.Join(tail[:6], " ")},
		{"lookahead", read(ofAll(at[first]), window(byType(`^(?!(\$.+$|PersistentConfig\d+$))`), 0, 0)), strings.Join(tail[:6], " ")},
		{"nothing", read(ofAll(start), window(byType("^nobody has this$"), 0, 0)), ""},
	} {
		t.Run(s.name, func(t *testing.T) { check.Equal(t, whole(t, conn, "admin", s.req), s.want, "messages") })
	}
}

// A filter that takes too long ends the call, and what it did not judge is not sent.
func TestReadFilterTooSlow(t *testing.T) {
	conn, c := ownNode(t)
	write(t, c, "slow-"+strings.Repeat("a", 40)+"!", "t", "1")
	const want = "InvalidArgument: The regular expression of the filter takes too long."
	check.Equal(t, whole(t, conn, "admin", read(ofAll(start), window(byStream(`^(?!z)slow-(a+)+$`), 1, 1))), want, "read")
	check.Equal(t, whole(t, conn, "admin", read(ofAll(start), subscribed, window(byStream(`^(?!z)slow-(a+)+$`), 100000, 1))), "confirmed "+want, "subscription")
}
