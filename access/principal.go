package access

import "slices"

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
