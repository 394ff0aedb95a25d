package access

import (
	"github.com/annalsdb/annals/event"
)

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
