package admin

import (
	"net/http"

	"github.com/annalsdb/annals/access"
	"github.com/annalsdb/annals/http/args"
	"github.com/annalsdb/annals/http/problem"
	"github.com/annalsdb/annals/http/request"
	"github.com/annalsdb/annals/internal/jsontext"
)

// maxUserBody bounds the body of a request about users.
const maxUserBody = 64 << 10

var (
	errUserBody      = problem.Bad("Invalid request. The body is not a JSON object.")
	problemLargeUser = problem.New(http.StatusRequestEntityTooLarge, "Too large a description of a user. Limit is 64kb")
)

// userBody reads the body of the request.
func userBody(x *request.Request) *args.Members {
	body, err := x.ReadBody(maxUserBody, problemLargeUser, errUserBody)
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
