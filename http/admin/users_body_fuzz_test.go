package admin

import (
	"encoding/json"
	"strings"
	"testing"
	"unicode/utf8"

	"github.com/annalsdb/annals/access"
	"github.com/annalsdb/annals/http/args"
	"github.com/annalsdb/annals/http/problem"
)

func FuzzUserBody(f *testing.F) {
	for _, s := range []string{
		`{"loginName":"jane","fullName":"Jane Doe","groups":["a","b"],"password":"p"}`, `{"LOGINNAME":"\u0041","password":"\n","groups":null}`,
		`{"groups":[1]}`, `{"loginName":1,"loginName":"x","password":"p"}`, `[]`, `{`, ``, "\xef\xbb\xbf{}",
	} {
		f.Add([]byte(s))
	}
	f.Fuzz(func(t *testing.T, body []byte) {
		fields := userMembers(body)
		if fields.Err != nil {
			return
		}
		var want map[string]json.RawMessage
		if err := json.Unmarshal([]byte(strings.TrimPrefix(string(body), string(args.ByteOrderMark))), &want); err != nil {
			t.Fatalf("%q was taken: %v", body, err)
		}
		a := newAccount(fields)
		if err := fields.Err; err != nil {
			if p, known := problem.Of(err, problem.Reading); !known || p.Status != 400 || p.Text == "" {
				t.Fatalf("%v became %+v", err, p)
			}
			return
		}
		if a.Login == "" || a.Password == "" || a.Groups == nil || len(a.Login) > access.MaxLoginBytes || !utf8.ValidString(a.Login) || a.Login == "$current" {
			t.Fatalf("%q became %+v", body, a)
		}
		for _, r := range a.Login {
			if r < ' ' || r == 0x7f {
				t.Fatalf("%q is a login", a.Login)
			}
		}
	})
}
