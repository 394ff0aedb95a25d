package access

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"time"
	"unicode"
	"unicode/utf8"

	"github.com/annalsdb/annals/event"
)

// User is a user as an event of its stream holds it.
type User struct {
	LoginName string   `json:"loginName"`
	FullName  string   `json:"fullName"`
	Salt      []byte   `json:"salt"`
	Hash      []byte   `json:"hash"`
	Groups    []string `json:"groups"`
	Disabled  bool     `json:"disabled,omitempty"`

	// How Hash was made of the password. Empty: as in a database of before, see the package
	// comment.
	Algorithm  string `json:"alg,omitempty"`
	Iterations int    `json:"iter,omitempty"`
}

// SetPassword makes creds the user's password.
func (u *User) SetPassword(creds PasswordHash) {
	u.Salt, u.Hash, u.Algorithm, u.Iterations = creds.Salt, creds.Hash, creds.Algorithm, creds.Iterations
}

// Password returns what the user's password is checked against.
func (u *User) Password() PasswordHash {
	return PasswordHash{Salt: u.Salt, Hash: u.Hash, Algorithm: u.Algorithm, Iterations: u.Iterations}
}

// leaving reports whether the user is being deleted: there is no password any more.
func (u *User) leaving() bool { return len(u.Hash) == 0 }

// Principal returns the user as a caller.
func (u *User) Principal() Principal { return Principal{Login: u.LoginName, Groups: u.Groups} }

// EncodeUser returns the data of an event that stores the user.
func EncodeUser(u *User) ([]byte, error) {
	stored := *u
	if stored.Groups == nil {
		stored.Groups = []string{}
	}
	data, err := encodeJSON(&stored)
	if err != nil {
		return nil, fmt.Errorf("encode user %q: %w", u.LoginName, err)
	}
	return data, nil
}

// DecodeUser reads the data of an event that stores a user. Groups of the result is never nil.
func DecodeUser(data []byte) (*User, error) {
	u := new(User)
	if err := json.Unmarshal(data, u); err != nil {
		return nil, fmt.Errorf("decode user: %w", err)
	}
	if u.LoginName == "" {
		return nil, errors.New("decode user: no login name")
	}
	if u.Groups == nil {
		u.Groups = []string{}
	}
	return u, nil
}

// notification returns the data of an event that tells of a change of a user.
func notification(login string) ([]byte, error) {
	data, err := encodeJSON(struct {
		LoginName string `json:"loginName"`
	}{login})
	if err != nil {
		return nil, fmt.Errorf("encode notification about %q: %w", login, err)
	}
	return data, nil
}

// encodeJSON marshals without escaping characters that matter in HTML only.
func encodeJSON(v any) ([]byte, error) {
	var b bytes.Buffer
	e := json.NewEncoder(&b)
	e.SetEscapeHTML(false)
	if err := e.Encode(v); err != nil {
		return nil, err
	}
	return bytes.TrimSuffix(b.Bytes(), []byte("\n")), nil
}

// Account is a stored user as an operator sees it.
type Account struct {
	Login, FullName string
	Groups          []string // never nil
	Disabled        bool
	Updated         time.Time // of the last stored change
}

// NewAccount is a user to be created.
type NewAccount struct {
	Login, FullName string
	Groups          []string
	Password        string
}

// Streams, event types and documents of user management. They are part of the
// wire contract and of stored data: do not change.
const (
	UserStreamPrefix    = "$user-" // and the login
	UsersStream         = "$users"
	NotificationsStream = "$users-password-notifications"

	TypeUserCreated     = "$UserCreated"
	TypeUserUpdated     = "$UserUpdated"
	TypeUser            = "$User"
	TypePasswordChanged = "$PasswordChanged"

	// UserStreamMetadata is the metadata of every user's stream.
	UserStreamMetadata = `{"$acl":{"$w":"$admins","$d":"$admins","$mw":"$admins"}}`
	// NotificationsMetadata is the metadata of NotificationsStream.
	NotificationsMetadata = `{"$maxAge":3600}`
)

// Names of password hashes as stored in "alg". Do not change.
const (
	algSHA256 = "pbkdf2-sha256"
	algSHA1   = "pbkdf2-sha1"
)

// Members of the $settings document. Do not change.
const (
	keyUserStreamACL   = "$userStreamAcl"
	keySystemStreamACL = "$systemStreamAcl"
)

// Headers that carry credentials, in canonical form.
const (
	headerAuthorization = "Authorization"
	headerTrustedAuth   = "Es-Trustedauth"
	kurrentTrustedAuth  = "Kurrent-Trustedauth" // the later name of that
)

// MaxLoginBytes is the length of the longest login there can be: the name of the
// user's stream, which the login ends, must not be longer than the log can
// store. A caller that creates a user must refuse longer ones as a bad request.
const MaxLoginBytes = event.MaxNameBytes - len(UserStreamPrefix)

// UserStream returns the name of the stream that holds a user.
func UserStream(login string) string { return UserStreamPrefix + login }

// currentLogin stands for the caller where a login is read. Clients use it: do not change.
const currentLogin = "$current"

// WrongLogin says what keeps a login, which is not empty, from being that of a new user;
// nothing when it can be one.
func WrongLogin(login string) string {
	switch {
	case len(login) > MaxLoginBytes:
		return fmt.Sprintf("loginName is longer than %d bytes.", MaxLoginBytes)
	case login == currentLogin:
		return "loginName must not be " + currentLogin + ", which names the caller."
	case strings.Contains(login, ":"):
		return "loginName must not hold a colon, which ends it where login and password are sent."
	case strings.ContainsFunc(login, func(r rune) bool { return unicode.IsControl(r) || r == utf8.RuneError }):
		return "loginName must not hold control characters or characters that do not exist."
	}
	return ""
}
