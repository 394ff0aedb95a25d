package access

import (
	"slices"

	"github.com/annalsdb/annals/event"
)

// Names of groups and accounts that the database gives a meaning. They are part
// of the wire contract: do not change.
const (
	RoleAdmins = "$admins" // allowed everything
	RoleOps    = "$ops"    // operates the node, no special right to streams
	RoleAll    = "$all"    // the role everybody has

	LoginAdmin  = "admin"  // has the rights of $admins, in any groups or none
	LoginOps    = "ops"    // has the rights of $ops, in any groups or none
	LoginSystem = "system" // how the system account is called; a user of that name gains nothing
)

// Principal is a caller as authentication found it. The zero value is the
// anonymous caller. Principals are shared between requests: Groups must not be
// changed.
type Principal struct {
	Login  string
	Groups []string

	// system is set for the account of other nodes and of the node itself. A flag
	// and not the name, so that a stored user called "system" is an ordinary user.
	system bool
	// login is what was verified of stored users; nil for other callers. Renew goes by it.
	login *cached
}

var (
	// Anonymous is a caller without credentials.
	Anonymous = Principal{}
	// System is the account of the node itself, of other nodes, and of everybody in insecure mode.
	System = Principal{Login: LoginSystem, Groups: []string{RoleAdmins}, system: true}
)

// IsAnonymous reports whether the caller gave no credentials.
func (p Principal) IsAnonymous() bool { return p.Login == "" && !p.system }

// IsSystem reports whether the caller is the system account.
func (p Principal) IsSystem() bool { return p.system }

// IsAdmin reports whether the caller is the system account, the user admin, or in $admins.
func (p Principal) IsAdmin() bool {
	return p.system || p.Login == LoginAdmin || p.inGroup(RoleAdmins)
}

// IsOps reports whether the caller may operate the node: an administrator (IsAdmin), the user ops,
// and $ops.
func (p Principal) IsOps() bool {
	return p.Login == LoginOps || p.inGroup(RoleOps) || p.IsAdmin()
}

// HasRole reports whether role is the caller's login, one of its groups, or $all. The user ops has
// the role $ops as well. The comparison is exact. No caller has the empty role.
func (p Principal) HasRole(role string) bool {
	return role != "" && (role == RoleAll || role == p.Login || p.inGroup(role) || role == RoleOps && p.Login == LoginOps)
}

func (p Principal) inGroup(group string) bool {
	if p.Login == "" { // Groups count only with a login.
		return false
	}
	return slices.Contains(p.Groups, group)
}

// Right is one of the five rights to a stream.
type Right uint8

// The rights, in the order of their keys $r, $w, $d, $mr, $mw in an access list.
const (
	ReadRight Right = iota
	WriteRight
	DeleteRight
	MetaReadRight
	MetaWriteRight
)

// String returns the right in words.
func (r Right) String() string {
	return [...]string{"read", "write", "delete", "metadata read", "metadata write"}[r]
}

// IsNobodys reports a right that no caller has: to write to the log or to delete it, and to delete
// a metadata stream.
func IsNobodys(stream string, right Right) bool {
	return stream == event.AllStream && (right == WriteRight || right == DeleteRight) ||
		event.IsMetaStream(stream) && right == DeleteRight
}

// listOf returns the roles that an access list names for a right; nil when it does not mention it.
func listOf(a *event.ACL, r Right) event.Roles {
	switch r {
	case ReadRight:
		return a.Read
	case WriteRight:
		return a.Write
	case DeleteRight:
		return a.Delete
	case MetaReadRight:
		return a.MetaRead
	case MetaWriteRight:
		return a.MetaWrite
	}
	return event.Roles{} // No such right: only admins have it.
}

// Level is what an endpoint asks of its caller.
type Level uint8

// The levels, each including those below it.
const (
	Anon        Level = iota // no credentials needed
	Auth                     // any authenticated user
	Ops                      // $ops, the user ops, and admins
	Admin                    // $admins and the user admin
	SystemLevel              // other nodes, the node itself, the unix socket
)

// String returns the level's name.
func (l Level) String() string { return [...]string{"anon", "auth", "ops", "admin", "system"}[l] }

// CheckLevel returns nil when the caller reaches the level, else event.ErrNotAuthorized.
func CheckLevel(p Principal, level Level) error {
	var ok bool
	switch level {
	case Anon:
		ok = true
	case Auth:
		ok = !p.IsAnonymous()
	case Ops:
		ok = p.IsOps()
	case Admin:
		ok = p.IsAdmin()
	case SystemLevel:
		ok = p.IsSystem()
	}
	if !ok {
		return event.ErrNotAuthorized
	}
	return nil
}
