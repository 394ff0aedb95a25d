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

// setting is a property of a group. Others are ignored.
type setting uint8

const (
	setResolveLinks setting = iota
	setStartFrom
	setStartPosition
	setMessageTimeout
	setExtraStatistics
	setMaxRetryCount
	setLiveBufferSize
	setBufferSize
	setReadBatchSize
	setCheckpointAfter
	setMinCheckpointCount
	setMaxCheckpointCount
	setMaxSubscriberCount
	setStrategy
	setPreferRoundRobin
	settingCount
)

// settingNames are how documents spell the properties. Part of the wire: do not change.
var settingNames = [settingCount]string{
	"resolveLinktos", "startFrom", "startPosition", "messageTimeoutMilliseconds", "extraStatistics", "maxRetryCount",
	"liveBufferSize", "bufferSize", "readBatchSize", "checkPointAfterMilliseconds", "minCheckPointCount", "maxCheckPointCount",
	"maxSubscriberCount", "namedConsumerStrategy", "preferRoundRobin",
}

// settingValues are the properties that a body gives.
type settingValues [settingCount]memberValue

// readSettings reads the body of the request. What it leaves out has its default.
func readSettings(x *exchange) (s subscription.Settings, err error) {
	body, err := x.readBody(maxSettings, problemLargeSettings, errSettingsCut)
	if err != nil {
		return s, err
	}
	var values settingValues
	if err := values.decode(x.body.form, body); err != nil {
		return s, err
	}
	return values.settings()
}

func (v *settingValues) decode(f form, body []byte) error {
	switch {
	case len(bytes.TrimSpace(bytes.TrimPrefix(body, byteOrderMark))) == 0:
	case f == formTextXML:
		return v.decodeXML(body)
	case !decodeObject(body, settingNames[:], v[:]):
		return errSettingsJSON
	}
	return nil
}

// decodeXML takes the elements as texts. One without a text counts as not there,
// but for the strategy, for which the empty text has a meaning.
func (v *settingValues) decodeXML(body []byte) error {
	doc, err := xmljson.Parse(body)
	if err != nil || doc.Root().Name() != settingsElement {
		return errSettingsXML
	}
	for e := range doc.Root().Children {
		i := nameIn(settingNames[:], e.Name())
		if i < 0 {
			continue
		}
		if e.HasChildren() {
			return setting(i).mustBe("a single value")
		}
		text := bytes.TrimSpace(e.Text())
		if len(text) == 0 && (setting(i) != setStrategy || !e.IsText()) {
			v[i] = memberValue{}
			continue
		}
		v[i] = memberValue{jsontext.AppendString(nil, text), jsontext.String}
	}
	return nil
}

// settings makes settings of the values. Their sizes are judged before the start
// is read; what is left to judge depends on what groups there are.
func (v *settingValues) settings() (subscription.Settings, error) {
	s := subscription.DefaultSettings()
	timeout, after := s.MessageTimeout.Milliseconds(), s.CheckpointAfter.Milliseconds()
	for _, p := range []struct {
		setting setting
		to      *bool
	}{{setResolveLinks, &s.ResolveLinks}, {setExtraStatistics, &s.ExtraStatistics}} {
		if err := v.flag(p.setting, p.to); err != nil {
			return s, err
		}
	}
	if err := v.integer(setStartFrom, math.MaxInt64, &s.StartFrom); err != nil {
		return s, err
	}
	for _, p := range []struct {
		setting setting
		to      *int64
	}{{setMessageTimeout, &timeout}, {setCheckpointAfter, &after}} {
		if err := v.integer(p.setting, math.MaxInt32, p.to); err != nil {
			return s, err
		}
	}
	s.MessageTimeout, s.CheckpointAfter = time.Duration(timeout)*time.Millisecond, time.Duration(after)*time.Millisecond
	for _, p := range []struct {
		setting setting
		to      *int
	}{
		{setMaxRetryCount, &s.MaxRetryCount}, {setLiveBufferSize, &s.LiveBufferSize}, {setBufferSize, &s.BufferSize},
		{setReadBatchSize, &s.ReadBatchSize}, {setMinCheckpointCount, &s.MinCheckpointCount},
		{setMaxCheckpointCount, &s.MaxCheckpointCount}, {setMaxSubscriberCount, &s.MaxSubscriberCount},
	} {
		n := int64(*p.to)
		if err := v.integer(p.setting, math.MaxInt32, &n); err != nil {
			return s, err
		}
		*p.to = int(n)
	}
	if err := v.strategy(&s.Strategy); err != nil {
		return s, err
	}
	position, isGiven, err := v.startPosition()
	if err != nil {
		return s, err
	}
	if err := s.ValidateSizes(); err != nil {
		return s, err
	}
	if isGiven {
		if s.StartFrom, err = strconv.ParseInt(position, 10, 64); err != nil {
			return s, errStartPosition
		}
	}
	return s, nil
}

// strategy reads the consumer strategy. The empty text leaves it to the property
// that older clients know.
func (v *settingValues) strategy(to *subscription.Strategy) error {
	var roundRobin bool
	if err := v.flag(setPreferRoundRobin, &roundRobin); err != nil {
		return err
	}
	name := v[setStrategy]
	if !name.isGiven() {
		return nil
	}
	if name.kind != jsontext.String {
		return setStrategy.mustBe("a text")
	}
	switch *to = subscription.Strategy(name.text()); {
	case *to != "":
	case roundRobin:
		*to = subscription.RoundRobin
	default:
		*to = subscription.DispatchToSingle
	}
	return nil
}

// startPosition returns the start as text.
func (v *settingValues) startPosition() (position string, isGiven bool, err error) {
	switch p := v[setStartPosition]; {
	case !p.isGiven():
		return "", false, nil
	case p.kind == jsontext.String:
		return strings.TrimSpace(p.text()), true, nil
	case p.kind == jsontext.Number:
		return string(p.raw), true, nil
	}
	return "", false, setStartPosition.mustBe("a text")
}

// flag reads true or false, which may be a text in any case.
func (v *settingValues) flag(s setting, to *bool) error {
	switch p := v[s]; {
	case !p.isGiven():
		return nil
	case p.kind == jsontext.True, p.kind == jsontext.False:
		*to = p.kind == jsontext.True
		return nil
	case p.kind == jsontext.String:
		if b, ok := parseFlag(strings.TrimSpace(p.text())); ok {
			*to = b
			return nil
		}
	}
	return s.mustBe("true or false")
}

// integer reads an integer from -limit-1 to limit, which may be a text.
func (v *settingValues) integer(s setting, limit int64, to *int64) error {
	p := v[s]
	var text string
	switch {
	case !p.isGiven():
		return nil
	case p.kind == jsontext.String:
		text = strings.TrimSpace(p.text())
	case p.kind == jsontext.Number:
		text = string(p.raw)
	}
	n, err := strconv.ParseInt(text, 10, 64)
	if err != nil {
		return s.mustBe("an integer")
	}
	if n > limit || n < -limit-1 {
		return s.mustBe("between " + strconv.FormatInt(-limit-1, 10) + " and " + strconv.FormatInt(limit, 10))
	}
	*to = n
	return nil
}

func (s setting) mustBe(what string) error {
	return badRequest(settingNames[s] + " must be " + what + ".")
}
