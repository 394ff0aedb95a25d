package httpapi

import (
	"context"
	"net/http"
	"time"

	"github.com/annalsdb/annals/access"
	"github.com/annalsdb/annals/event"
	"github.com/annalsdb/annals/http/atom"
	"github.com/annalsdb/annals/internal/jsontext"
)

const (
	usersPrefix = "/users/"
	// commandPath leads from a user to its commands.
	commandPath = "/command/"
)

// leading makes of a handler of users one that runs on the leader only. The answers are as new as
// the leader's.
func (u *userHandlers) leading(serve handler) handler {
	return func(_ context.Context, x *exchange) error {
		err := u.way.lead(x, func(ctx context.Context) error {
			if err := x.node.cluster.Confirm(ctx); err != nil {
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

// The words of the envelope. They are part of the wire: do not change.
const userSuccess = "Success"

var userFailures = map[int]string{
	http.StatusNotFound:            "NotFound",
	http.StatusConflict:            "Conflict",
	http.StatusUnauthorized:        "Unauthorized",
	http.StatusRequestTimeout:      "TryAgain",
	http.StatusInternalServerError: "Error",
}

// listUsers answers with all users.
func (u *userHandlers) listUsers(ctx context.Context, x *exchange) error {
	accounts, err := u.users.List(ctx)
	if err != nil {
		return err
	}
	sendUserDetails(x, func(o *outline) {
		o.list("data", "", len(accounts), func(i int) { userDetails(x, o, &accounts[i]) })
	})
	return nil
}

// getUser answers with the user that the path names.
func (u *userHandlers) getUser(ctx context.Context, x *exchange) error {
	return u.sendUser(ctx, x, x.route.argument)
}

// currentUser answers with the caller. The system account has no user.
func (u *userHandlers) currentUser(ctx context.Context, x *exchange) error {
	if x.who.IsSystem() {
		return event.ErrUserNotFound
	}
	return u.sendUser(ctx, x, x.who.Login)
}

func (u *userHandlers) sendUser(ctx context.Context, x *exchange, login string) error {
	account, err := u.users.Get(ctx, login)
	if err != nil {
		return err
	}
	sendUserDetails(x, func(o *outline) {
		o.object("data", func() { userDetails(x, o, &account) })
	})
	return nil
}

// sendUserDetails sends a document with data.
func sendUserDetails(x *exchange, data func(*outline)) {
	o := outline{b: x.out[:0]}
	o.root("", func() {
		data(&o)
		o.leaves(userOutcome(userSuccess)...)
	})
	x.out = o.b
	x.w.Header()[keyCacheControl] = cacheNever
	x.ok()
}

// createUser makes a user. That it exists with the same password is no matter.
func (u *userHandlers) createUser(ctx context.Context, x *exchange) error {
	fields := userBody(x)
	account := fields.newAccount()
	if fields.err != nil {
		return fields.err
	}
	x.route.argument = account.Login // What the envelope of a failure is about.
	if err := u.users.Create(ctx, account); err != nil {
		return err
	}
	x.w.Header()[keyLocation] = []string{string(x.origin()) + userPath(account.Login)}
	sendCommanded(x, http.StatusCreated)
	return nil
}

// updateUser replaces name and groups.
func (u *userHandlers) updateUser(ctx context.Context, x *exchange) error {
	fields := userBody(x)
	fullName, groups := fields.text("fullName"), fields.groups()
	return userCommand(x, fields.err, func(login string) error { return u.users.Update(ctx, login, fullName, groups) })
}

func (u *userHandlers) deleteUser(ctx context.Context, x *exchange) error {
	if err := u.users.Delete(ctx, x.route.argument); err != nil {
		return err
	}
	if x.node.referenceStatusCodes {
		sendCommanded(x, http.StatusOK)
	} else {
		x.send(http.StatusNoContent, nil)
	}
	return nil
}

// disableUser makes the handler that locks a user out, or lets it in again.
func (u *userHandlers) disableUser(disabled bool) handler {
	return func(ctx context.Context, x *exchange) error {
		return userCommand(x, nil, func(login string) error { return u.users.SetDisabled(ctx, login, disabled) })
	}
}

func (u *userHandlers) resetPassword(ctx context.Context, x *exchange) error {
	fields := userBody(x)
	password := fields.required("newPassword")
	return userCommand(x, fields.err, func(login string) error { return u.users.ResetPassword(ctx, login, password) })
}

func (u *userHandlers) changePassword(ctx context.Context, x *exchange) error {
	fields := userBody(x)
	current, password := fields.given("currentPassword"), fields.required("newPassword")
	return userCommand(x, fields.err, func(login string) error { return u.users.ChangePassword(ctx, login, current, password) })
}

// userCommand does something to the user that the path names and says so, unless the
// body was wrong.
func userCommand(x *exchange, wrong error, do func(login string) error) error {
	if wrong != nil {
		return wrong
	}
	if err := do(x.route.argument); err != nil {
		return err
	}
	sendCommanded(x, http.StatusOK)
	return nil
}

// sendCommanded answers that a command was done.
func sendCommanded(x *exchange, status int) {
	sendEnvelope(x, status, textField("loginName", x.route.argument), userSuccess)
}

// userFailed answers with the envelope of a failure: that of a detail or of a command.
func userFailed(x *exchange, p *problem) {
	x.phrase(p.status, p.text)
	about := textField("loginName", x.route.argument)
	if x.isRead() {
		about = nullField("data")
	}
	sendEnvelope(x, p.status, about, userFailures[p.status])
}

func sendEnvelope(x *exchange, status int, about field, outcome string) {
	o := outline{b: x.out[:0]}
	o.root("", func() {
		o.leaves(about)
		o.leaves(userOutcome(outcome)...)
	})
	x.out = o.b
	x.w.Header()[keyContentType] = typeJSON.contentType
	x.send(status, x.out)
}

// userOutcome is the end of every envelope.
func userOutcome(outcome string) []field {
	return []field{boolField("success", outcome == userSuccess), textField("error", outcome)}
}

// userTime is how times of users are written, in UTC.
const userTime = "2006-01-02T15:04:05.000000-07:00"

// userDetails writes the members of a user.
func userDetails(x *exchange, o *outline, a *access.Account) {
	var groups []byte
	for i, g := range a.Groups {
		if i > 0 {
			groups = append(groups, ", "...)
		}
		groups = jsontext.AppendString(groups, g)
	}
	updated, change := nullField("dateLastUpdated"), "disable"
	if !a.Updated.IsZero() {
		updated = textField("dateLastUpdated", a.Updated.In(time.UTC).Format(userTime))
	}
	if a.Disabled {
		change = "enable"
	}
	o.leaves(
		textField("loginName", a.Login), textField("fullName", a.FullName), field{"groups", "[" + string(groups) + "]", true},
		updated, boolField("disabled", a.Disabled),
	)
	address := string(x.origin()) + userPath(a.Login)
	o.open("links", true)
	o.bracket("[]", func() {
		for _, l := range [...]struct{ path, rel string }{
			{commandPath + "reset-password", "reset-password"},
			{commandPath + "change-password", "change-password"},
			{"", "edit"},
			{"", "delete"},
			{commandPath + change, change},
		} {
			o.item()
			o.b = append(o.b, `{"href": "`+address+l.path+`", "rel": "`+l.rel+`"}`...)
		}
	})
}

// userPath is the path of a user, which follows the origin.
func userPath(login string) string { return usersPrefix + string(atom.AppendEscaped(nil, login)) }
