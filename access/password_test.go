package access_test

import (
	"bytes"
	"context"
	"encoding/hex"
	"errors"
	"reflect"
	"testing"

	"github.com/annalsdb/annals/access"
	"github.com/annalsdb/annals/internal/check"
)

func unhex(t testing.TB, s string) []byte {
	t.Helper()
	b := check.Value(hex.DecodeString(s)).Must(t)
	return b
}

func TestVerifyVectors(t *testing.T) {
	salt := []byte("salt")
	cases := []struct {
		name, algorithm string
		iterations      int
		hash            string
		want            bool
	}{
		{"RFC 6070, one iteration", "pbkdf2-sha1", 1, "0c60c80f961f0e71f3a9b524af6012062fe037a6", true},
		{"RFC 6070, two iterations", "pbkdf2-sha1", 2, "ea6c014dc72d6f8ccd1ed92ace1d41f0d8de8957", true},
		{"RFC 6070, 4096 iterations", "pbkdf2-sha1", 4096, "4b007901b765489abead49d926f721d065a429c1", true},
		{"SHA-256, one iteration", "pbkdf2-sha256", 1, "120fb6cffcf8b32c43e7225256c4f837a86548c92ccc35480805987cb70be17b", true},
		{"SHA-256, two iterations", "pbkdf2-sha256", 2, "ae4d0c95af6b46d32d0adff928f06dd02a303f8ef3c251dfd6e2d85a95474c43", true},
		{"SHA-256, 4096 iterations", "pbkdf2-sha256", 4096, "c5e478d59288c841aa530db6845c4c8d962893a001ce4e11a4963873aa98134a", true},
		{"other iterations", "pbkdf2-sha256", 3, "ae4d0c95af6b46d32d0adff928f06dd02a303f8ef3c251dfd6e2d85a95474c43", false},
		{"unknown algorithm", "md5", 1, "120fb6cffcf8b32c43e7225256c4f837a86548c92ccc35480805987cb70be17b", false},
		{"no iterations", "pbkdf2-sha256", 0, "120fb6cffcf8b32c43e7225256c4f837a86548c92ccc35480805987cb70be17b", false},
		{"endless iterations", "pbkdf2-sha256", 1 << 50, "120fb6cffcf8b32c43e7225256c4f837a86548c92ccc35480805987cb70be17b", false},
		{"cut hash", "pbkdf2-sha256", 1, "120fb6cf", false},
		{"no hash", "pbkdf2-sha256", 1, "", false},
		{"no hash, legacy", "", 0, "", false},
	}
	for _, c := range cases {
		t.Run(c.name, func(t *testing.T) {
			h := access.NewHasher(access.HasherOptions{Iterations: 1})
			p := access.PasswordHash{Salt: salt, Hash: unhex(t, c.hash), Algorithm: c.algorithm, Iterations: c.iterations}
			got := check.Value(h.Verify(context.Background(), "jane", "password", p)).Must(t)
			check.MustEqual(t, got, c.want)
			if got, err := h.Verify(context.Background(), "joe", "Password", p); err != nil || got {
				t.Fatalf("another password: got %v, %v", got, err)
			}
		})
	}
}

func TestHashIsSaltedAndNamed(t *testing.T) {
	h := access.NewHasher(access.HasherOptions{Iterations: 7})
	a, errA := h.Hash(context.Background(), "jane", "changeit")
	b, errB := h.Hash(context.Background(), "jane", "changeit")
	check.Must(t, errors.Join(errA, errB))
	if bytes.Equal(a.Salt, b.Salt) || bytes.Equal(a.Hash, b.Hash) {
		t.Fatal("the same password has the same salt or hash")
	}
	if len(a.Salt) != 16 || len(a.Hash) != 32 || a.Algorithm != "pbkdf2-sha256" || a.Iterations != 7 {
		t.Fatalf("got %+v", a)
	}
	if ok, err := h.Verify(context.Background(), "jane", "changeit", a); !ok || err != nil {
		t.Fatalf("got %v, %v", ok, err)
	}
}

func TestDefaultIterations(t *testing.T) {
	p, err := access.NewHasher(access.HasherOptions{}).Hash(context.Background(), "jane", "changeit")
	check.Must(t, err)
	check.MustEqual(t, p.Iterations, 600_000)
}

func TestDecodeUser(t *testing.T) {
	cases := []struct {
		name, data string
		want       *access.User
	}{
		{"whole", `{"loginName":"jane","fullName":"Jane <Doe>","salt":"AQI=","hash":"AwQ=","groups":["a"],"disabled":true,"alg":"pbkdf2-sha256","iter":5}`,
			&access.User{LoginName: "jane", FullName: "Jane <Doe>", Salt: []byte{1, 2}, Hash: []byte{3, 4}, Groups: []string{"a"}, Disabled: true, Algorithm: "pbkdf2-sha256", Iterations: 5}},
		{"legacy", `{"loginName":"jane","fullName":"","salt":"AQI=","hash":"AwQ="}`,
			&access.User{LoginName: "jane", Salt: []byte{1, 2}, Hash: []byte{3, 4}, Groups: []string{}}},
		{"null groups, other case", `{"LoginName":"jane","groups":null}`, &access.User{LoginName: "jane", Groups: []string{}}},
		{"no login", `{"fullName":"x"}`, nil},
		{"bad base64", `{"loginName":"x","hash":"*"}`, nil},
		{"no JSON", "\xff\xff", nil},
		{"empty", ``, nil},
	}
	for _, c := range cases {
		t.Run(c.name, func(t *testing.T) {
			got, err := access.DecodeUser([]byte(c.data))
			if (err != nil) != (c.want == nil) || c.want != nil && !reflect.DeepEqual(got, c.want) {
				t.Fatalf("got %+v, %v", got, err)
			}
		})
	}
}

func TestEncodeUser(t *testing.T) {
	cases := []struct {
		name string
		user access.User
		want string
	}{
		{"whole", access.User{LoginName: "jane", FullName: "Jane <Doe>", Salt: []byte{1, 2}, Hash: []byte{3, 4}, Groups: []string{"a"}, Disabled: true, Algorithm: "pbkdf2-sha256", Iterations: 5},
			`{"loginName":"jane","fullName":"Jane <Doe>","salt":"AQI=","hash":"AwQ=","groups":["a"],"disabled":true,"alg":"pbkdf2-sha256","iter":5}`},
		{"no groups, enabled", access.User{LoginName: "jane", Salt: []byte{1}, Hash: []byte{2}},
			`{"loginName":"jane","fullName":"","salt":"AQ==","hash":"Ag==","groups":[]}`},
	}
	for _, c := range cases {
		t.Run(c.name, func(t *testing.T) {
			got := check.Value(access.EncodeUser(&c.user)).Must(t)
			check.MustEqual(t, string(got), c.want)
		})
	}
}

func FuzzDecodeUser(f *testing.F) {
	f.Add([]byte(`{"loginName":"jane","fullName":"Jane","salt":"AQI=","hash":"AwQ=","groups":["a"],"disabled":true,"alg":"x","iter":5}`))
	f.Add([]byte(`{"loginName":"jane","groups":null}`))
	f.Fuzz(func(t *testing.T, data []byte) {
		u, err := access.DecodeUser(data)
		if err != nil {
			return
		}
		again, err := access.EncodeUser(u)
		check.Must(t, err)
		if v, err := access.DecodeUser(again); err != nil || v.LoginName != u.LoginName || len(v.Groups) != len(u.Groups) || !bytes.Equal(v.Hash, u.Hash) {
			t.Fatalf("%q became %q: %v", data, again, err)
		}
	})
}
