package httpapi_test

import (
	"encoding/json"
	"fmt"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	httpapi "github.com/annalsdb/annals/http"
	"github.com/annalsdb/annals/internal/check"
	"github.com/annalsdb/annals/subscription"
)

// subscriber is a node with groups that run, in a bubble of time.
type subscriber struct {
	*node
	group string // the address of the group that the methods are about
}

// running runs a test on a node whose groups are those of a node that leads.
func running(t *testing.T, test func(s *subscriber)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		var service *subscription.Service
		n := newNode(t, func(o *httpapi.Options) {
			service = subscription.New(subscription.Options{Store: o.Store.(*memStore)})
			o.Subscriptions = service
		})
		service.Start(t.Context())
		defer service.Stop()
		synctest.Wait()
		test(&subscriber{n, "/subscriptions/s/g"})
	})
}

// create makes the group; settings are members of JSON.
func (s *subscriber) create(settings string) {
	s.t.Helper()
	s.manages("PUT", s.group, "{"+settings+"}").results(s.t, 200, "Success", "")
	synctest.Wait()
}

// events appends count events {"n": first} and so on.
func (s *subscriber) events(first, count int) {
	s.t.Helper()
	data := make([]string, count)
	for i := range data {
		data[i] = fmt.Sprintf(`{"n":%d}`, first+i)
	}
	s.put("s", data...)
	synctest.Wait()
}

func (s *subscriber) read(count int) messages {
	s.t.Helper()
	f := decode[messages](s.t, s.get(fmt.Sprintf("%s/%d?embed=body", s.group, count), competingJSON))
	synctest.Wait()
	return f
}

// numbers are those in the data of the entries, in the order handed out.
func (m *messages) numbers() string {
	var all []string
	for i := range m.Entries {
		var data struct{ N int }
		if json.Unmarshal([]byte(*m.Entries[len(m.Entries)-1-i].Data), &data) != nil {
			return *m.Entries[i].Data
		}
		all = append(all, fmt.Sprint(data.N))
	}
	return strings.Join(all, " ")
}

// takes reads count messages, compares their numbers, and returns them in the
// order handed out.
func (s *subscriber) takes(count int, numbers string) []messageEntry {
	s.t.Helper()
	f := s.read(count)
	check.Equal(s.t, f.numbers(), numbers, "handed out")
	var entries []messageEntry
	for i := range f.Entries {
		entries = append(entries, f.Entries[len(f.Entries)-1-i])
	}
	return entries
}

// answers follows a link of an entry.
func (s *subscriber) answers(e messageEntry, relation, query string) {
	s.t.Helper()
	s.do("POST", strings.TrimPrefix(of(e.Links, relation), base)+query, "{}", admin()).is(s.t, 200)
	synctest.Wait()
}

// told is what the detail tells, as far as it is looked at.
type told struct {
	Config                                                map[string]any
	Status                                                string
	LastCheckpointedEventPosition, LastKnownEventPosition *string
	LastProcessedEventNumber                              int64
	ReadBufferCount, RetryBufferCount, ParkedMessageCount int
	OutstandingMessagesCount, TotalInFlightMessages       int
}

func (s *subscriber) info() told {
	s.t.Helper()
	return decode[told](s.t, s.get(s.group+"/info", appJSON))
}

const parkedOfGroup = "/streams/%24persistentsubscription-s%3A%3Ag-parked"

// parked are the titles of what is parked, oldest first.
func (s *subscriber) parked() string {
	s.t.Helper()
	a := s.get(parkedOfGroup+"/0/forward/100", atomJSON, "ES-ResolveLinkTos", "true")
	if a.status == 404 {
		return ""
	}
	f := decode[feed](s.t, a)
	var titles []string
	for i := range f.Entries {
		titles = append(titles, f.Entries[len(f.Entries)-1-i].Title)
	}
	return strings.Join(titles, " ")
}

func TestRunningGroups(t *testing.T) {
	for _, c := range []struct {
		name string
		test func(t *testing.T, s *subscriber)
	}{
		{"members of operators create, update, replay and delete", func(t *testing.T, s *subscriber) {
			for _, step := range []struct{ method, path string }{{"PUT", ""}, {"POST", ""}, {"POST", "/replayParked"}, {"DELETE", ""}} {
				s.do(step.method, s.group+step.path, "{}", as("ops", "changeit", "Content-Type", appJSON)).is(t, 200)
			}
			s.do("PUT", s.group, "{}", as("jane", "changeit", "Content-Type", appJSON)).is(t, 401)
		}},
		{"refused requests change nothing", func(t *testing.T, s *subscriber) {
			s.manages("PUT", s.group, `{"bufferSize":0}`).is(t, 400)
			s.manages("PUT", s.group, `{"namedConsumerStrategy":"Nearest"}`).results(t, 400, "Fail", "Consumer strategy Nearest does not exist.")
			s.manages("PUT", s.group, `{"startFrom":-2}`).is(t, 400)
			s.manages("POST", s.group, `{"startFrom":-2}`).results(t, 404, "DoesNotExist", "Group 'g' does not exist.")
			s.get(s.group+"/info", appJSON).is(t, 404)
			s.create("")
			s.manages("PUT", s.group, "").results(t, 409, "AlreadyExists", "Group 'g' already exists.")
			s.manages("PUT", s.group, `{"startFrom":-2}`).is(t, 400)
		}},
		{"settings are told as they were given", func(t *testing.T, s *subscriber) {
			s.create(`"ResolveLinkTos":true,"MESSAGETIMEOUTMILLISECONDS":12,"startfrom":7,"bufferSize":"60","readBatchSize":30,"namedConsumerStrategy":"Pinned","checkpoints":1,"maxSubscriberCount":null,` +
				`"retryDelayMilliseconds":5,"retryBackoff":{"factor":1.5,"atMostMilliseconds":70},"checkpointAtLeastEveryMilliseconds":9`)
			config := s.info().Config
			for name, want := range map[string]any{
				"resolveLinktos": true, "messageTimeoutMilliseconds": 12.0, "startFrom": 7.0, "startPosition": "7", "bufferSize": 60.0, "readBatchSize": 30.0,
				"namedConsumerStrategy": "Pinned", "maxSubscriberCount": 10.0, "preferRoundRobin": false,
				"retryDelayMilliseconds": 5.0, "checkpointAtLeastEveryMilliseconds": 9.0,
			} {
				check.Equal(t, config[name], want, name)
			}
			check.Equal(t, fmt.Sprint(config["retryBackoff"]), "map[atMostMilliseconds:70 factor:1.5]", "backoff")
		}},
		{"an update forgets what was handed out", func(t *testing.T, s *subscriber) {
			s.events(0, 3)
			s.create("")
			for _, e := range s.takes(3, "0 1 2") {
				s.answers(e, "ack", "")
			}
			s.takes(5, "")
			s.manages("POST", s.group, "{}").is(t, 200)
			synctest.Wait()
			s.takes(3, "0 1 2")
		}},
		{"positions and counts", func(t *testing.T, s *subscriber) {
			s.events(0, 3)
			s.create(`"minCheckPointCount":1,"maxCheckPointCount":1`)
			check.Equal(t, s.info().ReadBufferCount, 3, "read ahead")
			es := s.takes(3, "0 1 2")
			i := s.info()
			check.Equal(t, fmt.Sprintln(i.OutstandingMessagesCount, i.TotalInFlightMessages, *i.LastKnownEventPosition, i.LastCheckpointedEventPosition == nil, i.ParkedMessageCount, i.Status), "3 3 2 true 0 Live\n", "out")
			s.answers(es[0], "ack", "")
			s.answers(es[1], "nack", "?action=park")
			time.Sleep(100 * time.Millisecond) // Checkpoints keep a distance.
			synctest.Wait()
			i = s.info()
			check.Equal(t, fmt.Sprintln(i.OutstandingMessagesCount, i.ParkedMessageCount, *i.LastCheckpointedEventPosition, i.LastProcessedEventNumber), "1 1 1 1\n", "answered")
		}},
		{"ids", func(t *testing.T, s *subscriber) {
			s.events(0, 1)
			s.create("")
			e := s.takes(1, "0")[0]
			id := strings.TrimPrefix(of(e.Links, "ack"), base+s.group+"/ack/")
			for _, path := range []string{"/ack/nonsense", "/ack?ids=" + id + ",nonsense", "/nack?ids="} {
				s.do("POST", s.group+path, "", admin()).is(t, 400)
			}
			s.do("POST", s.group+"/ack/"+s.id(), "", admin()).is(t, 200)
			s.do("POST", "/subscriptions/s/nope/ack/"+id, "", admin()).is(t, 200)
			check.Equal(t, s.parked(), "", "parked")
			s.answers(e, "nack", "?action=retry")
			again := s.takes(1, "0")[0]
			check.Equal(t, *again.RetryCount, 1, "retries")
			s.do("POST", s.group+"/ack?ids="+strings.ReplaceAll(id, "-", ""), "", admin()).is(t, 200)
			synctest.Wait()
			check.Equal(t, s.info().OutstandingMessagesCount, 0, "out")
		}},
		{"parking", func(t *testing.T, s *subscriber) {
			s.events(0, 3)
			s.create("")
			es := s.takes(3, "0 1 2")
			s.answers(es[2], "nack", "?action=Park")
			ids := make([]string, 2)
			for i := range ids {
				ids[i] = strings.TrimPrefix(of(es[i].Links, "ack"), base+s.group+"/ack/")
			}
			s.do("POST", s.group+"/nack?ids="+strings.Join(ids, ",")+"&action=PARK", "", admin()).is(t, 200)
			synctest.Wait()
			check.Equal(t, s.parked(), "2@s 0@s 1@s", "parked")
			raw := s.get(parkedOfGroup+"/0", eventJSON, "ES-ResolveLinkTos", "false").is(t, 200).body
			for _, part := range []string{`"eventType":"$>"`, `"data":"2@s"`, `Client explicitly NAK'ed message.\nNacked from HTTP`, `"subscriptionEventNumber":2`, `"added":"`} {
				check.Contains(t, raw, part, "lacks")
			}
			time.Sleep(time.Minute)
			s.takes(5, "")

			view := "/subscriptions/viewparkedmessages/s/g/head/backward/5?embed=tryharder"
			v := s.viewed(view)
			check.Equal(t, fmt.Sprint(v.numbers(), " ", *v.Entries[0].PositionEventNumber, *v.Entries[0].EventNumber), "1 0 2 2 1", "viewed")
		}},
		{"retried messages come first, oldest first", func(t *testing.T, s *subscriber) {
			s.events(0, 6)
			s.create("")
			es := s.takes(4, "0 1 2 3")
			for _, i := range []int{3, 1, 2} {
				s.answers(es[i], "nack", "?action=Retyr")
			}
			check.Equal(t, s.info().RetryBufferCount, 3, "retry buffer")
			s.takes(5, "1 2 3 4 5")
		}},
		{"replay up to a number", func(t *testing.T, s *subscriber) {
			s.events(0, 3)
			s.create("")
			es := s.takes(3, "0 1 2")
			for _, i := range []int{1, 0, 2} {
				s.answers(es[i], "nack", "?action=park")
			}
			replay := func(query string, status int) {
				t.Helper()
				s.manages("POST", s.group+"/replayParked"+query, "").is(t, status)
				synctest.Wait()
			}
			replay("?stopAt=2", 200)
			again := s.takes(5, "1 0")
			for _, e := range again {
				check.Equal(t, *e.RetryCount, 0, "retries")
				if of(e.Links, "ack") == of(es[1].Links, "ack") {
					t.Error("the id is that of the first delivery")
				}
			}
			check.Equal(t, s.info().ParkedMessageCount, 1, "parked")
			replay("?stopAt=0", 200)
			s.takes(5, "")
			check.Equal(t, s.info().ParkedMessageCount, 1, "parked")
			replay("?stopAt=-1", 400)
		}},
		{"where groups start", func(t *testing.T, s *subscriber) {
			s.events(0, 4)
			two, now := &subscriber{s.node, "/subscriptions/s/two"}, &subscriber{s.node, "/subscriptions/s/now"}
			two.create(`"startFrom":2`)
			now.create(`"startPosition":"-1"`)
			now.takes(5, "")
			s.events(4, 1)
			two.takes(1, "2")
			two.takes(2, "3 4")
			now.takes(5, "4")
		}},
		{"the checkpoint survives an update", func(t *testing.T, s *subscriber) {
			s.events(0, 4)
			s.create(`"minCheckPointCount":1,"maxCheckPointCount":1`)
			es := s.takes(4, "0 1 2 3")
			for _, i := range []int{0, 2, 3} {
				s.answers(es[i], "ack", "")
			}
			time.Sleep(1500 * time.Millisecond)
			a := s.get("/streams/%24persistentsubscription-s%3A%3Ag-checkpoint/head", appJSON).is(t, 200)
			check.Equal(t, a.body, `"0"`, "message 1 is out")
			s.manages("POST", s.group, `{"startFrom":0}`).is(t, 200)
			synctest.Wait()
			s.takes(5, "1 2 3")
		}},
		{"restart", func(t *testing.T, s *subscriber) {
			s.events(0, 2)
			s.create(`"maxRetryCount":4`)
			s.takes(2, "0 1")
			s.do("POST", "/subscriptions/restart", "", as("jane", "changeit")).is(t, 401)
			s.do("POST", "/subscriptions/restart", "", as("ops", "changeit")).is(t, 200)
			synctest.Wait()
			check.Equal(t, s.info().Config["maxRetryCount"], any(4.0), "settings")
			s.takes(2, "0 1")
		}},
		{"links", func(t *testing.T, s *subscriber) {
			s.events(0, 1)
			link := s.id()
			s.batch("links", `[{"eventId":"`+link+`","eventType":"$>","data":"0@s"}]`).is(t, 201)
			g := &subscriber{s.node, "/subscriptions/links/g"}
			g.create(`"resolveLinktos":true`)
			e := g.takes(1, "0")[0]
			check.Equal(t, fmt.Sprint(e.Title, e.Summary, *e.EventNumber, *e.StreamID, *e.PositionStreamID), "0@s$>0slinks", "entry")
			check.Equal(t, of(e.Links, "ack"), base+g.group+"/ack/"+link, "ack")
			if *e.EventID == link {
				t.Error("the event id is the link's")
			}
			g.answers(e, "ack", "")
			check.Equal(t, g.info().OutstandingMessagesCount, 0, "out")
		}},
		{"a deleted group is nowhere", func(t *testing.T, s *subscriber) {
			s.events(0, 1)
			s.create("")
			s.takes(1, "0")
			s.manages("DELETE", s.group, "").is(t, 200)
			s.manages("DELETE", s.group, "").results(t, 404, "DoesNotExist", "Group 'g' does not exist.")
			s.get(s.group, competingJSON).is(t, 404)
			s.get("/subscriptions/s", appJSON).is(t, 404)
			s.manages("POST", s.group+"/replayParked", "").results(t, 404, "DoesNotExist", "Unable to locate 's::g'")
			s.get("/subscriptions/$all/g/info", appJSON).is(t, 404)
		}},
	} {
		t.Run(c.name, func(t *testing.T) {
			running(t, func(s *subscriber) { c.test(s.t.(*testing.T), s) })
		})
	}
}

// TestStoppedGroups asks for everything while the groups are not there yet.
func TestStoppedGroups(t *testing.T) {
	n := newNode(t, func(o *httpapi.Options) {
		o.Subscriptions = subscription.New(subscription.Options{Store: o.Store.(*memStore)})
	})
	for _, c := range groupRequests {
		status := 503
		if strings.HasSuffix(c.path, "restart") {
			status = 400
		}
		n.do(c.method, c.path, "", admin("Content-Type", appJSON)).is(t, status)
	}
}
