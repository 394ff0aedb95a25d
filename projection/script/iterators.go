package script

import (
	"reflect"
	"strings"

	"github.com/dop251/goja"
)

// The engine goes through iterables in loops of its own, which no interrupt reaches: a
// `next` that is a function of the engine may never end in them. So each such iterable is
// made an array before, in a loop of ours that looks at the interrupt. What the engine is
// handed is an array that the script has not, or one that is walked at once; the way in
// which arrays are walked cannot be changed.

// boundIterables has what goes through iterables collect them before.
func (h *Handler) boundIterables(source string) {
	named, reachable := naming(source), reachesGlobal(source)
	if h.iterables.spreads {
		h.lockArrays()
		h.hidden(spreadName, func(call goja.FunctionCall) goja.Value {
			if h.isPlain(call.Argument(0)) {
				return call.Argument(0)
			}
			return h.rt.NewArray(h.collect(call.Argument(0), -1)...)
		})
	}
	if len(h.iterables.shapes) > 0 {
		h.lockArrays()
		h.enumerable, _ = goja.AssertFunction(h.objects.Get("propertyIsEnumerable"))
		h.hidden(patternName, func(call goja.FunctionCall) goja.Value {
			s, v := h.iterables.shapes[call.Argument(0).ToInteger()], call.Argument(1)
			if s.isFlat() && h.isPlain(v) {
				return v
			}
			return h.shaped(s, v)
		})
	}
	if h.iterables.scopes {
		h.has, _ = goja.AssertFunction(h.object("Reflect").Get("has"))
		h.hidden(scopeName, h.scope)
	}

	h.listed(h.object("Array"), "from", named)
	h.listed(h.object("Object"), "fromEntries", named)
	if named("Promise") || named("async") || reachable {
		for _, name := range []string{"all", "allSettled", "any", "race"} {
			h.listed(h.object("Promise"), name, named)
		}
	}
	global := h.rt.GlobalObject()
	for _, name := range []string{"Map", "Set", "WeakMap", "WeakSet", "AggregateError"} {
		if !named(name) {
			if reachable {
				h.must(global.Delete(name))
			}
			continue
		}
		h.lockArrays()
		class := h.object(name)
		if name == "Set" {
			h.boundSets(named)
		}
		if name == "Set" || name == "Map" {
			h.boundCallbacks(h.prototype(name), "forEach", 0, named)
		}
		h.replaceConstructor(name, class, h.listArgument)
	}
}

// lockArrays makes the way in which arrays are walked last. One array, or a class of them,
// may still be given another one: a property that is only read would not let that be.
func (h *Handler) lockArrays() {
	if h.locked {
		return
	}
	h.locked = true
	values := h.arrays.GetSymbol(goja.SymIterator)
	get := h.function("get [Symbol.iterator]", func(goja.FunctionCall) goja.Value { return values })
	set := h.function("set [Symbol.iterator]", func(call goja.FunctionCall) goja.Value {
		o, ok := call.This.(*goja.Object)
		if !ok || o == h.arrays {
			h.throw("how arrays are walked cannot be changed")
		}
		h.must(o.DefineDataPropertySymbol(goja.SymIterator, call.Argument(0), goja.FLAG_TRUE, goja.FLAG_TRUE, goja.FLAG_TRUE))
		return goja.Undefined()
	})
	h.must(h.arrays.DefineAccessorPropertySymbol(goja.SymIterator, get, set, goja.FLAG_FALSE, goja.FLAG_FALSE))
	walk, _ := goja.AssertFunction(values)
	iterator, err := walk(h.rt.NewArray())
	h.must(err)
	steps := iterator.(*goja.Object).Prototype()
	h.must(steps.DefineDataProperty("next", steps.Get("next"), goja.FLAG_FALSE, goja.FLAG_FALSE, goja.FLAG_FALSE))
}

// scope is what a with statement puts in scope: names of ours are not looked up in it.
func (h *Handler) scope(call goja.FunctionCall) goja.Value {
	return h.rt.ToValue(h.rt.NewProxy(call.Argument(0).ToObject(h.rt), &goja.ProxyTrapConfig{Has: func(o *goja.Object, name string) bool {
		if strings.HasPrefix(name, "\x00") {
			return false
		}
		has, err := h.has(goja.Undefined(), o, h.rt.ToValue(name))
		h.must(err)
		return has.ToBoolean()
	}}))
}

// listed has a method collect its first argument.
func (h *Handler) listed(o *goja.Object, name string, named func(string) bool) {
	if !named(name) {
		h.must(o.Delete(name))
		return
	}
	h.lockArrays()
	h.knowTexts()
	h.changed(o, name, func(call goja.FunctionCall) goja.FunctionCall {
		call.Arguments = h.interruptible(h.listArgument(call.Arguments), 1)
		return call
	})
}

func (h *Handler) listArgument(args []goja.Value) []goja.Value {
	if len(args) == 0 || isNothing(args[0]) {
		return args
	}
	return withArgument(args, 0, h.list(args[0]))
}

// boundSets has the methods of sets that take another set look at the interrupt: they
// walk what its keys method returns.
func (h *Handler) boundSets(named func(string) bool) {
	sets := h.prototype("Set")
	for name := range strings.FieldsSeq("union intersection difference symmetricDifference isSubsetOf isSupersetOf isDisjointFrom") {
		if !named(name) {
			h.must(sets.Delete(name))
			continue
		}
		h.changed(sets, name, func(call goja.FunctionCall) goja.FunctionCall {
			o, ok := call.Argument(0).(*goja.Object)
			if !ok {
				return call
			}
			keys, ok := goja.AssertFunction(o.Get("keys"))
			if !ok {
				return call
			}
			has, size := o.Get("has"), o.Get("size")
			other := h.rt.NewObject()
			h.must(other.Set("size", size))
			h.must(other.Set("has", h.function("has", func(call goja.FunctionCall) goja.Value {
				h.alive()
				fn, ok := goja.AssertFunction(has)
				if !ok {
					h.throw("has is not a function")
				}
				v, err := fn(o, call.Arguments...)
				h.must(err)
				return v
			})))
			h.must(other.Set("keys", h.function("keys", func(goja.FunctionCall) goja.Value {
				// An iterator is walked as it is: the methods end before its end.
				from, err := keys(o)
				h.must(err)
				it, ok := from.(*goja.Object)
				if !ok {
					h.throw("keys did not return an iterator")
				}
				next, ok := goja.AssertFunction(it.Get("next"))
				if !ok {
					h.throw("next is not a function")
				}
				steps := h.rt.NewObject()
				h.method(steps, "next", func(goja.FunctionCall) goja.Value {
					h.alive()
					v, err := next(it)
					h.must(err)
					return v
				})
				if end, ok := goja.AssertFunction(it.Get("return")); ok {
					h.method(steps, "return", func(goja.FunctionCall) goja.Value {
						v, err := end(it)
						h.must(err)
						return v
					})
				}
				return steps
			})))
			call.Arguments = withArgument(call.Arguments, 0, other)
			return call
		})
	}
}

func isNothing(v goja.Value) bool { return goja.IsUndefined(v) || goja.IsNull(v) }

// isPlain reports whether the engine still walks an array in its own way.
func (h *Handler) isPlain(v goja.Value) bool {
	o, ok := v.(*goja.Object)
	return ok && o.ClassName() == "Array" && o.Prototype() == h.arrays && len(o.Symbols()) == 0
}

// collect is what an iterable yields, at most so many values; -1: all.
func (h *Handler) collect(v goja.Value, most int) []any {
	if h.nested >= maxNested {
		h.throwError("RangeError", "more than %d functions of the engine within each other", maxNested)
	}
	h.nested++
	defer func() { h.nested-- }()
	h.alive()
	var items []any
	h.rt.ForOf(v, func(item goja.Value) bool {
		h.alive()
		if len(items) >= maxItems {
			h.throwError("RangeError", "an iterator of more than %d values is too long", maxItems)
		}
		items = append(items, item)
		return len(items) != most
	})
	return items
}

// list makes an array of the script's iterable, or of its array-like.
func (h *Handler) list(v goja.Value) goja.Value {
	o, ok := v.(*goja.Object)
	if !ok || !isNothing(orUndefined(o.GetSymbol(goja.SymIterator))) {
		if _, isText := v.(goja.String); ok || isText {
			return h.rt.NewArray(h.collect(v, -1)...)
		}
		return v
	}
	return h.copied(o)
}

// copied is an array of the elements of an array-like, whose length is asked for once.
func (h *Handler) copied(o *goja.Object) goja.Value {
	n := h.length(o)
	var items []any
	for i := range n {
		if i&0xff == 0 {
			h.alive()
		}
		items = append(items, orUndefined(h.index(o, i)))
	}
	return h.rt.NewArray(items...)
}

func orUndefined(v goja.Value) goja.Value {
	if v == nil {
		return goja.Undefined()
	}
	return v
}

// shaped is a value as a pattern may take it apart: what its rest elements take are
// arrays that nobody else has.
func (h *Handler) shaped(s *shape, v goja.Value) goja.Value {
	switch {
	case s == nil || isNothing(v):
		return v
	case s.keys == nil:
		most := s.n
		if s.rest {
			most = -1
		}
		items := h.collect(v, most)
		for i, inner := range s.items {
			if i < len(items) {
				items[i] = h.shaped(inner, items[i].(goja.Value))
			}
		}
		return h.rt.NewArray(items...)
	}
	o, view := v.ToObject(h.rt), h.rt.CreateObject(nil)
	set := func(name string) { h.must(view.Set(name, h.shaped(s.keys[name], orUndefined(o.Get(name))))) }
	for _, name := range s.names {
		set(name)
	}
	if !s.rest {
		return view
	}
	for _, name := range o.Keys() {
		if _, ok := s.keys[name]; !ok {
			set(name)
		}
	}
	for _, symbol := range o.Symbols() {
		counts, err := h.enumerable(o, symbol)
		if h.must(err); counts.ToBoolean() {
			h.must(view.SetSymbol(symbol, o.GetSymbol(symbol)))
		}
	}
	return view
}

// isBytes says whether an object is an ArrayBuffer or a typed array.
func isBytes(o *goja.Object) bool {
	t := o.ExportType()
	return t == reflect.TypeFor[goja.ArrayBuffer]() || t.Kind() == reflect.Slice && t.Elem().Kind() != reflect.Interface
}
