package grpcapi_test

import (
	"context"
	"fmt"
	"strings"
	"testing"

	"github.com/annalsdb/annals/access"
	"github.com/annalsdb/annals/api"
	"github.com/annalsdb/annals/config"
	"github.com/annalsdb/annals/event"
	grpcapi "github.com/annalsdb/annals/grpc"
)

const (
	noUser  = "NotFound: User 'none' is not found. [exception:[user-not-found] login-name:[none]]"
	noLogin = "InvalidArgument: the login name is missing"
	noPass  = "InvalidArgument: the password is missing"
)

func user(login, fullName, groups string, disabled bool) string {
	return fmt.Sprintf(`{"userDetails":{"loginName":%q,"fullName":%q,"groups":[%s],"lastUpdated":{"ticksSinceEpoch":"TICKS"},"disabled":%t}} `, login, fullName, groups, disabled)
}

func TestUsers(t *testing.T) {
	conn := startNode(t)
	do := func(method string) string { return "users.Users/" + method }
	const jane = `{"options":{"loginName":"jane"}}`
	admin, ops := user("admin", "Event Store Administrator", `"$admins"`, false), user("ops", "Event Store Operations", `"$ops"`, false)
	take(t, conn, []step{
		{"admin", do("Create"), `{"options":{"loginName":"jane","password":"changeit","fullName":"Jane","groups":["a","b"]}}`, "{} OK"},
		// Nothing changes.
		{"admin", do("Create"), `{"options":{"loginName":"jane","password":"changeit","fullName":"Other"}}`, "{} OK"},
		{"admin", do("Create"), `{"options":{"loginName":"jane","password":"other"}}`, "FailedPrecondition: Conflict. [exception:[user-conflict] login-name:[jane]]"},
		{"admin", do("Create"), `{"options":{"loginName":"$current","password":"other"}}`, "InvalidArgument: loginName must not be $current, which names the caller."},
		{"admin", do("Create"), `{"options":{"loginName":"` + strings.Repeat("x", access.MaxLoginBytes+1) + `","password":"p"}}`, fmt.Sprintf("InvalidArgument: loginName is longer than %d bytes.", access.MaxLoginBytes)},
		{"admin", do("Create"), `{"options":{"loginName":"a:b","password":"p"}}`, "InvalidArgument: loginName must not hold a colon, which ends it where login and password are sent."},
		{"admin", do("Create"), `{"options":{"loginName":"a\nb","password":"p"}}`, "InvalidArgument: loginName must not hold control characters or characters that do not exist."},
		{"admin", do("Create"), `{"options":{"loginName":"joe"}}`, noPass},
		{"admin", do("Create"), `{}`, noLogin},

		{"jane", do("Details"), jane, user("jane", "Jane", `"a","b"`, false) + "OK"},
		{"admin", do("Details"), jane, user("jane", "Jane", `"a","b"`, false) + "OK"},
		{"admin", do("Details"), `{}`, admin + user("jane", "Jane", `"a","b"`, false) + ops + "OK"},
		{"admin", do("Details"), `{"options":{}}`, admin + user("jane", "Jane", `"a","b"`, false) + ops + "OK"},
		{"admin", do("Details"), `{"options":{"loginName":"none"}}`, noUser},
		{"jane", do("Details"), `{"options":{"loginName":"none"}}`, denied},
		{"jane", do("Details"), `{}`, denied},
		{"ops", do("Details"), jane, denied},
		{"", do("Details"), jane, denied},
		{"", do("Details"), `{}`, denied},

		{"admin", do("Update"), `{"options":{"loginName":"jane","password":"ignored","fullName":"Jane D"}}`, "{} OK"},
		{"admin", do("Disable"), jane, "{} OK"},
		{"admin", do("Details"), jane, user("jane", "Jane D", ``, true) + "OK"},
		{"jane", do("Details"), jane, "Unauthenticated: Unauthenticated"},
		{"admin", do("Enable"), jane, "{} OK"},
		{"jane", do("Details"), jane, user("jane", "Jane D", ``, false) + "OK"},

		{"jane", do("ChangePassword"), `{"options":{"loginName":"jane","currentPassword":"wrong","newPassword":"n"}}`, denied},
		{"jane", do("ChangePassword"), `{"options":{"loginName":"jane","currentPassword":"changeit"}}`, noPass},
		{"jane", do("ChangePassword"), `{"options":{"loginName":"jane","newPassword":"n"}}`, noPass},
		{"jane", do("ChangePassword"), `{}`, noLogin},
		{"", do("ChangePassword"), `{}`, denied},
		{"admin", do("ChangePassword"), `{"options":{"loginName":"jane","currentPassword":"changeit","newPassword":"n"}}`, denied},
		{"jane", do("ChangePassword"), `{"options":{"loginName":"jane","currentPassword":"changeit","newPassword":"new"}}`, "{} OK"},
		{"jane", do("Details"), jane, "Unauthenticated: Unauthenticated"},
		{"jane:new", do("Details"), jane, user("jane", "Jane D", ``, false) + "OK"},
		{"admin", do("ResetPassword"), `{"options":{"loginName":"jane"}}`, noPass},
		{"admin", do("ResetPassword"), `{"options":{"loginName":"jane","newPassword":"changeit"}}`, "{} OK"},
		{"jane", do("Details"), jane, user("jane", "Jane D", ``, false) + "OK"},

		{"admin", do("Delete"), jane, "{} OK"},
		{"admin", do("Details"), jane, strings.ReplaceAll(noUser, "none", "jane")},
		{"admin", do("Details"), `{}`, admin + ops + "OK"},
	})
	for _, method := range []string{"Update", "Delete", "Enable", "Disable", "ResetPassword"} {
		none := `{"options":{"loginName":"none"}}`
		if method == "ResetPassword" {
			none = `{"options":{"loginName":"none","newPassword":"p"}}`
		}
		take(t, conn, []step{
			{"admin", do(method), none, noUser}, {"admin", do(method), `{}`, noLogin}, {"ops", do(method), none, denied}, {"", do(method), none, denied},
		})
	}
	take(t, conn, []step{{"ops", do("Create"), jane, denied}, {"", do("Create"), jane, denied}})
}

func TestUsersInsecure(t *testing.T) {
	conn := startNode(t, func(c *config.Config) { c.Insecure = true })
	take(t, conn, []step{{"", "users.Users/Details", `{}`, "Unimplemented: unknown service event_store.client.users.Users"}})
}

// fakeUsers fails with an error and has no user.
type fakeUsers struct{ err error }

func (f fakeUsers) List(context.Context) ([]access.Account, error) { return nil, f.err }
func (f fakeUsers) Get(_ context.Context, login string) (access.Account, error) {
	return access.Account{Login: login}, f.err
}
func (f fakeUsers) Create(context.Context, access.NewAccount) error              { return f.err }
func (f fakeUsers) Update(context.Context, string, string, []string) error       { return f.err }
func (f fakeUsers) Delete(context.Context, string) error                         { return f.err }
func (f fakeUsers) SetDisabled(context.Context, string, bool) error              { return f.err }
func (f fakeUsers) ResetPassword(context.Context, string, string) error          { return f.err }
func (f fakeUsers) ChangePassword(context.Context, string, string, string) error { return f.err }

func TestUsersFail(t *testing.T) {
	const tryAgain = "DeadlineExceeded: Try again. [exception:[user-conflict] login-name:[admin]]"
	for name, c := range map[string]struct {
		cluster memberCluster
		err     error
		change  string
		details string
	}{
		"conflict":   {leader, event.ErrUserConflict, "FailedPrecondition: Conflict. [exception:[user-conflict] login-name:[admin]]", ""},
		"late":       {leader, fmt.Errorf("x: %w", event.ErrWriteTimeout), tryAgain, ""},
		"unknown":    {leader, event.ErrOutcomeUnknown, tryAgain, ""},
		"deadline":   {leader, context.DeadlineExceeded, tryAgain, ""},
		"busy":       {leader, event.ErrBusy, "Unavailable: Server Is Too Busy", ""},
		"gone":       {leader, event.ErrStreamDeleted, "FailedPrecondition: Event stream '$user-admin' is deleted. [exception:[stream-deleted] stream-name:[$user-admin]]", ""},
		"follower":   {memberCluster{"follower", "http://[::1]:2113"}, nil, "NotFound: Leader info available [exception:[not-leader] leader-endpoint-host:[::1] leader-endpoint-port:[2113]]", `{"userDetails":{"loginName":"admin","fullName":"","groups":[],"lastUpdated":null,"disabled":false}} OK`},
		"leaderless": {memberCluster{role: "unknown"}, event.ErrNotReady, "Unavailable: Server Is Not Ready", ""},
	} {
		t.Run(name, func(t *testing.T) {
			conn, _ := serve(t, grpcapi.Options{Node: api.Node{Cluster: c.cluster, Access: anyone{}, Users: fakeUsers{c.err}}})
			if c.details == "" {
				c.details = c.change
			}
			for _, method := range []string{"Update", "Delete", "Enable", "Disable"} {
				take(t, conn, []step{{"admin", "users.Users/" + method, `{"options":{"loginName":"admin"}}`, c.change}})
			}
			take(t, conn, []step{
				{"admin", "users.Users/Create", `{"options":{"loginName":"admin","password":"p"}}`, c.change},
				{"admin", "users.Users/ResetPassword", `{"options":{"loginName":"admin","newPassword":"p"}}`, c.change},
				{"admin", "users.Users/ChangePassword", `{"options":{"loginName":"admin","currentPassword":"p","newPassword":"p"}}`, c.change},
				{"admin", "users.Users/Details", `{"options":{"loginName":"admin"}}`, c.details},
			})
		})
	}
}
