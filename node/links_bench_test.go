package node

import (
	"context"
	"testing"

	"github.com/annalsdb/annals/access"
	"github.com/annalsdb/annals/event"
)

// judging resolves links as an interface does.
type judging struct {
	policy *access.Policy
	who    access.Principal
}

func (j *judging) MayRead(stream string, info *event.StreamInfo) (bool, error) {
	return j.policy.MayRead(context.Background(), &j.who, stream, info)
}

// BenchmarkResolvedPage reads pages of 20 links, without a caller's rights and with them.
func BenchmarkResolvedPage(b *testing.B) {
	n := openReady(b)
	putEvents(b, n.store, "target", "t", "", 20)
	putEvents(b, n.store, "links", event.TypeLink, "target", 20)
	for name, links := range map[string]event.LinkReader{
		"every link":    event.EveryLink,
		"administrator": &judging{n.policy, access.System},
		"user":          &judging{n.policy, access.Principal{Login: "jane"}},
	} {
		b.Run(name, func(b *testing.B) {
			room := new(event.Room)
			for b.Loop() {
				page, err := n.store.ReadStream(b.Context(), event.StreamRead{Stream: "links", Count: 20, Links: links, Room: room})
				if err != nil || len(page.Events) != 20 || page.Events[19].Link != event.LinkResolved {
					b.Fatal(err, len(page.Events))
				}
			}
		})
	}
}
