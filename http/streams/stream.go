package streams

import (
	"context"

	"github.com/annalsdb/annals/event"
	"github.com/annalsdb/annals/http/media"
	"github.com/annalsdb/annals/http/page"
	"github.com/annalsdb/annals/http/request"
)

// Page makes the handler of pages of a stream.
func (s *Handlers) Page(backward bool) request.Handler {
	return func(_ context.Context, x *request.Request) error {
		if event.IsIndexStream(x.Route.Stream) {
			return s.Finder.indexPage(x, backward, s.sendPage)
		}
		return page.Serve(x, x.Route.Stream, backward, s.sendPage)
	}
}

// MetadataPage makes the handler of pages of the metadata of a stream.
func (s *Handlers) MetadataPage(backward bool) request.Handler {
	return func(_ context.Context, x *request.Request) error {
		if event.IsMetaStream(x.Route.Stream) {
			return errMetaOfMeta
		}
		return page.Serve(x, event.MetaStreamOf(x.Route.Stream), backward, s.sendPage)
	}
}

// sendPage answers with a page, or with what can be done with the stream.
func (s *Handlers) sendPage(ctx context.Context, x *request.Request, p *page.Request) error {
	if x.Media.Form == media.FormDescription {
		return s.describeStream(ctx, x, p.Stream)
	}
	return page.Feed(ctx, x, p)
}
