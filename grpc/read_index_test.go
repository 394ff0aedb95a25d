package grpcapi_test

import (
	"slices"
	"strings"
	"testing"

	"google.golang.org/grpc/codes"

	"github.com/annalsdb/annals/internal/check"
)

// An index is read by a filter of streams with its name as the one prefix.
func TestReadIndex(t *testing.T) {
	conn, c := ownNode(t)
	write(t, c, "order-1", "Placed", numbered(2)...)
	write(t, c, "account-1", "Opened", "1")
	write(t, c, "order-2", "Placed", "1")
	write(t, c, "order-2", "Paid", "2")
	write(t, c, "order-3", "Placed", "1")
	remove(t, c, "order-3", false)
	_, at := readAll(t, conn, read(ofAll(start), window(byStream("", "order-", "account-"), 0, 0)))
	index := func(name string) option { return window(byStream("", name), 0, 0) }
	orders := "order-1/0 order-1/1 order-2/0 order-2/1"
	for name, s := range map[string]struct {
		set  []option
		want string
	}{
		"category":             {[]option{ofAll(start), index("$idx-ce-order")}, orders},
		"type":                 {[]option{ofAll(start), index("$idx-et-Placed")}, "order-1/0 order-1/1 order-2/0"},
		"all":                  {[]option{ofAll(start), index("$idx-all")}, "order-1/0 order-1/1 account-1/0 order-2/0 order-2/1"},
		"empty":                {[]option{ofAll(start), index("$idx-tag-x")}, ""},
		"backward":             {[]option{ofAll(end), backward, index("$idx-ce-order"), count(2)}, "order-2/1 order-2/0"},
		"from a position":      {[]option{ofAll(at[3]), index("$idx-ce-order")}, "order-2/0 order-2/1"},
		"between records":      {[]option{ofAll(at[1] + 1), index("$idx-all"), count(2)}, "account-1/0 order-2/0"},
		"backward, below":      {[]option{ofAll(at[3]), backward, index("$idx-ce-order")}, "order-1/1 order-1/0"},
		"beyond":               {[]option{ofAll(1 << 40), index("$idx-ce-order")}, ""},
		"no index":             {[]option{ofAll(start), index("$idx-user-x")}, "NotFound: Index '$idx-user-x' not found. exception=index-not-found;"},
		"one more prefix":      {[]option{ofAll(start), window(byStream("", "$idx-all", "a"), 0, 0)}, "InvalidArgument: Index reads take one index name and no other prefix."},
		"an expression is not": {[]option{ofAll(start), window(byStream(`^\$idx-all$`), 0, 0)}, ""},
		"as a stream":          {[]option{ofStream("$idx-all", start)}, "InvalidArgument: Read an index through $all: one stream prefix, the name of the index."},
	} {
		t.Run(name, func(t *testing.T) {
			check.Equal(t, strings.TrimSpace(whole(t, conn, "admin", read(s.set...))), s.want, "messages")
		})
	}
	// A subscription says how far it has looked, and resumes there.
	_, positions, checkpoints := caughtUp(t, conn, read(ofAll(start), subscribed, index("$idx-ce-order")))
	if len(positions) != 4 || len(checkpoints) != 1 || checkpoints[0] <= positions[3] {
		t.Errorf("events at %v, checkpoints %v", positions, checkpoints)
	}
	for i, p := range slices.Concat(positions, checkpoints) {
		got, _, _ := caughtUp(t, conn, read(ofAll(p), subscribed, index("$idx-ce-order")))
		check.Equal(t, strings.Join(got, " "), strings.Join(strings.Fields(orders)[min(i+1, 4):], " "), "resumed")
	}
	live := open(t, conn, "admin", read(ofAll(end), subscribed, index("$idx-et-Paid")))
	live.arrive()
	write(t, c, "order-4", "Placed", "1")
	write(t, c, "order-4", "Paid", "1")
	live.expect("order-4/1")
}

// Each event is judged by its own stream, and who has no right to read $idx reads none.
func TestIndexRights(t *testing.T) {
	conn, c := ownNode(t)
	write(t, c, "open-1", "t", "1")
	write(t, c, "secret-1", "t", "1")
	describe(t, c, "secret-1", `{"$acl":{"$r":["$admins"]}}`)
	types := read(ofAll(start), window(byStream("", "$idx-et-t"), 0, 0))
	check.Equal(t, whole(t, conn, "ops", types), "open-1/0", "of a user")
	check.Equal(t, whole(t, conn, "admin", types), "open-1/0 secret-1/0", "of an administrator")
	describe(t, c, "$idx", `{"$acl":{"$r":["$admins"]}}`)
	_, e := open(t, conn, "ops", types).end()
	check.Equal(t, e.code, codes.PermissionDenied, "without the right to indexes")
	check.Equal(t, whole(t, conn, "admin", types), "open-1/0 secret-1/0", "of an administrator")
}

// TestRightsThatChange: a subscription to an index judges events as of when it reads them.
func TestRightsThatChange(t *testing.T) {
	conn, c := ownNode(t)
	describe(t, c, "secret-1", `{"$acl":{"$r":["$admins"]}}`)
	describe(t, c, "$all", `{"$acl":{"$r":["ops"]}}`)
	live := open(t, conn, "ops", read(ofAll(end), subscribed, window(byStream("", "$idx-et-t"), 0, 0)))
	live.arrive()
	write(t, c, "secret-1", "t", "1")
	live.expect("secret-1/0")
	describe(t, c, "$all", `{"$acl":{"$r":["$admins"]}}`)
	write(t, c, "secret-1", "t", "1")
	write(t, c, "open-1", "t", "1")
	live.expect("open-1/0")
}
