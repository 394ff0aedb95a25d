package script

import (
	"math"
	"slices"
	"strconv"
	"strings"

	"github.com/dop251/goja"

	"github.com/annalsdb/annals/projection/handler"
)

// Texts of wrong definitions. Clients show them: do not change.
const (
	noSource         = "None of streams and categories are included"
	anyAfterNamed    = "Both AllEvents and specific event filters cannot be set"
	allAndOthers     = "Both FromAll and specific categories/streams cannot be set"
	streamsAndOthers = "Streams and categories cannot be included in a filter at the same time"
	eachOfStreams    = "foreachStream projections are not supported on stream based sources"
	deletedOfNobody  = "Deleted stream notifications are only supported with foreachStream()"
	deletedBiState   = "Cannot handle deletes in bi-state projections"
	reorderAll       = "Event reordering cannot be used with fromAll()"
	reorderOne       = "Event reordering is only available in fromStreams([]) projections"
	reorderLag       = "Event reordering requires processing lag at least of 50ms"
	wrongOption      = "Invalid value"
	unknownOption    = "Unrecognized option: "
)

// isKnown reports whether a message is one of them.
func isKnown(message string) bool {
	switch message {
	case noSource, anyAfterNamed, allAndOthers, streamsAndOthers, eachOfStreams, deletedOfNobody, deletedBiState, reorderAll, reorderOne, reorderLag, wrongOption:
		return true
	}
	return strings.HasPrefix(message, unknownOption)
}

const minLagMs = 50

// categoryStream is the stream of links to the events of a category.
const categoryStream = "$ce-"

// A native is a function of ours that a script calls.
type native = func(goja.FunctionCall) goja.Value

// builder collects the definitions of the script.
type builder struct {
	h       *Handler
	globals map[string]goja.Value // the functions of the definition
	chain   map[string]native     // those of what they return
}

// begin puts the functions of the definition into the global object.
func (b *builder) begin() {
	b.globals = map[string]goja.Value{}
	b.chain = map[string]native{
		"when": b.when, "partitionBy": b.partitionBy, "foreachStream": b.foreachStream, "outputState": b.outputState, "outputTo": b.outputTo,
		"transformBy": b.transformBy, "filterBy": b.filterBy, "$defines_state_transform": b.definesStateTransform,
	}
	for name, fn := range map[string]native{
		"options": b.options, "fromAll": b.fromAll, "fromStream": b.fromStream, "fromStreams": b.fromStreams,
		"fromCategory": b.fromCategory, "fromCategories": b.fromCategories, "on_event": b.onEvent, "on_any": b.onAny,
	} {
		b.globals[name] = b.h.e.global(name, fn)
	}
	b.h.e.global("log", b.h.emitter.log)
}

// end takes them away again, judges what was defined, and puts in the functions that emit. What
// the script itself defined under one of these names stays.
func (b *builder) end() error {
	global := b.h.e.rt.GlobalObject()
	for name, ours := range b.globals {
		if v := global.Get(name); v != nil && v.SameAs(ours) {
			if err := global.Delete(name); err != nil {
				return &handler.Fault{Message: err.Error()}
			}
		}
	}
	for name, fn := range map[string]native{"emit": b.h.emitter.emit, "linkTo": b.h.emitter.linkTo, "linkStreamTo": b.h.emitter.linkStreamTo, "copyTo": b.h.emitter.copyTo} {
		if global.Get(name) == nil {
			b.h.e.global(name, fn)
		}
	}
	d := &b.h.d
	d.AllEvents = len(d.Events) == 0
	if !d.AllEvents {
		b.h.any = nil
	}
	if text := check(d); text != "" {
		return &handler.Fault{Message: text}
	}
	return nil
}

// check returns the error of a definition; empty: there is none.
func check(d *handler.Definition) string {
	streams, categories := len(d.Streams) > 0, len(d.Categories) > 0
	switch {
	case !d.AllStreams && !streams && !categories:
		return noSource
	case d.AllStreams && (streams || categories):
		return allAndOthers
	case streams && categories:
		return streamsAndOthers
	case d.ByStreams && streams:
		return eachOfStreams
	case d.HandlesDeleted && !d.ByStreams:
		return deletedOfNobody
	case d.HandlesDeleted && d.IsBiState:
		return deletedBiState
	case d.ReorderEvents && d.AllStreams:
		return reorderAll
	case d.ReorderEvents && len(d.Streams) < 2:
		return reorderOne
	case d.ReorderEvents && d.ProcessingLagMs < minLagMs:
		return reorderLag
	}
	return ""
}

// next is the object that a function of the chain returns: it has just these functions.
func (b *builder) next(names ...string) goja.Value {
	o := b.h.e.rt.NewObject()
	for _, name := range names {
		if err := o.Set(name, b.h.e.function(name, b.chain[name])); err != nil {
			panic(err)
		}
	}
	return o
}

func (b *builder) fromAll(goja.FunctionCall) goja.Value {
	b.h.d.AllStreams = true
	return b.next("when", "partitionBy", "foreachStream", "outputState")
}

func (b *builder) fromStream(call goja.FunctionCall) goja.Value {
	b.addStreams(b.text(call, 0))
	return b.next("when", "partitionBy", "outputState")
}

func (b *builder) fromStreams(call goja.FunctionCall) goja.Value {
	b.addStreams(b.texts(call)...)
	return b.next("when", "partitionBy", "outputState")
}

func (b *builder) fromCategory(call goja.FunctionCall) goja.Value {
	if len(call.Arguments) != 1 || !goja.IsString(call.Argument(0)) {
		return b.fromCategories(call)
	}
	if name := b.text(call, 0); !slices.Contains(b.h.d.Categories, name) {
		b.h.d.Categories = append(b.h.d.Categories, name)
	}
	return b.next("when", "partitionBy", "foreachStream", "outputState")
}

// fromCategories reads the streams of links like any other streams.
func (b *builder) fromCategories(call goja.FunctionCall) goja.Value {
	for _, name := range b.texts(call) {
		b.addStreams(categoryStream + name)
	}
	return b.next("when", "partitionBy", "foreachStream", "outputState")
}

func (b *builder) addStreams(names ...string) {
	for _, name := range names {
		if !slices.Contains(b.h.d.Streams, name) {
			b.h.d.Streams = append(b.h.d.Streams, name)
		}
	}
}

func (b *builder) foreachStream(goja.FunctionCall) goja.Value {
	b.h.d.ByStreams = true
	return b.next("when")
}

func (b *builder) partitionBy(call goja.FunctionCall) goja.Value {
	b.h.partitionBy = b.fn(call, 0)
	b.h.d.ByCustomPartitions = true
	return b.next("when")
}

func (b *builder) when(call goja.FunctionCall) goja.Value {
	handlers, ok := call.Argument(0).(*goja.Object)
	if !ok {
		b.h.e.throw("object expected")
	}
	b.h.d.DefinesFold = true
	for _, name := range handlers.Keys() {
		v := handlers.Get(name)
		if fn, ok := goja.AssertFunction(v); ok {
			b.h.given = append(b.h.given, v)
			b.add(name, fn)
		}
	}
	return b.next("transformBy", "filterBy", "outputState", "outputTo", "$defines_state_transform")
}

func (b *builder) onEvent(call goja.FunctionCall) goja.Value {
	b.add(b.text(call, 0), b.fn(call, 1))
	return goja.Undefined()
}

func (b *builder) onAny(call goja.FunctionCall) goja.Value {
	b.add("$any", b.fn(call, 0))
	return goja.Undefined()
}

// add takes a handler under its name.
func (b *builder) add(name string, fn goja.Callable) {
	h := b.h
	switch name {
	case "$init":
		h.init = fn
	case "$initShared":
		h.initShared, h.d.IsBiState = fn, true
	case "$created":
		h.created = fn
	case "$deleted":
		h.deleted, h.d.HandlesDeleted = fn, true
	case "$any":
		if len(h.d.Events) > 0 {
			h.e.throw(anyAfterNamed)
		}
		h.any = fn
	default:
		if h.named[name] == nil {
			h.d.Events = append(h.d.Events, name)
		}
		h.named[name] = fn
	}
}

func (b *builder) outputState(goja.FunctionCall) goja.Value {
	b.h.d.ProducesResults = true
	return b.next("transformBy", "filterBy", "outputTo")
}

func (b *builder) definesStateTransform(goja.FunctionCall) goja.Value {
	b.h.d.DefinesStateTransform, b.h.d.ProducesResults = true, true
	return goja.Undefined()
}

func (b *builder) transformBy(call goja.FunctionCall) goja.Value { return b.transform(call, false) }
func (b *builder) filterBy(call goja.FunctionCall) goja.Value    { return b.transform(call, true) }

func (b *builder) transform(call goja.FunctionCall, filter bool) goja.Value {
	b.h.transforms = append(b.h.transforms, transform{fn: b.fn(call, 0), filter: filter})
	b.h.d.DefinesStateTransform, b.h.d.ProducesResults = true, true
	return b.next("transformBy", "filterBy", "outputState", "outputTo")
}

func (b *builder) outputTo(call goja.FunctionCall) goja.Value {
	b.h.d.ResultStream = handler.Name(b.text(call, 0))
	if len(call.Arguments) > 1 {
		b.h.d.PartitionResultPattern = handler.Name(b.text(call, 1))
	}
	return b.next()
}

func (b *builder) options(call goja.FunctionCall) goja.Value {
	given, ok := call.Argument(0).(*goja.Object)
	if !ok {
		b.h.e.throw("object expected")
	}
	d := &b.h.d
	for _, name := range given.Keys() {
		v := given.Get(name)
		switch strings.ToLower(name) {
		case "resultstreamname":
			if !goja.IsString(v) {
				b.h.e.throw(wrongOption)
			}
			d.ResultStream = handler.Name(v.String())
		case "$includelinks":
			d.IncludeLinks = b.boolean(v)
		case "reorderevents":
			d.ReorderEvents = b.boolean(v)
		case "bistate":
			d.IsBiState = b.boolean(v)
		case "processinglag":
			f := math.NaN()
			if goja.IsNumber(v) {
				f = v.ToFloat()
			}
			if !(f >= math.MinInt32 && f <= math.MaxInt32) {
				b.h.e.throw(wrongOption)
			}
			d.ProcessingLagMs = int(f)
		default:
			b.h.e.throw(unknownOption+"%s", name)
		}
	}
	return goja.Undefined()
}

func (b *builder) boolean(v goja.Value) bool {
	t, ok := v.Export().(bool)
	if _, boxed := v.(*goja.Object); boxed || !ok {
		b.h.e.throw(wrongOption)
	}
	return t
}

// text is an argument that must be a text.
func (b *builder) text(call goja.FunctionCall, i int) string {
	v := call.Argument(i)
	if !goja.IsString(v) {
		b.h.e.throw("string expected")
	}
	return v.String()
}

// texts are the arguments, or the elements of the one argument that is an array.
func (b *builder) texts(call goja.FunctionCall) []string {
	args := call.Arguments
	if list, ok := call.Argument(0).(*goja.Object); ok && len(args) == 1 && list.ClassName() == "Array" {
		args = nil
		n := list.Get("length").ToInteger()
		if n > maxSources {
			b.h.e.throw("more than %d sources", maxSources)
		}
		for i := range n {
			args = append(args, list.Get(strconv.FormatInt(i, 10)))
		}
	}
	if len(args) == 0 {
		b.h.e.throw("string expected")
	}
	names := make([]string, len(args))
	for i, v := range args {
		if v == nil || !goja.IsString(v) {
			b.h.e.throw("string expected")
		}
		names[i] = v.String()
	}
	return names
}

// maxSources bounds a list of streams.
const maxSources = 100_000

// fn is an argument that must be a function.
func (b *builder) fn(call goja.FunctionCall, i int) goja.Callable {
	fn, ok := goja.AssertFunction(call.Argument(i))
	if !ok {
		b.h.e.throw("function expected")
	}
	b.h.given = append(b.h.given, call.Argument(i))
	return fn
}
