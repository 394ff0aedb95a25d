package httpapi

import (
	"github.com/annalsdb/annals/access"
	"github.com/annalsdb/annals/event"
)

// requirement is the permission that a caller of an operation needs. The zero value refuses every
// caller, so that an operation without a requirement is noticed.
type requirement struct {
	rule  rule
	level access.Level // of byLevel, byLevelOrSelf and byReader
	right access.Right // of byStream and byReader
	// opened are the options each of which lets in callers without credentials.
	opened opening
}

type rule uint8

const (
	byNobody      rule = iota
	byAnyone           // credentials are not even looked at
	byLevel            // callers that reach the level
	byLevelOrSelf      // callers that reach the level, and the user that the path names
	bySelf             // the user that the path names, and no other user
	byStream           // who has the right to the stream that the path names
	byReader           // callers that reach the level and has the right
)

// opening is a set of options that let in callers without credentials.
type opening uint8

const (
	openEndpoints opening = 1 << iota // AllowAnonymousEndpointAccess
	openGossip                        // OverrideAnonymousEndpointAccessForGossip
)

// openings is the one place where the options about callers without credentials
// are read. That about streams is part of Access, which judges streams.
func (o *Options) openings() opening {
	var open opening
	if o.AllowAnonymousEndpointAccess {
		open |= openEndpoints
	}
	if o.OverrideAnonymousEndpointAccessForGossip {
		open |= openGossip
	}
	return open
}

// The requirements of the operations. The rights to streams come from mayStream.
var (
	mayAnyone      = requirement{rule: byAnyone}
	mayEverybody   = requirement{rule: byLevel, level: access.Anon}
	mayUser        = requirement{rule: byLevel, level: access.Auth}
	mayUserOrOpen  = requirement{rule: byLevel, level: access.Auth, opened: openEndpoints}
	mayGossip      = requirement{rule: byLevel, level: access.Auth, opened: openEndpoints | openGossip}
	mayOps         = requirement{rule: byLevel, level: access.Ops}
	mayAdmin       = requirement{rule: byLevel, level: access.Admin}
	mayAdminOrSelf = requirement{rule: byLevelOrSelf, level: access.Admin}
	maySelf        = requirement{rule: bySelf}
	mayReader      = requirement{rule: byReader, level: access.Auth, right: access.ReadRight}
)

func mayStream(right access.Right) requirement { return requirement{rule: byStream, right: right} }

// permit returns event.ErrNotAuthorized unless the caller may do the operation.
// It knows of the route alone: whether anything is there is not looked at.
func (x *exchange) permit(m *requirement, who *access.Principal) error {
	switch m.rule {
	case byAnyone:
		return nil
	case byStream:
		return x.authorize(who, m.right)
	case byReader:
		if err := access.CheckLevel(*who, m.level); err != nil {
			return err
		}
		return x.authorize(who, m.right)
	case bySelf:
		if x.isSelf(who) {
			return nil
		}
	case byLevel, byLevelOrSelf:
		if m.opened&x.node.open != 0 || m.rule == byLevelOrSelf && x.isSelf(who) {
			return nil
		}
		return access.CheckLevel(*who, m.level)
	}
	return event.ErrNotAuthorized
}

// changes reports whether the operation may change anything.
func (x *exchange) changes() bool { return !x.isRead() || x.op.once }

// wantsUser reports whether all callers without credentials are refused.
// Streams set themselves how long their pages may be cached.
func (m *requirement) wantsUser(open opening) bool {
	switch m.rule {
	case byLevel:
		return m.level > access.Anon && m.opened&open == 0
	case byLevelOrSelf, bySelf:
		return true
	}
	return false
}

// isSelf reports whether the caller is the user that the path names. A user of
// the name of the system account is not that account.
func (x *exchange) isSelf(who *access.Principal) bool {
	return !who.IsAnonymous() && !who.IsSystem() && who.Login == x.route.argument
}

// linksOf returns what resolves links of a read as the request asks for it: nil when it wants
// them as they are.
func linksOf(x *exchange, standard bool) (event.LinkReader, error) {
	if resolve, err := headerResolveLinks.flag(x.r.Header, standard); err != nil || !resolve {
		return nil, err
	}
	return (*callerLinks)(x), nil
}

// callerLinks is an exchange as an event.LinkReader.
type callerLinks exchange

// MayRead reports whether the caller may see the target of a link.
func (x *callerLinks) MayRead(stream string, info *event.StreamInfo) (bool, error) {
	who := &x.who
	if x.lease != nil {
		who = x.lease.Who()
	}
	return x.node.access.MayRead(x.r.Context(), who, stream, info)
}

// authorize checks the caller's right to the stream of the route.
func (x *exchange) authorize(who *access.Principal, right access.Right) error {
	if stream := x.route.stream; !access.IsNobodys(stream, right) {
		return x.node.access.CheckStream(x.r.Context(), *who, stream, right)
	}
	return event.ErrNotAuthorized
}
