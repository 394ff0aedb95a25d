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

// userBody reads the body of the request.
func userBody(x *exchange) (members, error) {
	body, err := x.readBody(maxUserBody, problemLargeUser, errUserBody)
	if err != nil {
		return nil, err
	}
	return userMembers(body)
}

func userMembers(body []byte) (members, error) {
	m, ok := decodeObject(body, "loginName", "fullName", "groups", "password", "newPassword", "currentPassword")
	if !ok {
		return nil, errUserBody
	}
	return m, nil
}

// text returns a text, empty for one that is missing or null.
func (m members) text(name string) (string, error) {
	switch v := m[name]; {
	case !v.isGiven():
		return "", nil
	case v.kind == jsontext.String:
		return v.text(), nil
	}
	return "", mustBe(name, "a text")
}

// given returns a text that must be there.
func (m members) given(name string) (string, error) {
	if !m[name].isGiven() {
		return "", badRequest(name + " is required.")
	}
	return m.text(name)
}

// required returns a text that must be there and not be empty.
func (m members) required(name string) (string, error) {
	text, err := m.text(name)
	if err == nil && text == "" {
		err = badRequest(name + " is required and must not be empty.")
	}
	return text, err
}

// groups returns the groups, none when they are missing or null. The result is never nil.
func (m members) groups() ([]string, error) {
	groups := []string{}
	v := m["groups"]
	if !v.isGiven() {
		return groups, nil
	}
	if v.kind != jsontext.Array {
		return nil, mustBe("groups", "a list of texts")
	}
	for e := jsontext.ArrayAt(v.raw, 0); e.Next(); {
		if e.Kind != jsontext.String {
			return nil, mustBe("groups", "a list of texts")
		}
		groups = append(groups, string(jsontext.Unquote(nil, e.Value)))
	}
	return groups, nil
}

// newAccount returns the user that a body describes.
func (m members) newAccount() (a access.NewAccount, err error) {
	if a.Login, err = m.required("loginName"); err != nil {
		return a, err
	}
	if err = checkLogin(a.Login); err != nil {
		return a, err
	}
	if a.Password, err = m.required("password"); err != nil {
		return a, err
	}
	if a.FullName, err = m.text("fullName"); err != nil {
		return a, err
	}
	a.Groups, err = m.groups()
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
