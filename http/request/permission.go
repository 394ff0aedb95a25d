package request

import (
	"context"

	"github.com/annalsdb/annals/access"
	"github.com/annalsdb/annals/api"
	"github.com/annalsdb/annals/event"
	"github.com/annalsdb/annals/http/args"
)

// Permit returns event.ErrNotAuthorized unless the caller may do the operation.
// It knows of the route alone: whether anything is there is not looked at. Who may read one index
// may read all of them.
func (x *Request) Permit(m *api.Requirement, who *access.Principal) error {
	stream := x.Route.Stream
	if m.Rule == api.ByStream && m.Right == access.ReadRight && event.IsIndexStream(stream) {
		stream = event.IndexStream
	}
	return x.Node.Permit(x.R.Context(), m, who, stream, x.Route.Argument)
}

// IndexRights returns what judges the events of an index, each by the rights to its own stream; nil
// for a caller who may read all of the log.
func (x *Request) IndexRights(ctx context.Context) (event.LinkReader, error) {
	info, err := x.Node.Store.StreamInfo(ctx, event.AllStream)
	if err != nil {
		return nil, err
	}
	if may, err := (*CallerLinks)(x).MayRead(event.AllStream, &info); may || err != nil {
		return nil, err
	}
	return (*CallerLinks)(x), nil
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

// MayRead reports whether the caller may see the target of a link, or an event of an index.
func (x *CallerLinks) MayRead(stream string, info *event.StreamInfo) (bool, error) {
	who := &x.Who
	if x.lease != nil {
		who = x.lease.Who()
	}
	return x.Node.Access.MayRead(x.R.Context(), who, stream, info)
}
