package httpapi

import (
	"net/http"

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
func userBody(x *exchange) *members {
	body, err := x.readBody(maxUserBody, problemLargeUser, errUserBody)
	if err != nil {
		return &members{err: err}
	}
	return userMembers(body)
}

func userMembers(body []byte) *members {
	return decodeObject(body, errUserBody, "loginName", "fullName", "groups", "password", "newPassword", "currentPassword")
}

// given returns a text that must be there.
func (m *members) given(name string) string {
	if !m.values[name].isGiven() {
		m.wrong(badRequest(name + " is required."))
	}
	return m.text(name)
}

// required returns a text that must be there and not be empty.
func (m *members) required(name string) string {
	text := m.text(name)
	if text == "" {
		m.wrong(badRequest(name + " is required and must not be empty."))
	}
	return text
}

// groups returns the groups, none when they are missing or null. The result is never nil.
func (m *members) groups() []string {
	groups := []string{}
	v := m.values["groups"]
	if v.isGiven() && v.kind != jsontext.Array {
		m.mustBe("groups", "a list of texts")
	}
	for e := jsontext.ArrayAt(v.raw, 0); e.Next(); {
		if e.Kind != jsontext.String {
			m.mustBe("groups", "a list of texts")
			break
		}
		groups = append(groups, string(jsontext.Unquote(nil, e.Value)))
	}
	return groups
}

// newAccount returns the user that a body describes.
func (m *members) newAccount() access.NewAccount {
	login := m.required("loginName")
	if why := access.WrongLogin(login); why != "" {
		m.wrong(badRequest(why))
	}
	return access.NewAccount{Login: login, Password: m.required("password"), FullName: m.text("fullName"), Groups: m.groups()}
}
