package groups

import (
	"bytes"
	"encoding/json"
	"fmt"
	"math"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/annalsdb/annals/http/args"
	"github.com/annalsdb/annals/http/media"
	"github.com/annalsdb/annals/http/problem"
	"github.com/annalsdb/annals/http/request"
	"github.com/annalsdb/annals/internal/jsontext"
	"github.com/annalsdb/annals/internal/spelling"
	"github.com/annalsdb/annals/internal/xmljson"
	"github.com/annalsdb/annals/subscription"
)

const (
	// settingsElement is the root of settings in XML. Part of the wire: do not change.
	settingsElement = "SubscriptionConfigData"
)

var (
	errSettingsJSON  = problem.Bad("Invalid request. The body is not a JSON object.")
	errSettingsXML   = problem.Bad("Invalid request. The body is not a document " + settingsElement + ".")
	errSettingsCut   = problem.Bad("Invalid request. The body ends too early.")
	errStartPosition = problem.Bad("startPosition must be an integer.")
)

// settingNames are how documents spell the properties of a group; others are ignored, unless they
// are misspelled. Part of the wire: do not change.
var settingNames = append([]string{
	"resolveLinktos", "startFrom", "startPosition", "messageTimeoutMilliseconds", "extraStatistics", "maxRetryCount",
	"liveBufferSize", "bufferSize", "readBatchSize", "checkPointAfterMilliseconds", "minCheckPointCount", "maxCheckPointCount",
	"maxSubscriberCount", "namedConsumerStrategy", "preferRoundRobin",
}, ownNames...)

// ownNames are the properties that updates over gRPC have no field for.
var ownNames = []string{"retryDelayMilliseconds", "retryBackoff", "checkpointAtLeastEveryMilliseconds", "source", "filter"}

// readSettings reads the body of the request. Members that it leaves out have their defaults. isOwn
// reports whether it has a property of ownNames.
func readSettings(x *request.Request) (s subscription.Settings, isOwn bool, err error) {
	body, err := x.Upload.Read(request.MaxSettings, request.LargeSettings, errSettingsCut)
	if err != nil {
		return s, false, err
	}
	m := decodeSettings(x.Body.Form, body)
	s, err = settings(m)
	return s, hasOwn(m), err
}

func hasOwn(m *args.Members) bool {
	return slices.ContainsFunc(ownNames, func(name string) bool { return m.Values[name].IsGiven() })
}

func decodeSettings(f media.Form, body []byte) *args.Members {
	switch {
	case len(bytes.TrimSpace(bytes.TrimPrefix(body, args.ByteOrderMark))) == 0:
		return &args.Members{}
	case f == media.FormTextXML:
		return decodeSettingsXML(body)
	}
	return args.Object(body, errSettingsJSON, settingNames...)
}

// decodeSettingsXML takes the elements as texts. One without a text counts as not there,
// but for the strategy, for which the empty text has a meaning.
func decodeSettingsXML(body []byte) *args.Members {
	doc, err := xmljson.Parse(body)
	if err != nil || doc.Root().Name() != settingsElement {
		return &args.Members{Err: errSettingsXML}
	}
	m := &args.Members{Values: map[string]args.Member{}}
	for e := range doc.Root().Children {
		name := args.NameIn(settingNames, e.Name())
		if name == "" {
			m.Others = append(m.Others, e.Name())
			continue
		}
		if e.HasChildren() && (name == "retryBackoff" || name == "filter") {
			m.Values[name] = args.Member{Raw: e.AppendJSON(nil), Kind: jsontext.Object}
			continue
		}
		if e.HasChildren() {
			m.MustBe(name, "a single value")
		}
		text := bytes.TrimSpace(e.Text())
		if len(text) == 0 && (name != "namedConsumerStrategy" || !e.IsText()) {
			m.Values[name] = args.Member{}
			continue
		}
		m.Values[name] = args.Member{Raw: jsontext.AppendString(nil, text), Kind: jsontext.String}
	}
	return m
}

// The edits and the letters left out by which a name is taken for a misspelled one.
const (
	maxMisspelled = 3
	minShortened  = 8
)

// misspelled refuses a name that is close to one of a property: with the property at its default
// the group would do something else than was asked for.
func misspelled(m *args.Members) {
	for _, other := range m.Others {
		for _, name := range settingNames {
			a, b := strings.ToLower(other), strings.ToLower(name)
			if len(a) >= minShortened && strings.HasPrefix(b, a) || spelling.Distance(a, b, maxMisspelled+1) <= maxMisspelled {
				m.Wrong(problem.Bad(fmt.Sprintf("%.100q is not a property of a group. Is %s meant?", other, name)))
			}
		}
	}
}

// settings makes settings of the members. Their sizes are judged before the start
// is read; what is left to judge depends on what groups there are.
func settings(m *args.Members) (subscription.Settings, error) {
	misspelled(m)
	s := subscription.DefaultSettings()
	for _, p := range []struct {
		name string
		to   any
	}{
		{"resolveLinktos", &s.ResolveLinks}, {"extraStatistics", &s.ExtraStatistics}, {"startFrom", &s.StartFrom},
		{"messageTimeoutMilliseconds", &s.MessageTimeout}, {"checkPointAfterMilliseconds", &s.CheckpointAfter},
		{"maxRetryCount", &s.MaxRetryCount}, {"liveBufferSize", &s.LiveBufferSize}, {"bufferSize", &s.BufferSize},
		{"readBatchSize", &s.ReadBatchSize}, {"minCheckPointCount", &s.MinCheckpointCount},
		{"maxCheckPointCount", &s.MaxCheckpointCount}, {"maxSubscriberCount", &s.MaxSubscriberCount},
		{"retryDelayMilliseconds", &s.RetryDelay}, {"checkpointAtLeastEveryMilliseconds", &s.CheckpointAtLeastEvery},
	} {
		switch to := p.to.(type) {
		case *bool:
			*to = m.Flag(p.name, *to)
		case *int64:
			*to = m.Integer(p.name, math.MaxInt64, *to)
		case *int:
			*to = int(m.Integer(p.name, math.MaxInt32, int64(*to)))
		case *time.Duration:
			*to = time.Duration(m.Integer(p.name, math.MaxInt32, to.Milliseconds())) * time.Millisecond
		}
	}
	s.RetryBackoff = backoff(m)
	s.Strategy = strategy(m, s.Strategy)
	s.Source, s.Filter = m.Text("source"), filter(m)
	position := m.Values["startPosition"]
	if position.IsGiven() && position.Kind != jsontext.String && position.Kind != jsontext.Number {
		m.MustBe("startPosition", "a text")
	}
	m.Wrong(s.ValidateSizes())
	if position.IsGiven() {
		var err error
		if s.StartFrom, err = strconv.ParseInt(position.Number(), 10, 64); err != nil {
			at, ok := subscription.ParsePosition(position.Number())
			if s.StartFrom = at; !ok || !hasOwn(m) {
				m.Wrong(errStartPosition)
			}
		}
	}
	return s, m.Err
}

// backoff reads an object, or the factor alone.
func backoff(m *args.Members) (b subscription.Backoff) {
	v := m.Values["retryBackoff"]
	switch {
	case !v.IsGiven():
		return b
	case v.Kind == jsontext.Object:
		of := args.Object(v.Raw, nil, "factor", "atMostMilliseconds")
		b.AtMost = time.Duration(of.Integer("atMostMilliseconds", math.MaxInt32, 0)) * time.Millisecond
		if len(of.Others) > 0 {
			m.MustBe("retryBackoff", "an object with factor and atMostMilliseconds alone")
		}
		if v = of.Values["factor"]; of.Err != nil {
			m.MustBe("atMostMilliseconds of retryBackoff", "an integer")
		}
	}
	var err error
	if b.Factor, err = strconv.ParseFloat(v.Number(), 64); err != nil || b.Factor == 0 {
		m.MustBe("retryBackoff", "a factor, or an object with a factor")
	}
	return b
}

// filter reads the filter of a group that reads $all; nil: the body has none. An object without
// members is the filter that chooses all events. One in which a member is misspelled is refused: it
// would take away the filter that the group has.
func filter(m *args.Members) *subscription.Filter {
	v := m.Values["filter"]
	if !v.IsGiven() {
		return nil
	}
	var in struct {
		Of       string
		Regex    string
		Prefixes []string
	}
	d := json.NewDecoder(bytes.NewReader(v.Raw))
	d.DisallowUnknownFields()
	isKnown := v.Kind == jsontext.Object && d.Decode(&in) == nil && !slices.Contains(in.Prefixes, "")
	chooses, isBoth := in.Regex != "" || len(in.Prefixes) > 0, in.Regex != "" && len(in.Prefixes) > 0
	if !isKnown || isBoth || chooses != (in.Of == "stream" || in.Of == "type") || !chooses && in.Of != "" {
		m.MustBe("filter", "an object: of is stream or type, and there is either regex or prefixes")
		return nil
	}
	return &subscription.Filter{OfStream: in.Of == "stream", Regex: in.Regex, Prefixes: in.Prefixes}
}

// strategy reads the consumer strategy. The empty text leaves it to the property
// that older clients know.
func strategy(m *args.Members, absent subscription.Strategy) subscription.Strategy {
	roundRobin := m.Flag("preferRoundRobin", false)
	name := m.Text("namedConsumerStrategy")
	switch {
	case !m.Values["namedConsumerStrategy"].IsGiven():
		return absent
	case name != "":
		return subscription.Strategy(name)
	case roundRobin:
		return subscription.RoundRobin
	}
	return subscription.DispatchToSingle
}
