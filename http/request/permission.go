package request

import (
	"github.com/annalsdb/annals/access"
	"github.com/annalsdb/annals/api"
	"github.com/annalsdb/annals/event"
	"github.com/annalsdb/annals/http/args"
)

// Requirement is the permission that a caller of an operation needs. The zero value refuses every
// caller, so that an operation without a requirement is noticed.
type Requirement struct {
	Rule  rule
	Level access.Level // of byLevel, byLevelOrSelf and byReader
	Right access.Right // of byStream and byReader
	// opened are the options each of which lets in callers without credentials.
	Opened api.Opening
}

type rule uint8

const (
	byNobody      rule = iota
	ByAnyone           // credentials are not even looked at
	ByLevel            // callers that reach the level
	ByLevelOrSelf      // callers that reach the level, and the user that the path names
	BySelf             // the user that the path names, and no other user
	ByStream           // who has the right to the stream that the path names
	ByReader           // callers that reach the level and has the right
)

// Permit returns event.ErrNotAuthorized unless the caller may do the operation.
// It knows of the route alone: whether anything is there is not looked at.
func (x *Request) Permit(m *Requirement, who *access.Principal) error {
	switch m.Rule {
	case ByAnyone:
		return nil
	case ByStream:
		return x.authorize(who, m.Right)
	case ByReader:
		if err := access.CheckLevel(*who, m.Level); err != nil {
			return err
		}
		return x.authorize(who, m.Right)
	case BySelf:
		if x.isSelf(who) {
			return nil
		}
	case ByLevel, ByLevelOrSelf:
		if m.Opened&x.Node.Open != 0 || m.Rule == ByLevelOrSelf && x.isSelf(who) {
			return nil
		}
		return access.CheckLevel(*who, m.Level)
	}
	return event.ErrNotAuthorized
}

// WantsUser reports whether all callers without credentials are refused.
// Streams set themselves how long their pages may be cached.
func (m *Requirement) WantsUser(open api.Opening) bool {
	switch m.Rule {
	case ByLevel:
		return m.Level > access.Anon && m.Opened&open == 0
	case ByLevelOrSelf, BySelf:
		return true
	}
	return false
}

// isSelf reports whether the caller is the user that the path names. A user of
// the name of the system account is not that account.
func (x *Request) isSelf(who *access.Principal) bool {
	return !who.IsAnonymous() && !who.IsSystem() && who.Login == x.Route.Argument
}

// LinksOf returns what resolves links of a read as the request asks for it: nil when it wants
// them as they are.
func (x *Request) LinksOf(standard bool) (event.LinkReader, error) {
	if resolve, err := args.HeaderResolveLinks.Flag(x.R.Header, standard); err != nil || !resolve {
		return nil, err
	}
	return (*CallerLinks)(x), nil
}

// CallerLinks is a request as an event.LinkReader.
type CallerLinks Request

// MayRead reports whether the caller may see the target of a link.
func (x *CallerLinks) MayRead(stream string, info *event.StreamInfo) (bool, error) {
	who := &x.Who
	if x.lease != nil {
		who = x.lease.Who()
	}
	return x.Node.Access.MayRead(x.R.Context(), who, stream, info)
}

// authorize checks the caller's right to the stream of the route.
func (x *Request) authorize(who *access.Principal, right access.Right) error {
	if stream := x.Route.Stream; !access.IsNobodys(stream, right) {
		return x.Node.Access.CheckStream(x.R.Context(), *who, stream, right)
	}
	return event.ErrNotAuthorized
}

// The requirements of the operations. The rights to streams come from mayStream.
var (
	MayAnyone      = Requirement{Rule: ByAnyone}
	MayEverybody   = Requirement{Rule: ByLevel, Level: access.Anon}
	MayUser        = Requirement{Rule: ByLevel, Level: access.Auth}
	MayUserOrOpen  = Requirement{Rule: ByLevel, Level: access.Auth, Opened: api.OpenEndpoints}
	MayGossip      = Requirement{Rule: ByLevel, Level: access.Auth, Opened: api.OpenEndpoints | api.OpenGossip}
	MayOps         = Requirement{Rule: ByLevel, Level: access.Ops}
	MayAdmin       = Requirement{Rule: ByLevel, Level: access.Admin}
	MayAdminOrSelf = Requirement{Rule: ByLevelOrSelf, Level: access.Admin}
	MaySelf        = Requirement{Rule: BySelf}
	MayReader      = Requirement{Rule: ByReader, Level: access.Auth, Right: access.ReadRight}
)

// MayStream requires a right to the stream that the path names.
func MayStream(right access.Right) Requirement { return Requirement{Rule: ByStream, Right: right} }
