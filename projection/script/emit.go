package script

import (
	"bytes"
	"fmt"
	"math"
	"strconv"
	"strings"

	"github.com/dop251/goja"

	"github.com/annalsdb/annals/event"
	"github.com/annalsdb/annals/projection/handler"
)

// Texts of wrong arguments. Do not change.
const (
	mayNotEmit      = "'emit' is not allowed by the projection/configuration/mode"
	wrongCount      = "invalid number of parameters"
	stringExpected  = "string expected"
	objectExpected  = "object expected"
	typeStreamLink  = "$@" // a link to a stream
	keyCausedBy     = "$causedBy"
	maxEmissionText = 64 << 20 // of all that one call emits
)

// emitter takes the emissions and log lines of a script.
type emitter struct {
	e           *engine
	codec       *codec
	emitted     []handler.Emission // by the running call
	emittedText int                // about how many bytes these are
}

// emit(stream, type, body[, metadata])
func (m *emitter) emit(call goja.FunctionCall) goja.Value {
	m.mayEmit(call, 3)
	e := handler.Emission{Stream: m.name(call, 0, "streamId"), Type: m.name(call, 1, "eventName"), JSON: true}
	body := call.Argument(2)
	if goja.IsUndefined(body) || goja.IsNull(body) {
		m.e.throw("Value cannot be null. (Parameter 'eventBody')")
	}
	if !isObject(body) {
		m.e.throw(objectExpected)
	}
	text, ok := m.codec.write(body, "the emitted event", maxDepth)
	if !ok {
		m.e.throw("the body of the emitted event has no JSON text")
	}
	e.Data = bytes.Clone(text)
	e.Metadata = m.metadata(call, 3)
	return m.emits(e)
}

// linkTo(stream, event[, metadata])
func (m *emitter) linkTo(call goja.FunctionCall) goja.Value {
	m.mayEmit(call, 2)
	e := handler.Emission{Stream: m.name(call, 0, "streamId"), Type: event.TypeLink}
	e.Data, e.To = m.target(call.Argument(1))
	e.Metadata = m.metadata(call, 2)
	return m.emits(e)
}

// linkStreamTo(stream, linkedStream[, metadata])
func (m *emitter) linkStreamTo(call goja.FunctionCall) goja.Value {
	m.mayEmit(call, 2)
	e := handler.Emission{Stream: m.name(call, 0, "streamId"), Type: typeStreamLink}
	e.Data = []byte(m.name(call, 1, "linkedStreamId"))
	e.Metadata = m.metadata(call, 2)
	return m.emits(e)
}

// copyTo does nothing.
func (m *emitter) copyTo(goja.FunctionCall) goja.Value { return goja.Undefined() }

// log(values...)
func (m *emitter) log(call goja.FunctionCall) goja.Value {
	if m.e.o.Log == nil {
		return goja.Undefined()
	}
	words := make([]string, len(call.Arguments))
	for i, v := range call.Arguments {
		words[i] = v.String()
		if isObject(v) {
			if text, ok := m.codec.write(v, "the logged value", maxDepth); ok {
				words[i] = string(text)
			}
		}
	}
	m.e.o.Log(strings.Join(words, " "))
	return goja.Undefined()
}

func (m *emitter) mayEmit(call goja.FunctionCall, atLeast int) {
	if !m.e.o.MayEmit {
		m.e.throw(mayNotEmit)
	}
	if len(call.Arguments) < atLeast {
		m.e.throw(wrongCount)
	}
}

func (m *emitter) emits(e handler.Emission) goja.Value {
	m.emittedText += len(e.Data) + 256
	for _, f := range e.Metadata {
		m.emittedText += len(f.Value)
	}
	if m.emittedText > maxEmissionText {
		m.e.throwError("RangeError", "more than %d bytes emitted for one event", maxEmissionText)
	}
	m.emitted = append(m.emitted, e)
	return goja.Undefined()
}

// name is an argument that must be a text with more than white space.
func (m *emitter) name(call goja.FunctionCall, i int, what string) string {
	v := call.Argument(i)
	switch {
	case goja.IsUndefined(v) || goja.IsNull(v):
		m.e.throw("Value cannot be null. (Parameter '%s')", what)
	case !goja.IsString(v):
		m.e.throw(stringExpected)
	}
	s := v.String()
	if strings.TrimSpace(s) == "" {
		m.e.throw("Value cannot be null. (Parameter '%s')", what)
	}
	return s
}

func isObject(v goja.Value) bool {
	o, ok := v.(*goja.Object)
	return ok && o.ClassName() != "Function"
}

// target is the text of a link to an event, and the event that it names. The number of an event of
// ours is exact, also where numbers of the language are not.
func (m *emitter) target(v goja.Value) ([]byte, *handler.Target) {
	o, ok := v.(*goja.Object)
	if !ok {
		m.e.throw("Invalid link to event undefined@undefined")
	}
	if e, ok := exported(o).(*eventObject); ok {
		return fmt.Appendf(nil, "%d@%s", e.e.Number, e.e.Stream), &handler.Target{Stream: e.e.Stream, Number: e.e.Number}
	}
	number, stream := o.Get("sequenceNumber"), o.Get("streamId")
	n, err := int64(0), error(nil)
	switch {
	case number != nil && goja.IsString(number):
		n, err = strconv.ParseInt(number.String(), 10, 64)
	case number != nil && goja.IsNumber(number) && number.ToFloat() == math.Trunc(number.ToFloat()):
		n = number.ToInteger()
	default:
		err = strconv.ErrSyntax
	}
	if err != nil || stream == nil || !goja.IsString(stream) || stream.String() == "" {
		m.e.throw("Invalid link to event %s@%s", textOf(number), textOf(stream))
	}
	return fmt.Appendf(nil, "%d@%s", n, stream.String()), &handler.Target{Stream: stream.String(), Number: n}
}

func textOf(v goja.Value) string {
	if v == nil {
		return "undefined"
	}
	return v.String()
}

// metadata are the entries of the argument with that number.
func (m *emitter) metadata(call goja.FunctionCall, i int) []handler.Field {
	if len(call.Arguments) <= i {
		return nil
	}
	if !isObject(call.Argument(i)) {
		m.e.throw(objectExpected)
	}
	o := call.Argument(i).(*goja.Object)
	var fields []handler.Field
	for _, key := range o.Keys() {
		if key == keyCausedBy {
			continue
		}
		if text, ok := m.codec.write(o.Get(key), "the metadata of the emitted event", maxDepth); ok {
			fields = append(fields, handler.Field{Name: key, Value: bytes.Clone(text)})
		}
	}
	return fields
}
