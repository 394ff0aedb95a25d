package httpapi

import (
	"context"
	"fmt"
	"slices"
	"strconv"

	"github.com/annalsdb/annals/http/atom"
	"github.com/annalsdb/annals/http/http1"
	"github.com/annalsdb/annals/internal/xmljson"
	"github.com/annalsdb/annals/subscription"
)

// appendPage appends a page that leads a browser on to the web interface: to an
// event of a stream, or to the stream itself when number is below 0. It has no
// script, and its policy would run none.
func appendPage(x *exchange, b []byte, stream string, number int64) []byte {
	page := everyPage
	if x.node.insecure {
		page = insecurePage
	}
	http1.SetFields(x.r.Context(), x.w.Header(), page)
	b = append(b, `<!DOCTYPE html><html><head><meta charset="utf-8"><title>`...)
	b = xmljson.AppendText(b, stream)
	b = append(b, `</title><meta http-equiv="refresh" content="0; url=`...)
	b = append(b, x.pathPrefix()...)
	b = append(b, `/web/index.html#/streams/`...)
	b = atom.AppendEscaped(b, stream)
	if number >= 0 {
		b = append(b, '/')
		b = strconv.AppendInt(b, number, 10)
	}
	return append(b, `"></head><body></body></html>`...)
}

// describeStream answers with the description document, which lists the operations of a stream. The
// stream need not exist.
func (s *streamHandlers) describeStream(ctx context.Context, x *exchange, stream string) error {
	self := atom.AppendEscaped(append(slices.Clone(x.pathPrefix()), streamsPrefix...), stream)
	b := fmt.Appendf(x.out[:0], `{"title":"Description document for '%s'",`+
		`"description":"The description document will be presented when no accept header is present or it was requested",`+
		`"_links":{"self":{"href":"%s","supportedContentTypes":["application/vnd.eventstore.streamdesc+json"]},`+
		`"stream":{"href":"%s","supportedContentTypes":["application/atom+xml","application/vnd.eventstore.atom+json"]}`,
		atom.AppendInner(nil, stream), self, self)
	groups := s.knownGroups(ctx, x, stream)
	for i := range groups {
		if i == 0 {
			b = append(b, `,"streamSubscription":[`...)
		} else {
			b = append(b, ',')
		}
		b = append(append(b, `{"href":"`...), x.pathPrefix()...)
		b = atom.AppendGroupURI(b, groups[i].Key)
		b = append(b, `","supportedContentTypes":["application/vnd.eventstore.competingatom+xml","application/vnd.eventstore.competingatom+json"]}`...)
	}
	if len(groups) > 0 {
		b = append(b, ']')
	}
	x.out = append(b, `}}`...)
	x.w.Header()[keyCacheControl] = cacheNever
	x.ok()
	return nil
}

// knownGroups returns the groups of a stream as far as this node knows them: none
// unless it leads.
func (s *streamHandlers) knownGroups(ctx context.Context, x *exchange, stream string) []subscription.Info {
	if s.subscriptions == nil || x.node.cluster.Role() != roleLeader {
		return nil
	}
	list, err := s.subscriptions.List(ctx, stream)
	if err != nil {
		// They are being loaded, or it takes too long: the document is for looking around.
		return nil
	}
	return list
}
