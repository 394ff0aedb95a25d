package api

import (
	"context"
	"errors"
	"net/http"

	"github.com/annalsdb/annals/access"
	"github.com/annalsdb/annals/event"
	"github.com/annalsdb/annals/internal/logkey"
)

// Operation is something that callers do, over whichever interface.
type Operation struct {
	May      Requirement
	Leader   bool // the leader alone does it
	Recorded bool // each call is recorded, be it done or not
}

// The operations that both interfaces have. Appends are recorded as RecordsAppend says.
var (
	ReadStream   = Operation{May: MayStream(access.ReadRight)}
	Append       = Operation{May: MayStream(access.WriteRight)}
	AppendMany   = Operation{May: MayStreams}
	DeleteStream = Operation{May: MayStream(access.DeleteRight), Recorded: true}
	// WriteMetadata is an append to a metadata stream in the form that HTTP has for it.
	WriteMetadata = Operation{May: MayStream(access.MetaWriteRight), Recorded: true}

	ListGroups   = Operation{May: MayUser, Leader: true}
	CreateGroup  = Operation{May: MayOps, Leader: true, Recorded: true}
	UpdateGroup  = Operation{May: MayOps, Leader: true, Recorded: true}
	DeleteGroup  = Operation{May: MayOps, Leader: true, Recorded: true}
	ResetGroup   = Operation{May: MayOps, Leader: true, Recorded: true}
	PreviewReset = Operation{May: MayOps, Leader: true}
	ReplayParked = Operation{May: MayOps, Leader: true, Recorded: true}
	// ForwardParked needs the right to write to the target as well.
	ForwardParked = Operation{May: MayOps, Leader: true, Recorded: true}
	RestartGroups = Operation{May: MayOps, Leader: true, Recorded: true}
	Consume       = Operation{May: MayReader, Leader: true}

	ReadProjections    = Operation{May: MayUser, Leader: true}
	CreateProjection   = Operation{May: MayUser, Leader: true, Recorded: true}
	UpdateProjection   = Operation{May: MayUser, Leader: true, Recorded: true}
	CommandProjection  = Operation{May: MayUser, Leader: true, Recorded: true}
	DeleteProjection   = Operation{May: MayOps, Leader: true, Recorded: true}
	RestartProjections = Operation{May: MayOps, Leader: true, Recorded: true}
	RebuildProjection  = Operation{May: MayOps, Leader: true, Recorded: true}

	ListUsers      = Operation{May: MayAdmin}
	ReadUser       = Operation{May: MayAdminOrSelf}
	ManageUser     = Operation{May: MayAdmin, Leader: true, Recorded: true}
	ChangePassword = Operation{May: MaySelf, Leader: true, Recorded: true}

	ReadStatistics = Operation{May: MayUserOrOpen}
	ReadGossip     = Operation{May: MayGossip}
	Operate        = Operation{May: MayOps, Recorded: true}
	Redact         = Operation{May: MayAdmin, Recorded: true}
)

// RecordsAppend reports whether appends to a stream are recorded: they change who may do what.
func RecordsAppend(stream string) bool {
	return event.IsMetaStream(stream) || stream == event.SettingsStream
}

// Requirement is the permission that a caller of an operation needs. The zero value refuses every
// caller, so that an operation without a requirement is noticed.
type Requirement struct {
	Rule  Rule
	Level access.Level // of ByLevel, ByLevelOrSelf and ByReader
	Right access.Right // of ByStream and ByReader
	// Opened are the options each of which lets in callers without credentials.
	Opened Opening
}

// Rule is a kind of requirement.
type Rule uint8

const (
	byNobody      Rule = iota
	ByAnyone           // credentials are not even looked at
	ByLevel            // callers that reach the level
	ByLevelOrSelf      // callers that reach the level, and the user that is named
	BySelf             // the user that is named, and no other user
	ByStream           // who has the right to the stream that is named
	ByReader           // callers that reach the level and have the right
	ByStreams          // see PermitMany: the request says by its body which streams it is about
)

// Opening is a set of options that let in callers without credentials.
type Opening uint8

const (
	OpenEndpoints Opening = 1 << iota // AllowAnonymousEndpointAccess
	OpenGossip                        // OverrideAnonymousEndpointAccessForGossip
)

// The requirements of operations.
var (
	MayAnyone      = Requirement{Rule: ByAnyone}
	MayEverybody   = Requirement{Rule: ByLevel, Level: access.Anon}
	MayUser        = Requirement{Rule: ByLevel, Level: access.Auth}
	MayUserOrOpen  = Requirement{Rule: ByLevel, Level: access.Auth, Opened: OpenEndpoints}
	MayGossip      = Requirement{Rule: ByLevel, Level: access.Auth, Opened: OpenEndpoints | OpenGossip}
	MayOps         = Requirement{Rule: ByLevel, Level: access.Ops}
	MayAdmin       = Requirement{Rule: ByLevel, Level: access.Admin}
	MayAdminOrSelf = Requirement{Rule: ByLevelOrSelf, Level: access.Admin}
	MaySelf        = Requirement{Rule: BySelf}
	MayStreams     = Requirement{Rule: ByStreams}
	MayReader      = Requirement{Rule: ByReader, Level: access.Auth, Right: access.ReadRight}
)

// MayStream requires a right to the stream that is named.
func MayStream(right access.Right) Requirement { return Requirement{Rule: ByStream, Right: right} }

// Permit returns event.ErrNotAuthorized unless a caller has the permission, for a stream or a user
// if the rule looks at one. Whether that is there is not looked at.
func (n *Node) Permit(ctx context.Context, m *Requirement, who *access.Principal, stream, login string) error {
	switch m.Rule {
	case ByAnyone, ByStreams:
		return nil
	case ByStream:
		if m.Right == access.ReadRight && event.IsIndexStream(stream) {
			stream = event.IndexStream // Who may read one index may read all of them.
		}
		return n.Authorize(ctx, who, stream, m.Right)
	case ByReader:
		if err := access.CheckLevel(*who, m.Level); err != nil {
			return err
		}
		return n.Authorize(ctx, who, ReadBy(stream), m.Right)
	case BySelf:
		if isSelf(who, login) {
			return nil
		}
	case ByLevel, ByLevelOrSelf:
		if m.Opened&n.Open != 0 || m.Rule == ByLevelOrSelf && isSelf(who, login) {
			return nil
		}
		return access.CheckLevel(*who, m.Level)
	}
	return event.ErrNotAuthorized
}

// ReadBy is the stream that a consumer of a group must have the right to read: an index has events
// of any stream, and a group hands them to many.
func ReadBy(stream string) string {
	if event.IsIndex(stream) {
		return event.AllStream
	}
	return stream
}

// isSelf reports whether the caller is the user of a login. A user of the name of the system
// account is not that account.
func isSelf(who *access.Principal, login string) bool {
	return !who.IsAnonymous() && !who.IsSystem() && who.Login == login
}

// Authorize returns event.ErrNotAuthorized unless a caller has a right to a stream.
func (n *Node) Authorize(ctx context.Context, who *access.Principal, stream string, right access.Right) error {
	if access.IsNobodys(stream, right) {
		return event.ErrNotAuthorized
	}
	return n.Access.CheckStream(ctx, *who, stream, right)
}

// PermitMany returns event.ErrNotAuthorized unless a caller may write to some streams and read
// others.
func (n *Node) PermitMany(ctx context.Context, who *access.Principal, written, checked []string) error {
	for _, s := range written {
		if err := n.Authorize(ctx, who, s, access.WriteRight); err != nil {
			return err
		}
	}
	for _, s := range checked {
		if err := n.Authorize(ctx, who, s, access.ReadRight); err != nil {
			return err
		}
	}
	return nil
}

// WantsUser reports whether all callers without credentials are refused. Streams set themselves
// how long their pages may be cached.
func (m *Requirement) WantsUser(open Opening) bool {
	switch m.Rule {
	case ByLevel:
		return m.Level > access.Anon && m.Opened&open == 0
	case ByLevelOrSelf, BySelf:
		return true
	}
	return false
}

// Authenticate names the caller of a request, with the errors of Access. Refused credentials are
// logged.
func (n *Node) Authenticate(r *http.Request) (access.Principal, error) {
	who, err := n.Access.Authenticate(r)
	if errors.Is(err, event.ErrNotAuthorized) {
		n.RefusedLogins.Note(r)
	}
	return who, err
}

// States of a node as Cluster.Role has them.
const (
	RoleLeader   = "leader"
	RoleReadOnly = "readonlyreplica"
)

// Lead returns nil on the leader. Elsewhere it is *event.NotLeader, which says who leads, or
// event.ErrNotReady as long as no one does.
func (n *Node) Lead() error {
	if address, ok := n.Cluster.Redirect(); ok {
		return &event.NotLeader{Address: address}
	}
	if n.Cluster.Role() != RoleLeader {
		return event.ErrNotReady
	}
	return nil
}

// LeadFreshly is Lead for a read that must see all that was acknowledged before it.
func (n *Node) LeadFreshly(ctx context.Context) error {
	if err := n.Lead(); err != nil {
		return err
	}
	return n.Cluster.Confirm(ctx)
}

// Begin begins what may be recorded: end follows. It is event.ErrNotReady when nothing more can be
// recorded.
func (n *Node) Begin(recorded bool) (end func(), err error) {
	if !recorded || n.Activity == nil {
		return func() {}, nil
	}
	if !n.Activity.Begin() {
		return nil, event.ErrNotReady
	}
	return n.Activity.End, nil
}

// Told tells the log what a caller at an address asked of the node.
func (n *Node) Told(what string, who *access.Principal, from string, about ...any) {
	n.Logger.Info(what, append(about, logkey.Login, Printable(who.Login), logkey.Remote, from)...)
}
