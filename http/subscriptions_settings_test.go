package httpapi_test

import (
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/annalsdb/annals/internal/check"
	"github.com/annalsdb/annals/subscription"
)

func TestSettings(t *testing.T) {
	with := func(change func(*subscription.Settings)) *subscription.Settings {
		s := subscription.DefaultSettings()
		change(&s)
		return &s
	}
	defaults := with(func(*subscription.Settings) {})
	all := with(func(s *subscription.Settings) {
		*s = subscription.Settings{
			ResolveLinks: true, ExtraStatistics: true, StartFrom: 7, MessageTimeout: 12 * time.Millisecond, MaxRetryCount: 3, LiveBufferSize: 50, BufferSize: 60,
			ReadBatchSize: 30, CheckpointAfter: 2500 * time.Millisecond, MinCheckpointCount: 2, MaxCheckpointCount: 40, MaxSubscriberCount: 0, Strategy: subscription.PinnedByCorrelation,
		}
	})
	for _, c := range []struct {
		name, body string
		want       *subscription.Settings // nil: refused with the text
		text       string
	}{
		{"nothing", ``, defaults, ""},
		{"blanks", " \r\n\t", defaults, ""},
		{"byte order mark alone", "\xef\xbb\xbf", defaults, ""},
		{"no members", `{}`, defaults, ""},
		{"nulls", `{"bufferSize":null,"resolveLinktos":null,"startPosition":null,"namedConsumerStrategy":null,"preferRoundRobin":null,"startFrom":null}`, defaults, ""},
		{"unknown names", `{"checkpoints":1000,"enabled":true,"colour":[{}],"":0}`, defaults, ""},
		{"names in any case", "\xef\xbb\xbf" + ` {"ResolveLinkTos":true,"MESSAGETIMEOUTMILLISECONDS":12,"startfrom":7,"LiveBufferSize":50,"buffersize":60,"readBatchSize":30,` +
			`"CheckPointAfterMilliseconds":2500,"minCheckPointCount":2,"MaxCheckpointCount":40,"maxretrycount":3,"extraStatistics":true,"maxSubscriberCount":0,` +
			`"namedConsumerStrategy":"PinnedByCorrelation"}`, all, ""},
		{"texts", `{"resolvelinktos":"True","extraStatistics":" true ","messageTimeoutMilliseconds":"12","startFrom":"7","liveBufferSize":" 50","bufferSize":"60","readBatchSize":"30",` +
			`"checkPointAfterMilliseconds":"2500","minCheckPointCount":"2","maxCheckPointCount":"40","maxRetryCount":"3","maxSubscriberCount":"0","namedConsumerStrategy":"PinnedByCorrelation"}`, all, ""},
		{"the last of one name counts", `{"bufferSize":1,"BufferSize":300}`, with(func(s *subscription.Settings) { s.BufferSize = 300 }), ""},
		{"escaped name", `{"buffer\u0053ize":300}`, with(func(s *subscription.Settings) { s.BufferSize = 300 }), ""},
		{"timeout of nothing", `{"messageTimeoutMilliseconds":0,"checkPointAfterMilliseconds":0}`, with(func(s *subscription.Settings) { s.MessageTimeout, s.CheckpointAfter = 0, 0 }), ""},
		{"negative numbers", `{"maxRetryCount":-1,"maxSubscriberCount":-2147483648}`, with(func(s *subscription.Settings) { s.MaxRetryCount, s.MaxSubscriberCount = -1, -2147483648 }), ""},
		{"large start", `{"startFrom":9223372036854775807}`, with(func(s *subscription.Settings) { s.StartFrom = 9223372036854775807 }), ""},
		{"start position", `{"startFrom":3,"startPosition":"5"}`, with(func(s *subscription.Settings) { s.StartFrom = 5 }), ""},
		{"start position as number", `{"startPosition":-1}`, with(func(s *subscription.Settings) { s.StartFrom = -1 }), ""},
		{"start position mends a start", `{"startFrom":-7,"startPosition":"0"}`, defaults, ""},
		{"legacy, round robin", `{"namedConsumerStrategy":"","preferRoundRobin":true}`, defaults, ""},
		{"legacy, single", `{"namedConsumerStrategy":"","preferRoundRobin":"false"}`, with(func(s *subscription.Settings) { s.Strategy = subscription.DispatchToSingle }), ""},
		{"legacy, nothing", `{"namedConsumerStrategy":""}`, with(func(s *subscription.Settings) { s.Strategy = subscription.DispatchToSingle }), ""},
		{"legacy is not looked at", `{"namedConsumerStrategy":"Pinned","preferRoundRobin":true}`, with(func(s *subscription.Settings) { s.Strategy = subscription.Pinned }), ""},
		{"legacy without a strategy", `{"preferRoundRobin":false}`, defaults, ""},

		{"delays", `{"retryDelayMilliseconds":1500,"RetryBackoff":{"Factor":"1.5","atmostmilliseconds":86400000},"checkpointAtLeastEveryMilliseconds":86400000}`, with(func(s *subscription.Settings) {
			s.RetryDelay, s.RetryBackoff, s.CheckpointAtLeastEvery = 1500*time.Millisecond, subscription.Backoff{Factor: 1.5, AtMost: 24 * time.Hour}, 24*time.Hour
		}), ""},
		{"a factor alone", `{"retryDelayMilliseconds":"90000","retryBackoff":100}`, with(func(s *subscription.Settings) {
			s.RetryDelay, s.RetryBackoff = 90*time.Second, subscription.Backoff{Factor: 100}
		}), ""},
		{"no delays", `{"retryDelayMilliseconds":0,"retryBackoff":null,"checkpointAtLeastEveryMilliseconds":0}`, defaults, ""},

		{"delay below 0", `{"retryDelayMilliseconds":-1}`, nil, "retryDelayMilliseconds (-1) must be between 0 and 86400000"},
		{"delay of more than a day", `{"retryDelayMilliseconds":86400001}`, nil, "retryDelayMilliseconds (86400001) must be between 0 and 86400000"},
		{"checkpoints below 0", `{"checkpointAtLeastEveryMilliseconds":-1}`, nil, "checkpointAtLeastEveryMilliseconds (-1) must be between 0 and 86400000"},
		{"factor below 1", `{"retryBackoff":0.5}`, nil, "factor of retryBackoff (0.5) must be between 1 and 100"},
		{"factor above 100", `{"retryBackoff":{"factor":101}}`, nil, "factor of retryBackoff (101) must be between 1 and 100"},
		{"factor that is no number", `{"retryBackoff":"NaN"}`, nil, "factor of retryBackoff (NaN) must be between 1 and 100"},
		{"no factor", `{"retryBackoff":{"atMostMilliseconds":5}}`, nil, "retryBackoff must be a factor, or an object with a factor."},
		{"factor of 0", `{"retryBackoff":0}`, nil, "retryBackoff must be a factor, or an object with a factor."},
		{"misspelled limit", `{"retryBackoff":{"factor":2,"atMost":5}}`, nil, "retryBackoff must be an object with factor and atMostMilliseconds alone."},
		{"list for a backoff", `{"retryBackoff":[2]}`, nil, "retryBackoff must be a factor, or an object with a factor."},
		{"word for a limit", `{"retryBackoff":{"factor":2,"atMostMilliseconds":"x"}}`, nil, "atMostMilliseconds of retryBackoff must be an integer."},
		{"limit below the delay", `{"retryDelayMilliseconds":2000,"retryBackoff":{"factor":2,"atMostMilliseconds":1000}}`, nil,
			"atMostMilliseconds of retryBackoff (1000) must not be less than retryDelayMilliseconds (2000)"},

		{"no JSON", `{nonsense`, nil, "Invalid request. The body is not a JSON object."},
		{"a list", `[]`, nil, "Invalid request. The body is not a JSON object."},
		{"null", `null`, nil, "Invalid request. The body is not a JSON object."},
		{"two documents", `{}{}`, nil, "Invalid request. The body is not a JSON object."},
		{"no UTF-8", "{\"a\":\"\xff\"}", nil, "Invalid request. The body is not a JSON object."},
		{"word for a number", `{"bufferSize":"many"}`, nil, "bufferSize must be an integer."},
		{"empty text for a number", `{"bufferSize":""}`, nil, "bufferSize must be an integer."},
		{"fraction", `{"maxRetryCount":1.5}`, nil, "maxRetryCount must be an integer."},
		{"exponent", `{"maxRetryCount":1e2}`, nil, "maxRetryCount must be an integer."},
		{"true for a number", `{"ReadBatchSize":true}`, nil, "readBatchSize must be an integer."},
		{"list for a number", `{"startFrom":[]}`, nil, "startFrom must be an integer."},
		{"too large", `{"bufferSize":2147483648}`, nil, "bufferSize must be between -2147483648 and 2147483647."},
		{"too small", `{"messageTimeoutMilliseconds":-2147483649}`, nil, "messageTimeoutMilliseconds must be between -2147483648 and 2147483647."},
		{"number for a flag", `{"resolveLinktos":1}`, nil, "resolveLinktos must be true or false."},
		{"word for a flag", `{"extraStatistics":"yes"}`, nil, "extraStatistics must be true or false."},
		{"word for the legacy flag", `{"preferRoundRobin":"x"}`, nil, "preferRoundRobin must be true or false."},
		{"number for the strategy", `{"namedConsumerStrategy":1}`, nil, "namedConsumerStrategy must be a text."},
		{"object for the position", `{"startPosition":{}}`, nil, "startPosition must be a text."},

		{"misspelled", `{"maxRetryCuont":3}`, nil, `"maxRetryCuont" is not a property of a group. Is maxRetryCount meant?`},
		{"misspelled in another case", `{"BUFERSIZE":600}`, nil, `"BUFERSIZE" is not a property of a group. Is bufferSize meant?`},
		{"misspelled with null", `{"startFrm":null}`, nil, `"startFrm" is not a property of a group. Is startFrom meant?`},
		{"shortened", `{"messageTimeout":30}`, nil, `"messageTimeout" is not a property of a group. Is messageTimeoutMilliseconds meant?`},

		{"buffer", `{"bufferSize":0,"liveBufferSize":0}`, nil, "Buffer Size (0) must be positive"},
		{"live buffer", `{"liveBufferSize":-1,"readBatchSize":0}`, nil, "Live Buffer Size (-1) must be positive"},
		{"batch", `{"readBatchSize":0}`, nil, "Read Batch Size (0) must be positive"},
		{"buffer and batch", `{"bufferSize":20,"startPosition":"x"}`, nil, "BufferSize (20) must be larger than ReadBatchSize (20)"},
		{"position", `{"startPosition":"soon","namedConsumerStrategy":"x"}`, nil, "startPosition must be an integer."},
		{"empty position", `{"startPosition":""}`, nil, "startPosition must be an integer."},
		{"position of a fraction", `{"startPosition":1.5}`, nil, "startPosition must be an integer."},
	} {
		t.Run(c.name, func(t *testing.T) {
			n, subs := newSubscriber(t)
			subs.define("s", "old")
			for _, f := range []struct{ method, group string }{{"PUT", "new"}, {"POST", "old"}} {
				a := n.manages(f.method, "/subscriptions/s/"+f.group, c.body)
				if c.want == nil {
					a.is(t, 400).says(t, c.text)
					check.Equal(t, a.body, c.text, "text")
					continue
				}
				a.is(t, 200)
				for _, g := range subs.groups {
					if g.Group == f.group {
						check.Equal(t, g.Settings, *c.want, "settings")
					}
				}
			}
			if c.want == nil {
				check.Equal(t, subs.made(), "", "calls")
				check.Equal(t, len(subs.groups), 1, "groups")
				// Before it is looked for.
				n.manages("POST", "/subscriptions/s/none", c.body).is(t, 400)
			}
		})
	}
	n, subs := newSubscriber(t)
	n.manages("PUT", "/subscriptions/s/g", `{"a":"`+strings.Repeat("x", 64<<10)+`"}`).is(t, 413).says(t, "Too large a description of a subscription")
	h := admin("Content-Type", appJSON)
	r := cutRequest(t, h, `{"bufferSize":`)
	n.serve(r).is(t, 400).says(t, "Invalid request. The body ends too early.")
	check.Equal(t, subs.made(), "", "calls")
}

// cutRequest is a PUT whose body ends before its length.
func cutRequest(t *testing.T, h http.Header, body string) *http.Request {
	r, err := http.NewRequest("PUT", base+"/subscriptions/s/g", strings.NewReader(body))
	check.Must(t, err)
	r.Header, r.ContentLength = h, int64(len(body))+1
	return r
}

func TestSettingsXML(t *testing.T) {
	const none = "Invalid request. The body is not a document SubscriptionConfigData."
	for _, c := range []struct{ name, body, want string }{
		{"nothing", "", "{}"},
		{"no elements", `<SubscriptionConfigData/>`, "{}"},
		{"elements", `<?xml version="1.0"?><SubscriptionConfigData xmlns="urn:x"><ResolveLinktos>true</ResolveLinktos><bufferSize> 60 </bufferSize><StartPosition>-1</StartPosition>` +
			`<NamedConsumerStrategy>Pinned</NamedConsumerStrategy><Other><a/></Other></SubscriptionConfigData>`,
			`{"resolveLinktos":true,"bufferSize":60,"startFrom":-1,"namedConsumerStrategy":"Pinned"}`},
		{"backoff", `<SubscriptionConfigData><RetryDelayMilliseconds>5</RetryDelayMilliseconds><RetryBackoff><Factor>2</Factor><AtMostMilliseconds>70</AtMostMilliseconds></RetryBackoff></SubscriptionConfigData>`,
			`{"retryDelayMilliseconds":5,"retryBackoff":{"factor":2,"atMostMilliseconds":70}}`},
		{"factor alone", `<SubscriptionConfigData><RetryBackoff>2</RetryBackoff></SubscriptionConfigData>`, `{"retryBackoff":2}`},
		{"without a text", `<SubscriptionConfigData xmlns:i="urn:i"><BufferSize/><StartFrom i:nil="true"/><StartPosition></StartPosition><NamedConsumerStrategy i:nil="true"/></SubscriptionConfigData>`, "{}"},
		{"legacy", `<SubscriptionConfigData><NamedConsumerStrategy/></SubscriptionConfigData>`, `{"namedConsumerStrategy":"DispatchToSingle"}`},
		{"another root", `<subscription/>`, none},
		{"no XML", `{}`, none},
		{"wrong type", `<SubscriptionConfigData><bufferSize>many</bufferSize></SubscriptionConfigData>`, "bufferSize must be an integer."},
		{"elements within", `<SubscriptionConfigData><BufferSize><a/></BufferSize></SubscriptionConfigData>`, "bufferSize must be a single value."},
		{"refused", `<SubscriptionConfigData><BufferSize>0</BufferSize></SubscriptionConfigData>`, "Buffer Size (0) must be positive"},
	} {
		t.Run(c.name, func(t *testing.T) {
			n, subs := newSubscriber(t)
			a := n.do("PUT", "/subscriptions/s/xml", c.body, admin("Content-Type", textXML))
			if c.want[0] != '{' {
				a.is(t, 400).says(t, c.want)
				return
			}
			a.is(t, 200)
			n.manages("PUT", "/subscriptions/s/json", c.want).is(t, 200)
			check.Equal(t, subs.groups[0].Settings, subs.groups[1].Settings, "settings")
		})
	}
}
