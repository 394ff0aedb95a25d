package script

import (
	"math"
	"slices"
	"strings"

	"github.com/dop251/goja"
)

// arrayCallbacks are the methods of arrays that call the script for each element.
const arrayCallbacks = "every filter find findIndex findLast findLastIndex flatMap forEach map reduce reduceRight some sort toSorted"

// maxPieces bounds how many texts one is taken apart to.
const maxPieces = 1 << 20

// spreadable is what concat appends: an array, a value that is none, or a copy of what is
// used as one, whose length might be another one when the engine asks for it.
func (b *bounds) spreadable(v goja.Value) goja.Value {
	o, ok := v.(*goja.Object)
	if !ok || o.ClassName() == "Array" {
		return v
	}
	spread := o.GetSymbol(goja.SymIsConcatSpreadable)
	if spread == nil || goja.IsUndefined(spread) {
		if is, err := b.isArray(goja.Undefined(), o); err != nil || !is.ToBoolean() {
			return v
		}
	} else if !spread.ToBoolean() {
		return v
	}
	return b.lists.help("copied", o)
}

// texts is an array, or an array of its elements' texts if some of them are objects. The
// texts together are bounded.
func (b *bounds) texts(v goja.Value) goja.Value {
	o, ok := v.(*goja.Object)
	if !ok {
		return v
	}
	if slices.Contains(b.joined, o) {
		return b.e.rt.NewArray()
	}
	b.joined = append(b.joined, o)
	defer func() { b.joined = b.joined[:len(b.joined)-1] }()
	list := b.e.measured(o)
	from := list.(*goja.Object)
	n := b.e.length(from)
	var items []any
	total, plain := 0, true
	for i := range n {
		v := orUndefined(b.e.index(from, i))
		if inner, ok := v.(*goja.Object); ok {
			b.e.alive()
			v, plain = inner.ToString(), false
		}
		if isNothing(v) {
			v = b.e.rt.ToValue("")
		}
		total += units(v)
		b.e.checkUnits(float64(total))
		if i&0xfff == 0xfff {
			b.e.alive()
		}
		items = append(items, v)
	}
	if plain {
		return list
	}
	return b.e.rt.NewArray(items...)
}

// checkPieces bounds what split makes of a text.
func (b *bounds) checkPieces(call goja.FunctionCall) {
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
		b.e.throwError("RangeError", "a text of %d parts is too long to be split: at most %d", n, maxPieces)
	}
}

// checkShort bounds a text that the engine needs long for.
func (b *bounds) checkShort(call goja.FunctionCall) {
	for _, v := range append([]goja.Value{call.This}, call.Arguments...) {
		if n := units(v); n > maxPieces {
			b.e.throwError("RangeError", "a text of %d characters is too long: at most %d", n, maxPieces)
		}
	}
}
