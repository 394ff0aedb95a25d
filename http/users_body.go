package httpapi

import (
	"fmt"
	"net/http"
	"strings"
	"unicode"
	"unicode/utf8"

	"github.com/annalsdb/annals/access"
	"github.com/annalsdb/annals/internal/jsontext"
)

// maxUserBody bounds the body of a request about users.
const maxUserBody = 64 << 10

var (
	errUserBody      = badRequest("Invalid request. The body is not a JSON object.")
	problemLargeUser = refusal(http.StatusRequestEntityTooLarge, "Too large a description of a user. Limit is 64kb")
)

// userField is a member of such a body that has a meaning. Others are ignored.
type userField uint8

const (
	userLoginName userField = iota
	userFullName
	userGroups
	userPassword
	userNewPassword
	userCurrentPassword
	userFieldCount
)

var userFieldNames = [userFieldCount]string{"loginName", "fullName", "groups", "password", "newPassword", "currentPassword"}

// userFields are the members of a body.
type userFields [userFieldCount]memberValue

// userBody reads the body of the request.
func userBody(x *exchange, f *userFields) error {
	body, err := x.readBody(maxUserBody, problemLargeUser, errUserBody)
	if err != nil {
		return err
	}
	return f.decode(body)
}

func (f *userFields) decode(body []byte) error {
	if !decodeObject(body, userFieldNames[:], f[:]) {
		return errUserBody
	}
	return nil
}

// text returns a text, empty for one that is missing or null.
func (f *userFields) text(field userField) (string, error) {
	switch v := f[field]; {
	case !v.isGiven():
		return "", nil
	case v.kind == jsontext.String:
		return v.text(), nil
	}
	return "", badRequest(userFieldNames[field] + " must be a text.")
}

// given returns a text that must be there.
func (f *userFields) given(field userField) (string, error) {
	if !f[field].isGiven() {
		return "", badRequest(userFieldNames[field] + " is required.")
	}
	return f.text(field)
}

// required returns a text that must be there and not be empty.
func (f *userFields) required(field userField) (string, error) {
	text, err := f.text(field)
	if err == nil && text == "" {
		err = badRequest(userFieldNames[field] + " is required and must not be empty.")
	}
	return text, err
}

// groups returns the groups, none when they are missing or null. The result is never nil.
func (f *userFields) groups() ([]string, error) {
	groups := []string{}
	v := f[userGroups]
	if !v.isGiven() {
		return groups, nil
	}
	if v.kind != jsontext.Array {
		return nil, badRequest("groups must be a list of texts.")
	}
	for e := jsontext.ArrayAt(v.raw, 0); e.Next(); {
		if e.Kind != jsontext.String {
			return nil, badRequest("groups must be a list of texts.")
		}
		groups = append(groups, string(jsontext.Unquote(nil, e.Value)))
	}
	return groups, nil
}

// newAccount returns the user that a body describes.
func (f *userFields) newAccount() (a access.NewAccount, err error) {
	if a.Login, err = f.required(userLoginName); err != nil {
		return a, err
	}
	if err = checkLogin(a.Login); err != nil {
		return a, err
	}
	if a.Password, err = f.required(userPassword); err != nil {
		return a, err
	}
	if a.FullName, err = f.text(userFullName); err != nil {
		return a, err
	}
	a.Groups, err = f.groups()
	return a, err
}

// checkLogin says what keeps a login from being one.
func checkLogin(login string) error {
	switch {
	case len(login) > access.MaxLoginBytes:
		return badRequest(fmt.Sprintf("loginName is longer than %d bytes.", access.MaxLoginBytes))
	case login == currentLogin:
		return badRequest("loginName must not be " + currentLogin + ", which names the caller.")
	case strings.ContainsFunc(login, func(r rune) bool { return unicode.IsControl(r) || r == utf8.RuneError }):
		return badRequest("loginName must not hold control characters or characters that do not exist.")
	}
	return nil
}
