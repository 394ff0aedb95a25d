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

// leading makes of a handler of users one that runs on the leader only. What is
// answered is as new as the leader has it.
func leading(serve func(*exchange, context.Context) error) func(*exchange) error {
	return func(x *exchange) error {
		err := x.lead(func(ctx context.Context) error {
			if err := x.s.cluster.Confirm(ctx); err != nil {
				return err
			}
			return serve(x, ctx)
		})
		if err != nil {
			return &userError{login: x.route.argument, isDetail: x.isRead(), err: err}
		}
		return nil
	}
}

// userError is why users were not read or changed. Where the envelope has a word
// for it, the envelope is the answer.
type userError struct {
	login    string
	isDetail bool // the envelope is that of a detail and not of a command
	err      error
}

func (e *userError) Error() string { return e.err.Error() }
func (e *userError) Unwrap() error { return e.err }

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
func listUsers(x *exchange, ctx context.Context) error {
	accounts, err := x.s.opts.Users.List(ctx)
	if err != nil {
		return err
	}
	b := append(x.out[:0], "{\n  \"data\": ["...)
	for i := range accounts {
		if i > 0 {
			b = append(b, ',')
		}
		b = append(b, "\n    "...)
		b = appendUser(x, b, "    ", &accounts[i])
	}
	if len(accounts) > 0 {
		b = append(b, "\n  "...)
	}
	sendUserDetails(x, append(b, ']'))
	return nil
}

// getUser answers with the user that the path names.
func getUser(x *exchange, ctx context.Context) error { return sendUser(x, ctx, x.route.argument) }

// currentUser answers with the caller. The system account is nobody's.
func currentUser(x *exchange, ctx context.Context) error {
	if x.who.IsSystem() {
		return event.ErrUserNotFound
	}
	return sendUser(x, ctx, x.who.Login)
}

func sendUser(x *exchange, ctx context.Context, login string) error {
	account, err := x.s.opts.Users.Get(ctx, login)
	if err != nil {
		return err
	}
	sendUserDetails(x, appendUser(x, append(x.out[:0], "{\n  \"data\": "...), "  ", &account))
	return nil
}

// sendUserDetails sends a document whose data was appended already.
func sendUserDetails(x *exchange, b []byte) {
	b = append(b, ",\n"...)
	x.out = appendOutcome(b, userSuccess)
	x.w.Header()[keyCacheControl] = cacheNever
	x.ok()
}

// createUser makes a user. That it exists with the same password is no matter.
func createUser(x *exchange, ctx context.Context) error {
	fields, err := userBody(x)
	if err != nil {
		return err
	}
	account, err := fields.newAccount()
	if err != nil {
		return err
	}
	x.route.argument = account.Login // What the envelope of a failure is about.
	if err := x.s.opts.Users.Create(ctx, account); err != nil {
		return err
	}
	b := appendUserURI(append(x.scratch[:0], x.origin()...), account.Login)
	x.scratch = b
	x.w.Header()[keyLocation] = []string{string(b)}
	sendCommanded(x, http.StatusCreated)
	return nil
}

// updateUser replaces name and groups.
func updateUser(x *exchange, ctx context.Context) error {
	fields, err := userBody(x)
	if err != nil {
		return err
	}
	fullName, err := fields.text("fullName")
	if err != nil {
		return err
	}
	groups, err := fields.groups()
	if err != nil {
		return err
	}
	return userCommand(x, func(login string) error { return x.s.opts.Users.Update(ctx, login, fullName, groups) })
}

func deleteUser(x *exchange, ctx context.Context) error {
	if err := x.s.opts.Users.Delete(ctx, x.route.argument); err != nil {
		return err
	}
	if x.s.opts.ReferenceStatusCodes {
		sendCommanded(x, http.StatusOK)
	} else {
		x.send(http.StatusNoContent, nil)
	}
	return nil
}

func enableUser(x *exchange, ctx context.Context) error {
	return userCommand(x, func(login string) error { return x.s.opts.Users.SetDisabled(ctx, login, false) })
}

func disableUser(x *exchange, ctx context.Context) error {
	return userCommand(x, func(login string) error { return x.s.opts.Users.SetDisabled(ctx, login, true) })
}

func resetPassword(x *exchange, ctx context.Context) error {
	fields, err := userBody(x)
	if err != nil {
		return err
	}
	password, err := fields.required("newPassword")
	if err != nil {
		return err
	}
	return userCommand(x, func(login string) error { return x.s.opts.Users.ResetPassword(ctx, login, password) })
}

func changePassword(x *exchange, ctx context.Context) error {
	fields, err := userBody(x)
	if err != nil {
		return err
	}
	current, err := fields.given("currentPassword")
	if err != nil {
		return err
	}
	password, err := fields.required("newPassword")
	if err != nil {
		return err
	}
	return userCommand(x, func(login string) error { return x.s.opts.Users.ChangePassword(ctx, login, current, password) })
}

// userCommand does something to the user that the path names and says so.
func userCommand(x *exchange, do func(login string) error) error {
	if err := do(x.route.argument); err != nil {
		return err
	}
	sendCommanded(x, http.StatusOK)
	return nil
}

// sendCommanded answers that a command was done.
func sendCommanded(x *exchange, status int) {
	x.out = appendCommand(x.out[:0], x.route.argument, userSuccess)
	sendEnvelope(x, status)
}

// userFailed answers with the envelope of a failure.
func userFailed(x *exchange, e *userError, p *problem) {
	x.phrase(p.status, p.text)
	if e.isDetail {
		x.out = appendOutcome(append(x.out[:0], "{\n  \"data\": null,\n"...), userFailures[p.status])
	} else {
		x.out = appendCommand(x.out[:0], e.login, userFailures[p.status])
	}
	sendEnvelope(x, p.status)
}

func sendEnvelope(x *exchange, status int) {
	x.w.Header()[keyContentType] = typeJSON.contentType
	x.send(status, x.out)
}

// appendCommand appends the envelope of a command.
func appendCommand(b []byte, login, outcome string) []byte {
	b = append(b, "{\n  \"loginName\": "...)
	b = jsontext.AppendString(b, login)
	return appendOutcome(append(b, ",\n"...), outcome)
}

// appendOutcome appends the end of every envelope.
func appendOutcome(b []byte, outcome string) []byte {
	b = append(b, "  \"success\": "...)
	if outcome == userSuccess {
		b = append(b, "true"...)
	} else {
		b = append(b, "false"...)
	}
	b = append(b, ",\n  \"error\": \""...)
	b = append(b, outcome...)
	return append(b, "\"\n}"...)
}

// userTime is how times of users are written, in UTC.
const userTime = "2006-01-02T15:04:05.000000-07:00"

// appendUser appends the object of a user that begins on an indented line.
func appendUser(x *exchange, b []byte, indent string, a *access.Account) []byte {
	next := ",\n" + indent + "  "
	b = append(b, "{\n"+indent+"  \"loginName\": "...)
	b = jsontext.AppendString(b, a.Login)
	b = append(b, next+"\"fullName\": "...)
	b = jsontext.AppendString(b, a.FullName)
	b = append(b, next+"\"groups\": ["...)
	for i, g := range a.Groups {
		if i > 0 {
			b = append(b, ", "...)
		}
		b = jsontext.AppendString(b, g)
	}
	b = append(b, "]"+next+"\"dateLastUpdated\": "...)
	if a.Updated.IsZero() {
		b = append(b, "null"...)
	} else {
		b = append(b, '"')
		b = a.Updated.In(time.UTC).AppendFormat(b, userTime)
		b = append(b, '"')
	}
	state, change := "false", "disable"
	if a.Disabled {
		state, change = "true", "enable"
	}
	b = append(b, next+"\"disabled\": "+state+next+"\"links\": ["...)
	for i, l := range [...]struct{ path, rel string }{
		{commandPath + "reset-password", "reset-password"},
		{commandPath + "change-password", "change-password"},
		{"", "edit"},
		{"", "delete"},
		{commandPath + change, change},
	} {
		if i > 0 {
			b = append(b, ',')
		}
		b = append(b, "\n"+indent+"    {\"href\": \""...)
		b = appendUserURI(append(b, x.origin()...), a.Login)
		b = append(b, l.path...)
		b = append(b, "\", \"rel\": \""+l.rel+"\"}"...)
	}
	return append(b, "\n"+indent+"  ]\n"+indent+"}"...)
}

// appendUserURI appends the path of a user behind the origin.
func appendUserURI(origin []byte, login string) []byte {
	return atom.AppendEscaped(append(origin, usersPrefix...), login)
}
