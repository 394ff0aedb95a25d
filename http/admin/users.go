package admin

import (
	"context"
	"net/http"
	"time"

	"github.com/annalsdb/annals/access"
	"github.com/annalsdb/annals/api"
	"github.com/annalsdb/annals/event"
	"github.com/annalsdb/annals/http/args"
	"github.com/annalsdb/annals/http/atom"
	"github.com/annalsdb/annals/http/caching"
	"github.com/annalsdb/annals/http/leader"
	"github.com/annalsdb/annals/http/media"
	"github.com/annalsdb/annals/http/outline"
	"github.com/annalsdb/annals/http/problem"
	"github.com/annalsdb/annals/http/request"
	"github.com/annalsdb/annals/internal/jsontext"
)

// UserHandlers answer requests about users.
type UserHandlers struct {
	Users api.Users
	Way   *leader.Way
}

const (
	usersPrefix = "/users/"
	// commandPath leads from a user to its commands.
	commandPath = "/command/"
)

// Leading makes of a handler of users one that runs on the leader only. The answers are as new as
// the leader's.
func (u *UserHandlers) Leading(serve request.Handler) request.Handler {
	return func(_ context.Context, x *request.Request) error {
		err := u.Way.Lead(x, func(ctx context.Context) error {
			if err := x.Node.Cluster.Confirm(ctx); err != nil {
				return err
			}
			return serve(ctx, x)
		})
		if err != nil {
			return userError{err}
		}
		return nil
	}
}

// userError is why users were not read or changed. Where the envelope has a word
// for it, the envelope is the answer.
type userError struct{ error }

func (e userError) Unwrap() error { return e.error }

// Answer answers with the envelope of a failure: that of a detail or of a command.
func (e userError) Answer(x *request.Request, p *problem.Problem) bool {
	outcome := userFailures[p.Status]
	if outcome == "" {
		return false
	}
	x.Phrase(p.Status, p.Text)
	about := outline.Text("loginName", x.Route.Argument)
	if x.IsRead() {
		about = outline.Null("data")
	}
	sendEnvelope(x, p.Status, about, outcome)
	return true
}

// The words of the envelope. They are part of the wire: do not change.
const userSuccess = "Success"

var userFailures = map[int]string{
	http.StatusNotFound:            "NotFound",
	http.StatusConflict:            "Conflict",
	http.StatusUnauthorized:        "Unauthorized",
	http.StatusRequestTimeout:      "TryAgain",
	http.StatusInternalServerError: "Error",
}

// List answers with all users.
func (u *UserHandlers) List(ctx context.Context, x *request.Request) error {
	accounts, err := u.Users.List(ctx)
	if err != nil {
		return err
	}
	sendUserDetails(x, func(o *outline.Writer) {
		o.List("data", "", len(accounts), func(i int) { userDetails(x, o, &accounts[i]) })
	})
	return nil
}

// Get answers with the user that the path names.
func (u *UserHandlers) Get(ctx context.Context, x *request.Request) error {
	return u.sendUser(ctx, x, x.Route.Argument)
}

// Current answers with the caller. The system account has no user.
func (u *UserHandlers) Current(ctx context.Context, x *request.Request) error {
	if x.Caller.Who.IsSystem() {
		return event.ErrUserNotFound
	}
	return u.sendUser(ctx, x, x.Caller.Who.Login)
}

func (u *UserHandlers) sendUser(ctx context.Context, x *request.Request, login string) error {
	account, err := u.Users.Get(ctx, login)
	if err != nil {
		return err
	}
	sendUserDetails(x, func(o *outline.Writer) {
		o.Object("data", func() { userDetails(x, o, &account) })
	})
	return nil
}

// sendUserDetails sends a document with data.
func sendUserDetails(x *request.Request, data func(*outline.Writer)) {
	o := outline.Writer{B: x.Out[:0]}
	o.Root("", func() {
		data(&o)
		o.Leaves(userOutcome(userSuccess)...)
	})
	x.Out = o.B
	x.W.Header()[caching.KeyControl] = caching.Never
	x.SendBody()
}

// Create makes a user. That it exists with the same password is no matter.
func (u *UserHandlers) Create(ctx context.Context, x *request.Request) error {
	fields := userBody(x)
	account := newAccount(fields)
	if fields.Err != nil {
		return fields.Err
	}
	x.Route.Argument = account.Login // What the envelope of a failure is about.
	if err := u.Users.Create(ctx, account); err != nil {
		return err
	}
	x.W.Header()[request.KeyLocation] = []string{string(x.Origin.URI()) + userPath(account.Login)}
	sendCommanded(x, http.StatusCreated)
	return nil
}

// Update replaces name and groups.
func (u *UserHandlers) Update(ctx context.Context, x *request.Request) error {
	fields := userBody(x)
	fullName, groups := fields.Text("fullName"), groups(fields)
	return userCommand(x, fields.Err, func(login string) error { return u.Users.Update(ctx, login, fullName, groups) })
}

func (u *UserHandlers) Delete(ctx context.Context, x *request.Request) error {
	if err := u.Users.Delete(ctx, x.Route.Argument); err != nil {
		return err
	}
	if x.Node.ReferenceStatusCodes {
		sendCommanded(x, http.StatusOK)
	} else {
		x.Send(http.StatusNoContent, nil)
	}
	return nil
}

// Disable makes the handler that locks a user out, or lets it in again.
func (u *UserHandlers) Disable(disabled bool) request.Handler {
	return func(ctx context.Context, x *request.Request) error {
		return userCommand(x, nil, func(login string) error { return u.Users.SetDisabled(ctx, login, disabled) })
	}
}

func (u *UserHandlers) ResetPassword(ctx context.Context, x *request.Request) error {
	fields := userBody(x)
	password := fields.Required("newPassword")
	return userCommand(x, fields.Err, func(login string) error { return u.Users.ResetPassword(ctx, login, password) })
}

func (u *UserHandlers) ChangePassword(ctx context.Context, x *request.Request) error {
	fields := userBody(x)
	current, password := fields.Given("currentPassword"), fields.Required("newPassword")
	return userCommand(x, fields.Err, func(login string) error { return u.Users.ChangePassword(ctx, login, current, password) })
}

// userCommand does something to the user that the path names and says so, unless the
// body was wrong.
func userCommand(x *request.Request, wrong error, do func(login string) error) error {
	if wrong != nil {
		return wrong
	}
	if err := do(x.Route.Argument); err != nil {
		return err
	}
	sendCommanded(x, http.StatusOK)
	return nil
}

// sendCommanded answers that a command was done.
func sendCommanded(x *request.Request, status int) {
	sendEnvelope(x, status, outline.Text("loginName", x.Route.Argument), userSuccess)
}

func sendEnvelope(x *request.Request, status int, about outline.Field, outcome string) {
	o := outline.Writer{B: x.Out[:0]}
	o.Root("", func() {
		o.Leaves(about)
		o.Leaves(userOutcome(outcome)...)
	})
	x.Out = o.B
	x.W.Header()[request.KeyContentType] = media.JSON.ContentType
	x.Send(status, x.Out)
}

// userOutcome is the end of every envelope.
func userOutcome(outcome string) []outline.Field {
	return []outline.Field{outline.Bool("success", outcome == userSuccess), outline.Text("error", outcome)}
}

// userTime is how times of users are written, in UTC.
const userTime = "2006-01-02T15:04:05.000000-07:00"

// userDetails writes the members of a user.
func userDetails(x *request.Request, o *outline.Writer, a *access.Account) {
	var groups []byte
	for i, g := range a.Groups {
		if i > 0 {
			groups = append(groups, ", "...)
		}
		groups = jsontext.AppendString(groups, g)
	}
	updated, change := outline.Null("dateLastUpdated"), "disable"
	if !a.Updated.IsZero() {
		updated = outline.Text("dateLastUpdated", a.Updated.In(time.UTC).Format(userTime))
	}
	if a.Disabled {
		change = "enable"
	}
	o.Leaves(
		outline.Text("loginName", a.Login), outline.Text("fullName", a.FullName), outline.Field{Name: "groups", Value: "[" + string(groups) + "]", Bare: true},
		updated, outline.Bool("disabled", a.Disabled),
	)
	address := string(x.Origin.URI()) + userPath(a.Login)
	o.Open("links", true)
	o.Bracket("[]", func() {
		for _, l := range [...]struct{ path, rel string }{
			{commandPath + "reset-password", "reset-password"},
			{commandPath + "change-password", "change-password"},
			{"", "edit"},
			{"", "delete"},
			{commandPath + change, change},
		} {
			o.Item()
			o.B = append(o.B, `{"href": "`+address+l.path+`", "rel": "`+l.rel+`"}`...)
		}
	})
}

// userPath is the path of a user, which follows the origin.
func userPath(login string) string { return usersPrefix + string(atom.AppendEscaped(nil, login)) }

// maxUserBody bounds the body of a request about users.
const maxUserBody = 64 << 10

var (
	errUserBody      = problem.Bad("Invalid request. The body is not a JSON object.")
	problemLargeUser = problem.New(http.StatusRequestEntityTooLarge, "Too large a description of a user. Limit is 64kb")
)

// userBody reads the body of the request.
func userBody(x *request.Request) *args.Members {
	body, err := x.Upload.Read(maxUserBody, problemLargeUser, errUserBody)
	if err != nil {
		return &args.Members{Err: err}
	}
	return userMembers(body)
}

func userMembers(body []byte) *args.Members {
	return args.Object(body, errUserBody, "loginName", "fullName", "groups", "password", "newPassword", "currentPassword")
}

// groups returns the groups, none when they are missing or null. The result is never nil.
func groups(m *args.Members) []string {
	groups := []string{}
	v := m.Values["groups"]
	if v.IsGiven() && v.Kind != jsontext.Array {
		m.MustBe("groups", "a list of texts")
	}
	for e := jsontext.ArrayAt(v.Raw, 0); e.Next(); {
		if e.Kind != jsontext.String {
			m.MustBe("groups", "a list of texts")
			break
		}
		groups = append(groups, string(jsontext.Unquote(nil, e.Value)))
	}
	return groups
}

// newAccount returns the user that a body describes.
func newAccount(m *args.Members) access.NewAccount {
	login := m.Required("loginName")
	if why := access.WrongLogin(login); why != "" {
		m.Wrong(problem.Bad(why))
	}
	return access.NewAccount{Login: login, Password: m.Required("password"), FullName: m.Text("fullName"), Groups: groups(m)}
}
