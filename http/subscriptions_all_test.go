package httpapi_test

import (
	"context"
	"testing"
	"testing/synctest"

	"github.com/annalsdb/annals/event"
	httpapi "github.com/annalsdb/annals/http"
	"github.com/annalsdb/annals/internal/check"
	"github.com/annalsdb/annals/subscription"
)

// A group of the log, which other clients made, is looked at and viewed.
func TestGroupsOfTheLogAreLookedAt(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var service *subscription.Service
		n := newNode(t, func(o *httpapi.Options) {
			service = subscription.New(subscription.Options{Store: o.Store.(*memStore)})
			o.Subscriptions = service
		})
		service.Start(t.Context())
		defer service.Stop()
		synctest.Wait()
		s := &subscriber{n, "/subscriptions/%24all/g"}
		check.Equal(t, s.get("/subscriptions/$all", appJSON).is(t, 404).body, "[]", "none")

		ctx, k := context.Background(), subscription.Key{Stream: event.AllStream, Group: "g"}
		set := subscription.DefaultSettings()
		set.MinCheckpointCount, set.MaxCheckpointCount, set.MaxRetryCount = 1, 1, 0
		set.Filter = &subscription.Filter{OfStream: true, Prefixes: []string{"s"}}
		check.Must(t, service.Create(ctx, k, set, ""))
		i := s.info()
		check.Equal(t, i.Config["startPosition"], any("C:0/P:0"), "start")
		check.Equal(t, i.LastCheckpointedEventPosition, nil, "no checkpoint")

		s.events(0, 2)
		got := check.Value(service.Read(ctx, k, 2, event.EveryLink)).Must(t)
		check.Must(t, service.Nack(ctx, k, []event.ID{got[0].ID}, subscription.Park, "", nil))
		check.Must(t, service.Ack(ctx, k, []event.ID{got[1].ID}))
		synctest.Wait()
		i = s.info()
		at := i.LastProcessedEventNumber
		check.Equal(t, *i.LastCheckpointedEventPosition, k.Position(at), "checkpoint")
		check.Equal(t, at >= got[1].Event.Position, true, "behind the last")
		check.Equal(t, i.ParkedMessageCount, 1, "parked")
		list := decode[[]told](t, s.get("/subscriptions/$all", appJSON).is(t, 200))
		check.Equal(t, len(list), 1, "list")
		check.Equal(t, *list[0].LastCheckpointedEventPosition, k.Position(at), "checkpoint")
		f := decode[messages](t, s.get("/subscriptions/viewparkedmessages/%24all/g/head/backward/5?embed=body", competingJSON).is(t, 200))
		check.Equal(t, f.numbers(), "0", "viewed")
		s.get("/subscriptions/%24all/g/parked", appJSON).is(t, 200)
		s.get(s.group, competingJSON).is(t, 400)
		s.manages("PUT", s.group, "{}").is(t, 400)
		s.manages("POST", s.group, "{}").is(t, 400)
		s.manages("POST", s.group, `{"retryDelayMilliseconds":-5}`).is(t, 400).says(t, "retryDelayMilliseconds (-5) must be between 0 and 86400000")
		s.manages("POST", s.group, `{"retryDelayMilliseconds":5,"startPosition":"C:0/P:0"}`).is(t, 200)
		synctest.Wait()
		check.Equal(t, s.info().Config["retryDelayMilliseconds"], any(5.0), "delay")
		s.manages("POST", s.group+"/parked/note?number=0", `{"text":"look"}`).is(t, 200)
		s.manages("POST", s.group+"/replayParked", "{}").is(t, 200)
		synctest.Wait()
		check.Equal(t, s.info().ParkedMessageCount, 0, "replayed")
		s.manages("DELETE", s.group, "").is(t, 200)
		s.get(s.group+"/info", appJSON).is(t, 404)
	})
}
