package access

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"sync/atomic"

	"github.com/annalsdb/annals/event"
	"github.com/annalsdb/annals/stats"
)

// Streams is where access lists are stored.
type Streams interface {
	// StreamInfo returns what is known of a stream, of one never written too. It is
	// called for every request and is expected to be cheap.
	StreamInfo(ctx context.Context, stream string) (event.StreamInfo, error)
	// LastEvent returns the last event of a stream that a reader would see. It
	// fails with event.ErrStreamNotFound, ErrStreamDeleted or ErrEventNotFound when
	// there is none, a soft-deleted stream included.
	LastEvent(ctx context.Context, stream string) (event.Record, error)
}

// PolicyOptions are the options of a Policy. The zero value is the strictest.
type PolicyOptions struct {
	// Insecure makes everybody an administrator.
	Insecure bool
	// AllowAnonymousStreamAccess judges callers without credentials by the access
	// list, where they have the role $all. Otherwise they have no right to any stream.
	AllowAnonymousStreamAccess bool
	Stats                      *stats.Registry // may be nil
}

// Policy decides what callers may do to streams. Its methods may be called concurrently.
type Policy struct {
	opts     PolicyOptions
	streams  Streams
	metrics  *metrics
	settings atomic.Pointer[settings] // nil until it is first needed
}

// NewPolicy returns a Policy over the stored access lists.
func NewPolicy(streams Streams, o PolicyOptions) *Policy {
	return &Policy{opts: o, streams: streams, metrics: newMetrics(o.Stats)}
}

// The lists that count when neither the stream nor $settings mentions a right.
var (
	builtinUser   = event.Roles{RoleAll}
	builtinSystem = event.Roles{RoleAdmins}
)

// CheckStream returns nil when the caller has the right to the stream, and
// event.ErrNotAuthorized when it has not. Rights to a metadata stream are those
// to the metadata of the stream it describes. Only the state at the time of the
// call counts, committed changes of access lists included.
func (p *Policy) CheckStream(ctx context.Context, caller Principal, stream string, right Right) error {
	ok, err := p.allowed(ctx, &caller, stream, right, nil)
	if err != nil {
		return fmt.Errorf("read access list of %q: %w", stream, err)
	}
	if !ok {
		p.metrics.denied.Inc()
		return event.ErrNotAuthorized
	}
	return nil
}

// MayRead reports whether the caller has the right to read a stream, of which info is what
// is known. It decides about the targets of links, whichever way the links are read.
func (p *Policy) MayRead(ctx context.Context, caller *Principal, stream string, info *event.StreamInfo) (bool, error) {
	ok, err := p.allowed(ctx, caller, stream, ReadRight, info)
	if err != nil {
		return false, fmt.Errorf("read access list of %q: %w", stream, err)
	}
	return ok, nil
}

// allowed decides. info is what is known of the stream; nil: it is looked up.
func (p *Policy) allowed(ctx context.Context, caller *Principal, stream string, right Right, info *event.StreamInfo) (bool, error) {
	// In insecure mode as well.
	if IsNobodys(stream, right) {
		return false, nil
	}
	if p.opts.Insecure || caller.IsAdmin() {
		return true, nil
	}
	if caller.IsAnonymous() && !p.opts.AllowAnonymousStreamAccess {
		return false, nil
	}
	if event.IsMetaStream(stream) {
		stream, right = judged(stream, right)
		info = nil
	}
	if info == nil {
		found, err := streamInfo(ctx, p.streams, stream)
		if err != nil {
			return false, err
		}
		info = &found
	}
	roles, err := p.roles(ctx, stream, right, info)
	return slices.ContainsFunc(roles, caller.HasRole), err
}

// judged turns a right to a metadata stream into one to the stream it
// describes. The name "$$" describes nothing and is judged as it is.
func judged(stream string, right Right) (string, Right) {
	for event.IsMetaStream(stream) && event.OriginalOf(stream) != "" {
		stream = event.OriginalOf(stream)
		switch right {
		case ReadRight:
			right = MetaReadRight
		case WriteRight:
			right = MetaWriteRight
		}
	}
	return stream, right
}

// roles returns the list of a right that counts for a stream.
func (p *Policy) roles(ctx context.Context, stream string, right Right, info *event.StreamInfo) (event.Roles, error) {
	if list := listOf(&info.Metadata.ACL, right); list != nil {
		return list, nil
	}
	if stream == event.IndexStream && right == ReadRight {
		return builtinUser, nil
	}
	defaults, err := p.currentSettings(ctx)
	if err != nil {
		return nil, err
	}
	acl, builtin := &defaults.user, builtinUser
	if event.IsSystemStream(stream) {
		acl, builtin = &defaults.system, builtinSystem
	}
	if list := listOf(acl, right); list != nil {
		return list, nil
	}
	return builtin, nil
}

// streamInfo is StreamInfo, where a stream that is not there is no error.
func streamInfo(ctx context.Context, s Streams, stream string) (event.StreamInfo, error) {
	info, err := s.StreamInfo(ctx, stream)
	if errors.Is(err, event.ErrStreamNotFound) || errors.Is(err, event.ErrStreamDeleted) {
		return event.StreamInfo{Last: -1, MetaLast: -1, HardDeleted: errors.Is(err, event.ErrStreamDeleted)}, nil
	}
	return info, err
}

// settings are the default access lists of $settings, and the version of that
// stream of which they were read. Immutable.
type settings struct {
	version      version
	user, system event.ACL
}

// currentSettings returns the defaults as they are now. The version is taken before
// the event is read: should another event be committed in between, the newer
// defaults are kept under the older version, and are read once more by the next caller.
func (p *Policy) currentSettings(ctx context.Context) (*settings, error) {
	info, err := streamInfo(ctx, p.streams, event.SettingsStream)
	if err != nil {
		return nil, err
	}
	v := versionOf(&info)
	if s := p.settings.Load(); s != nil && s.version == v {
		return s, nil
	}
	s := &settings{version: v}
	if info.Exists() {
		record, err := p.streams.LastEvent(ctx, event.SettingsStream)
		switch {
		case err == nil:
			s.user, s.system = parseSettings(record.Data)
		case errors.Is(err, event.ErrStreamNotFound), errors.Is(err, event.ErrStreamDeleted), errors.Is(err, event.ErrEventNotFound):
		default:
			return nil, fmt.Errorf("read %s: %w", event.SettingsStream, err)
		}
	}
	p.settings.Store(s)
	return s, nil
}

// parseSettings reads the data of a $settings event. A body that is not a JSON object has no
// defaults. If one of the two is not an access list, the other still counts.
func parseSettings(data []byte) (user, system event.ACL) {
	var doc map[string]json.RawMessage
	if json.Unmarshal(data, &doc) != nil {
		return user, system
	}
	for key, acl := range map[string]*event.ACL{keyUserStreamACL: &user, keySystemStreamACL: &system} {
		if raw, ok := doc[key]; ok {
			if parsed, err := event.ParseACL(raw); err == nil {
				*acl = parsed
			}
		}
	}
	return user, system
}
