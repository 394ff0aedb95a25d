package streams

import (
	"context"

	"github.com/annalsdb/annals/event"
	"github.com/annalsdb/annals/http/media"
	"github.com/annalsdb/annals/http/page"
	"github.com/annalsdb/annals/http/request"
)

func (s *Handlers) Backward(_ context.Context, x *request.Request) error {
	return s.Pages.Backward(x, x.Route.Stream, s.sendPage)
}

func (s *Handlers) Forward(_ context.Context, x *request.Request) error {
	return s.Pages.Forward(x, x.Route.Stream, s.sendPage)
}

func (s *Handlers) MetadataBackward(_ context.Context, x *request.Request) error {
	if event.IsMetaStream(x.Route.Stream) {
		return errMetaOfMeta
	}
	return s.Pages.Backward(x, event.MetaStreamOf(x.Route.Stream), s.sendPage)
}

func (s *Handlers) MetadataForward(_ context.Context, x *request.Request) error {
	if event.IsMetaStream(x.Route.Stream) {
		return errMetaOfMeta
	}
	return s.Pages.Forward(x, event.MetaStreamOf(x.Route.Stream), s.sendPage)
}

// sendPage answers with a page, or with what can be done with the stream.
func (s *Handlers) sendPage(ctx context.Context, x *request.Request, p *page.Request) error {
	if x.Media.Form == media.FormDescription {
		return s.describeStream(ctx, x, p.Stream)
	}
	return s.Pages.Feed(ctx, x, p)
}
