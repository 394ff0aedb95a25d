package streams

import (
	"context"
	"fmt"
	"slices"

	"github.com/annalsdb/annals/api"
	"github.com/annalsdb/annals/http/atom"
	"github.com/annalsdb/annals/http/caching"
	"github.com/annalsdb/annals/http/request"
	"github.com/annalsdb/annals/subscription"
)

// describeStream answers with the description document, which lists the operations of a stream. The
// stream need not exist.
func (s *Handlers) describeStream(ctx context.Context, x *request.Request, stream string) error {
	self := atom.AppendEscaped(append(slices.Clone(x.Origin.Prefix()), atom.StreamsPath...), stream)
	b := fmt.Appendf(x.Out[:0], `{"title":"Description document for '%s'",`+
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
		b = append(append(b, `{"href":"`...), x.Origin.Prefix()...)
		b = atom.AppendGroupURI(b, groups[i].Key)
		b = append(b, `","supportedContentTypes":["application/vnd.eventstore.competingatom+xml","application/vnd.eventstore.competingatom+json"]}`...)
	}
	if len(groups) > 0 {
		b = append(b, ']')
	}
	x.Out = append(b, `}}`...)
	x.W.Header()[caching.KeyControl] = caching.Never
	x.SendBody()
	return nil
}

// knownGroups returns the groups of a stream as far as this node knows them: none
// unless it leads.
func (s *Handlers) knownGroups(ctx context.Context, x *request.Request, stream string) []subscription.Info {
	if s.Subscriptions == nil || x.Node.Cluster.Role() != api.RoleLeader {
		return nil
	}
	list, err := s.Subscriptions.List(ctx, stream)
	if err != nil {
		// They are being loaded, or it takes too long: the document is for looking around.
		return nil
	}
	return list
}
