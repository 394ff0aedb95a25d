package httpapi

import (
	"bytes"
	"fmt"
	"math"
	"net/http"
	"strconv"
	"strings"
	"time"

	"github.com/annalsdb/annals/internal/jsontext"
	"github.com/annalsdb/annals/internal/spelling"
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

// settingNames are how documents spell the properties of a group; others are ignored, unless they
// are misspelled. Part of the wire: do not change.
var settingNames = []string{
	"resolveLinktos", "startFrom", "startPosition", "messageTimeoutMilliseconds", "extraStatistics", "maxRetryCount",
	"liveBufferSize", "bufferSize", "readBatchSize", "checkPointAfterMilliseconds", "minCheckPointCount", "maxCheckPointCount",
	"maxSubscriberCount", "namedConsumerStrategy", "preferRoundRobin",
}

// readSettings reads the body of the request. Members that it leaves out have their defaults.
func readSettings(x *exchange) (s subscription.Settings, err error) {
	body, err := x.readBody(maxSettings, problemLargeSettings, errSettingsCut)
	if err != nil {
		return s, err
	}
	return decodeSettings(x.body.form, body).settings()
}

func decodeSettings(f form, body []byte) *members {
	switch {
	case len(bytes.TrimSpace(bytes.TrimPrefix(body, byteOrderMark))) == 0:
		return &members{}
	case f == formTextXML:
		return decodeSettingsXML(body)
	}
	return decodeObject(body, errSettingsJSON, settingNames...)
}

// decodeSettingsXML takes the elements as texts. One without a text counts as not there,
// but for the strategy, for which the empty text has a meaning.
func decodeSettingsXML(body []byte) *members {
	doc, err := xmljson.Parse(body)
	if err != nil || doc.Root().Name() != settingsElement {
		return &members{err: errSettingsXML}
	}
	m := &members{values: map[string]memberValue{}}
	for e := range doc.Root().Children {
		name := nameIn(settingNames, e.Name())
		if name == "" {
			m.others = append(m.others, e.Name())
			continue
		}
		if e.HasChildren() {
			m.mustBe(name, "a single value")
		}
		text := bytes.TrimSpace(e.Text())
		if len(text) == 0 && (name != "namedConsumerStrategy" || !e.IsText()) {
			m.values[name] = memberValue{}
			continue
		}
		m.values[name] = memberValue{jsontext.AppendString(nil, text), jsontext.String}
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
func (m *members) misspelled() {
	for _, other := range m.others {
		for _, name := range settingNames {
			a, b := strings.ToLower(other), strings.ToLower(name)
			if len(a) >= minShortened && strings.HasPrefix(b, a) || spelling.Distance(a, b, maxMisspelled+1) <= maxMisspelled {
				m.wrong(badRequest(fmt.Sprintf("%.100q is not a property of a group. Is %s meant?", other, name)))
			}
		}
	}
}

// settings makes settings of the members. Their sizes are judged before the start
// is read; what is left to judge depends on what groups there are.
func (m *members) settings() (subscription.Settings, error) {
	m.misspelled()
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
		switch to := p.to.(type) {
		case *bool:
			*to = m.flag(p.name, *to)
		case *int64:
			*to = m.integer(p.name, math.MaxInt64, *to)
		case *int:
			*to = int(m.integer(p.name, math.MaxInt32, int64(*to)))
		case *time.Duration:
			*to = time.Duration(m.integer(p.name, math.MaxInt32, to.Milliseconds())) * time.Millisecond
		}
	}
	s.Strategy = m.strategy(s.Strategy)
	position := m.values["startPosition"]
	if position.isGiven() && position.kind != jsontext.String && position.kind != jsontext.Number {
		m.mustBe("startPosition", "a text")
	}
	m.wrong(s.ValidateSizes())
	if position.isGiven() {
		var err error
		if s.StartFrom, err = strconv.ParseInt(position.number(), 10, 64); err != nil {
			m.wrong(errStartPosition)
		}
	}
	return s, m.err
}

// strategy reads the consumer strategy. The empty text leaves it to the property
// that older clients know.
func (m *members) strategy(absent subscription.Strategy) subscription.Strategy {
	roundRobin := m.flag("preferRoundRobin", false)
	name := m.text("namedConsumerStrategy")
	switch {
	case !m.values["namedConsumerStrategy"].isGiven():
		return absent
	case name != "":
		return subscription.Strategy(name)
	case roundRobin:
		return subscription.RoundRobin
	}
	return subscription.DispatchToSingle
}

// number returns the text of a number, which may be one within quotes; empty when it is something
// else.
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
func (m *members) flag(name string, absent bool) bool {
	switch v := m.values[name]; {
	case !v.isGiven():
		return absent
	case v.kind == jsontext.True, v.kind == jsontext.False:
		return v.kind == jsontext.True
	case v.kind == jsontext.String:
		if b, ok := parseFlag(strings.TrimSpace(v.text())); ok {
			return b
		}
	}
	m.mustBe(name, "true or false")
	return absent
}

// integer reads an integer from -limit-1 to limit, which may be a text.
func (m *members) integer(name string, limit, absent int64) int64 {
	v := m.values[name]
	if !v.isGiven() {
		return absent
	}
	n, err := strconv.ParseInt(v.number(), 10, 64)
	switch {
	case err != nil:
		m.mustBe(name, "an integer")
	case n > limit || n < -limit-1:
		m.mustBe(name, "between "+strconv.FormatInt(-limit-1, 10)+" and "+strconv.FormatInt(limit, 10))
	}
	return n
}
