package request

import (
	"context"

	"github.com/annalsdb/annals/access"
	"github.com/annalsdb/annals/api"
	"github.com/annalsdb/annals/event"
	"github.com/annalsdb/annals/http/args"
)

// Caller is who sent a request, and what they may see as long as it lasts. It is an
// event.LinkReader: the targets of links, and the events of an index, are judged one by one.
type Caller struct {
	Who access.Principal

	x     *Request
	lease *api.Lease // of a request that takes long; nil: it has not yet
}

// Permit returns event.ErrNotAuthorized unless the caller may do the operation. It knows of the
// route alone: whether anything is there is not looked at.
func (c *Caller) Permit() error { return c.permit(&c.Who) }

func (c *Caller) permit(who *access.Principal) error {
	x := c.x
	return x.Node.Permit(x.R.Context(), &x.Op.May, who, x.Route.Stream, x.Route.Argument)
}

// Hold begins to judge the caller again and again, because the request takes long.
func (c *Caller) Hold() *api.Lease {
	if c.lease == nil {
		c.lease = c.x.Node.Leases.Open(c.x.R.Context(), c.Who, func(_ context.Context, who *access.Principal) error { return c.permit(who) })
	}
	return c.lease
}

// letGo ends what Hold began.
func (c *Caller) letGo() {
	if c.lease != nil {
		c.lease.Close()
		c.lease = nil
	}
}

// Judge returns event.ErrNotAuthorized when the caller has lost the right to the request.
func (c *Caller) Judge() error { return c.judgedBy((*api.Lease).Judge) }

// Check is Judge, unless the caller was judged within the last second.
func (c *Caller) Check() error { return c.judgedBy((*api.Lease).Check) }

func (c *Caller) judgedBy(how func(*api.Lease, context.Context) error) error {
	l := c.Hold()
	err := how(l, c.x.R.Context())
	c.Who = *l.Who()
	return err
}

// Share gives the caller one of a kind, until it is released.
func (c *Caller) Share(k api.Kind) (release func(), err error) {
	return c.x.Node.Shares.Take(k, c.Who, c.x.R.RemoteAddr)
}

// Told tells the log what the caller asked of the node.
func (c *Caller) Told(what string, about ...any) {
	c.x.Node.Told(what, &c.Who, c.x.R.RemoteAddr, about...)
}

// MayRead reports whether the caller may see the target of a link, or an event of an index.
func (c *Caller) MayRead(stream string, info *event.StreamInfo) (bool, error) {
	who := &c.Who
	if c.lease != nil {
		who = c.lease.Who()
	}
	return c.x.Node.Access.MayRead(c.x.R.Context(), who, stream, info)
}

// IndexRights returns what judges the events of an index, each by the rights to its own stream; nil
// for a caller who may read all of the log.
func (c *Caller) IndexRights(ctx context.Context) (event.LinkReader, error) {
	info, err := c.x.Node.Store.StreamInfo(ctx, event.AllStream)
	if err != nil {
		return nil, err
	}
	if may, err := c.MayRead(event.AllStream, &info); may || err != nil {
		return nil, err
	}
	return c, nil
}

// LinksOf returns what resolves links of a read as the request asks for it: nil when it wants
// them as they are.
func (c *Caller) LinksOf(standard bool) (event.LinkReader, error) {
	if resolve, err := args.HeaderResolveLinks.Flag(c.x.R.Header, standard); err != nil || !resolve {
		return nil, err
	}
	return c, nil
}
