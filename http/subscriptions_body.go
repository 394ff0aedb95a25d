package httpapi

import (
	"bytes"
	"math"
	"net/http"
	"strconv"
	"strings"
	"time"

	"github.com/annalsdb/annals/internal/jsontext"
	"github.com/annalsdb/annals/internal/xmljson"
	"github.com/annalsdb/annals/subscription"
)

const (
	// maxSettings bounds the body of a request with settings.
	maxSettings = 64 << 10
	// settingsElement is the root of settings in XML. Part of the wire: do not change.
	settingsElement = "SubscriptionConfigData"
)

var (
	errSettingsJSON      = badRequest("Invalid request. The body is not a JSON object.")
	errSettingsXML       = badRequest("Invalid request. The body is not a document " + settingsElement + ".")
	errSettingsCut       = badRequest("Invalid request. The body ends too early.")
	errStartPosition     = badRequest("startPosition must be an integer.")
	problemLargeSettings = refusal(http.StatusRequestEntityTooLarge, "Too large a description of a subscription. Limit is 64kb")
)

// settingNames are how documents spell the properties of a group; others are ignored. Part of the wire: do not change.
var settingNames = []string{
	"resolveLinktos", "startFrom", "startPosition", "messageTimeoutMilliseconds", "extraStatistics", "maxRetryCount",
	"liveBufferSize", "bufferSize", "readBatchSize", "checkPointAfterMilliseconds", "minCheckPointCount", "maxCheckPointCount",
	"maxSubscriberCount", "namedConsumerStrategy", "preferRoundRobin",
}

// readSettings reads the body of the request. What it leaves out has its default.
func readSettings(x *exchange) (s subscription.Settings, err error) {
	body, err := x.readBody(maxSettings, problemLargeSettings, errSettingsCut)
	if err != nil {
		return s, err
	}
	m, err := decodeSettings(x.body.form, body)
	if err != nil {
		return s, err
	}
	return m.settings()
}

func decodeSettings(f form, body []byte) (members, error) {
	if len(bytes.TrimSpace(bytes.TrimPrefix(body, byteOrderMark))) == 0 {
		return nil, nil
	}
	if f == formTextXML {
		return decodeSettingsXML(body)
	}
	m, ok := decodeObject(body, settingNames...)
	if !ok {
		return nil, errSettingsJSON
	}
	return m, nil
}

// decodeSettingsXML takes the elements as texts. One without a text counts as not there,
// but for the strategy, for which the empty text has a meaning.
func decodeSettingsXML(body []byte) (members, error) {
	doc, err := xmljson.Parse(body)
	if err != nil || doc.Root().Name() != settingsElement {
		return nil, errSettingsXML
	}
	m := members{}
	for e := range doc.Root().Children {
		name := nameIn(settingNames, e.Name())
		if name == "" {
			continue
		}
		if e.HasChildren() {
			return nil, mustBe(name, "a single value")
		}
		text := bytes.TrimSpace(e.Text())
		if len(text) == 0 && (name != "namedConsumerStrategy" || !e.IsText()) {
			m[name] = memberValue{}
			continue
		}
		m[name] = memberValue{jsontext.AppendString(nil, text), jsontext.String}
	}
	return m, nil
}

// settings makes settings of the members. Their sizes are judged before the start
// is read; what is left to judge depends on what groups there are.
func (m members) settings() (subscription.Settings, error) {
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
	} {
		var err error
		switch to := p.to.(type) {
		case *bool:
			err = m.flag(p.name, to)
		case *int64:
			err = m.integer(p.name, math.MaxInt64, to)
		case *int:
			n := int64(*to)
			err = m.integer(p.name, math.MaxInt32, &n)
			*to = int(n)
		case *time.Duration:
			n := to.Milliseconds()
			err = m.integer(p.name, math.MaxInt32, &n)
			*to = time.Duration(n) * time.Millisecond
		}
		if err != nil {
			return s, err
		}
	}
	if err := m.strategy(&s.Strategy); err != nil {
		return s, err
	}
	position := m["startPosition"]
	if position.isGiven() && position.kind != jsontext.String && position.kind != jsontext.Number {
		return s, mustBe("startPosition", "a text")
	}
	if err := s.ValidateSizes(); err != nil {
		return s, err
	}
	if position.isGiven() {
		var err error
		if s.StartFrom, err = strconv.ParseInt(position.number(), 10, 64); err != nil {
			return s, errStartPosition
		}
	}
	return s, nil
}

// strategy reads the consumer strategy. The empty text leaves it to the property
// that older clients know.
func (m members) strategy(to *subscription.Strategy) error {
	var roundRobin bool
	if err := m.flag("preferRoundRobin", &roundRobin); err != nil {
		return err
	}
	name, err := m.text("namedConsumerStrategy")
	if err != nil || !m["namedConsumerStrategy"].isGiven() {
		return err
	}
	switch *to = subscription.Strategy(name); {
	case name != "":
	case roundRobin:
		*to = subscription.RoundRobin
	default:
		*to = subscription.DispatchToSingle
	}
	return nil
}

// number returns the text of a number, which may be one within quotes; empty when it is something else.
func (v memberValue) number() string {
	switch v.kind {
	case jsontext.String:
		return strings.TrimSpace(v.text())
	case jsontext.Number:
		return string(v.raw)
	}
	return ""
}

// flag reads true or false, which may be a text in any case.
func (m members) flag(name string, to *bool) error {
	switch v := m[name]; {
	case !v.isGiven():
		return nil
	case v.kind == jsontext.True, v.kind == jsontext.False:
		*to = v.kind == jsontext.True
		return nil
	case v.kind == jsontext.String:
		if b, ok := parseFlag(strings.TrimSpace(v.text())); ok {
			*to = b
			return nil
		}
	}
	return mustBe(name, "true or false")
}

// integer reads an integer from -limit-1 to limit, which may be a text.
func (m members) integer(name string, limit int64, to *int64) error {
	v := m[name]
	if !v.isGiven() {
		return nil
	}
	n, err := strconv.ParseInt(v.number(), 10, 64)
	if err != nil {
		return mustBe(name, "an integer")
	}
	if n > limit || n < -limit-1 {
		return mustBe(name, "between "+strconv.FormatInt(-limit-1, 10)+" and "+strconv.FormatInt(limit, 10))
	}
	*to = n
	return nil
}
