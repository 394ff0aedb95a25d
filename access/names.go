package access

import (
	"fmt"
	"strings"
	"unicode"
	"unicode/utf8"

	"github.com/annalsdb/annals/event"
)

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
