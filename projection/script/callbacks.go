package script

import (
	"math"
	"strings"

	"github.com/dop251/goja"
)

// arrayCallbacks are the methods of arrays that call the script for each element.
const arrayCallbacks = "every filter find findIndex findLast findLastIndex flatMap forEach map reduce reduceRight some sort toSorted"

// maxPieces bounds how many texts one is taken apart to.
const maxPieces = 1 << 20

// interruptible has a function of the engine, which sees no interrupt, look for one: it
// may be slow, and be called for each of many elements.
func (h *Handler) interruptible(args []goja.Value, i int) []goja.Value {
	if i >= len(args) {
		return args
	}
	fn, ok := goja.AssertFunction(args[i])
	if !ok || !h.isNative(args[i]) {
		return args
	}
	return withArgument(args, i, h.rt.ToValue(func(call goja.FunctionCall) goja.Value {
		h.alive()
		v, err := fn(call.This, call.Arguments...)
		h.must(err)
		return v
	}))
}

// knowTexts makes isNative ready, before the script can change what it asks.
func (h *Handler) knowTexts() {
	if h.textOf == nil {
		h.textOf, _ = goja.AssertFunction(h.prototype("Function").Get("toString"))
	}
}

// isNative says whether a function has no text in the script.
func (h *Handler) isNative(v goja.Value) bool {
	text, err := h.textOf(v)
	return err != nil || strings.Contains(text.String(), "[native code]")
}

// boundCallbacks has methods look for interrupts when what they call does not.
func (h *Handler) boundCallbacks(o *goja.Object, names string, i int, named func(string) bool) {
	for name := range strings.FieldsSeq(names) {
		if !named(name) {
			h.must(o.Delete(name))
			continue
		}
		h.knowTexts()
		h.changed(o, name, func(call goja.FunctionCall) goja.FunctionCall {
			call.Arguments = h.interruptible(call.Arguments, i)
			return call
		})
	}
}

// spreadable is what concat appends: an array, a value that is none, or a copy of what is
// used as one, whose length might be another one when the engine asks for it.
func (h *Handler) spreadable(v goja.Value) goja.Value {
	o, ok := v.(*goja.Object)
	if !ok || o.ClassName() == "Array" {
		return v
	}
	spread := o.GetSymbol(goja.SymIsConcatSpreadable)
	if spread == nil || goja.IsUndefined(spread) {
		if is, err := h.isArray(goja.Undefined(), o); err != nil || !is.ToBoolean() {
			return v
		}
	} else if !spread.ToBoolean() {
		return v
	}
	return h.copied(o)
}

// texts is an array, or an array of its elements' texts if some of them are objects. The
// texts together are bounded.
func (h *Handler) texts(v goja.Value) goja.Value {
	o, ok := v.(*goja.Object)
	if !ok {
		return v
	}
	for _, other := range h.joined {
		if other == o {
			return h.rt.NewArray()
		}
	}
	h.joined = append(h.joined, o)
	defer func() { h.joined = h.joined[:len(h.joined)-1] }()
	list := h.measured(o)
	from := list.(*goja.Object)
	n := h.length(from)
	var items []any
	total, plain := 0, true
	for i := range n {
		v := orUndefined(h.index(from, i))
		if inner, ok := v.(*goja.Object); ok {
			h.alive()
			v, plain = inner.ToString(), false
		}
		if isNothing(v) {
			v = h.rt.ToValue("")
		}
		total += units(v)
		h.checkUnits(float64(total))
		if i&0xfff == 0xfff {
			h.alive()
		}
		items = append(items, v)
	}
	if plain {
		return list
	}
	return h.rt.NewArray(items...)
}

// checkPieces bounds what split makes of a text.
func (h *Handler) checkPieces(call goja.FunctionCall) {
	this := call.This.ToString()
	n := units(this)
	if n <= maxPieces || goja.IsUndefined(call.Argument(0)) {
		return
	}
	if _, ok := call.Argument(0).(*goja.Object); ok {
		return
	}
	if limit := call.Argument(1); !goja.IsUndefined(limit) && math.Abs(limit.ToFloat()) <= maxPieces {
		return
	}
	if by := call.Argument(0).ToString(); units(by) > 0 {
		n = strings.Count(this.String(), by.String())
	}
	if n > maxPieces {
		h.throwError("RangeError", "a text of %d parts is too long to be split: at most %d", n, maxPieces)
	}
}

// checkShort bounds a text that the engine needs long for.
func (h *Handler) checkShort(call goja.FunctionCall) {
	for _, v := range append([]goja.Value{call.This}, call.Arguments...) {
		if n := units(v); n > maxPieces {
			h.throwError("RangeError", "a text of %d characters is too long: at most %d", n, maxPieces)
		}
	}
}
