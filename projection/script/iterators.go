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

// lists makes arrays of iterables.
type lists struct {
	e          *engine
	iterables  *iterables    // how the script goes through them
	arrays     *goja.Object  // Array.prototype
	enumerable goja.Callable // Object.prototype.propertyIsEnumerable
	has        goja.Callable // Reflect.has
	locked     bool          // nothing changes how arrays are walked
}

// boundIterables has what goes through iterables collect them before.
func (l *lists) boundIterables() {
	named, reachable := l.e.named, reachesGlobal(l.e.source)
	if l.iterables.spreads {
		l.lockArrays()
		l.e.hidden(spreadName, func(call goja.FunctionCall) goja.Value {
			if l.isPlain(call.Argument(0)) {
				return call.Argument(0)
			}
			return l.e.rt.NewArray(l.collect(call.Argument(0), -1)...)
		})
	}
	if len(l.iterables.shapes) > 0 {
		l.lockArrays()
		l.enumerable, _ = goja.AssertFunction(l.e.objects.Get("propertyIsEnumerable"))
		l.e.hidden(patternName, func(call goja.FunctionCall) goja.Value {
			s, v := l.iterables.shapes[call.Argument(0).ToInteger()], call.Argument(1)
			if s.isFlat() && l.isPlain(v) {
				return v
			}
			return l.shaped(s, v)
		})
	}
	if l.iterables.scopes {
		l.has, _ = goja.AssertFunction(l.e.object("Reflect").Get("has"))
		l.e.hidden(scopeName, l.scope)
	}

	l.listed(l.e.object("Array"), "from")
	l.listed(l.e.object("Object"), "fromEntries")
	if named("Promise") || named("async") || reachable {
		for _, name := range []string{"all", "allSettled", "any", "race"} {
			l.listed(l.e.object("Promise"), name)
		}
	}
	global := l.e.rt.GlobalObject()
	for _, name := range []string{"Map", "Set", "WeakMap", "WeakSet", "AggregateError"} {
		if !named(name) {
			if reachable {
				l.e.must(global.Delete(name))
			}
			continue
		}
		l.lockArrays()
		class := l.e.object(name)
		if name == "Set" {
			l.boundSets()
		}
		if name == "Set" || name == "Map" {
			l.e.boundCallbacks(l.e.prototype(name), "forEach", 0)
		}
		l.e.replaceConstructor(name, class, l.listArgument)
	}
}

// lockArrays makes the way in which arrays are walked last. One array, or a class of them,
// may still be given another one: a property that is only read would not let that be.
func (l *lists) lockArrays() {
	if l.locked {
		return
	}
	l.locked = true
	values := l.arrays.GetSymbol(goja.SymIterator)
	get := l.e.function("get [Symbol.iterator]", func(goja.FunctionCall) goja.Value { return values })
	set := l.e.function("set [Symbol.iterator]", func(call goja.FunctionCall) goja.Value {
		o, ok := call.This.(*goja.Object)
		if !ok || o == l.arrays {
			l.e.throw("how arrays are walked cannot be changed")
		}
		l.e.must(o.DefineDataPropertySymbol(goja.SymIterator, call.Argument(0), goja.FLAG_TRUE, goja.FLAG_TRUE, goja.FLAG_TRUE))
		return goja.Undefined()
	})
	l.e.must(l.arrays.DefineAccessorPropertySymbol(goja.SymIterator, get, set, goja.FLAG_FALSE, goja.FLAG_FALSE))
	walk, _ := goja.AssertFunction(values)
	iterator, err := walk(l.e.rt.NewArray())
	l.e.must(err)
	steps := iterator.(*goja.Object).Prototype()
	l.e.must(steps.DefineDataProperty("next", steps.Get("next"), goja.FLAG_FALSE, goja.FLAG_FALSE, goja.FLAG_FALSE))
}

// scope is what a with statement puts in scope: names of ours are not looked up in it.
func (l *lists) scope(call goja.FunctionCall) goja.Value {
	return l.e.rt.ToValue(l.e.rt.NewProxy(call.Argument(0).ToObject(l.e.rt), &goja.ProxyTrapConfig{Has: func(o *goja.Object, name string) bool {
		if strings.HasPrefix(name, "\x00") {
			return false
		}
		has, err := l.has(goja.Undefined(), o, l.e.rt.ToValue(name))
		l.e.must(err)
		return has.ToBoolean()
	}}))
}

// listed has a method collect its first argument.
func (l *lists) listed(o *goja.Object, name string) {
	if l.e.named(name) {
		l.lockArrays()
	}
	l.e.bound(o, name, func(call goja.FunctionCall) goja.FunctionCall {
		call.Arguments = l.e.interruptible(l.listArgument(call.Arguments), 1)
		return call
	})
}

func (l *lists) listArgument(args []goja.Value) []goja.Value {
	if len(args) == 0 || isNothing(args[0]) {
		return args
	}
	return withArgument(args, 0, l.list(args[0]))
}

// boundSets has the methods of sets that take another set look at the interrupt: they
// walk what its keys method returns.
func (l *lists) boundSets() {
	sets := l.e.prototype("Set")
	for name := range strings.FieldsSeq("union intersection difference symmetricDifference isSubsetOf isSupersetOf isDisjointFrom") {
		l.e.bound(sets, name, func(call goja.FunctionCall) goja.FunctionCall {
			o, ok := call.Argument(0).(*goja.Object)
			if !ok {
				return call
			}
			keys, ok := goja.AssertFunction(o.Get("keys"))
			if !ok {
				return call
			}
			has, size := o.Get("has"), o.Get("size")
			other := l.e.rt.NewObject()
			l.e.must(other.Set("size", size))
			l.e.must(other.Set("has", l.e.function("has", func(call goja.FunctionCall) goja.Value {
				l.e.alive()
				fn, ok := goja.AssertFunction(has)
				if !ok {
					l.e.throw("has is not a function")
				}
				v, err := fn(o, call.Arguments...)
				l.e.must(err)
				return v
			})))
			l.e.must(other.Set("keys", l.e.function("keys", func(goja.FunctionCall) goja.Value {
				// An iterator is walked as it is: the methods end before its end.
				from, err := keys(o)
				l.e.must(err)
				it, ok := from.(*goja.Object)
				if !ok {
					l.e.throw("keys did not return an iterator")
				}
				next, ok := goja.AssertFunction(it.Get("next"))
				if !ok {
					l.e.throw("next is not a function")
				}
				steps := l.e.rt.NewObject()
				l.e.method(steps, "next", func(goja.FunctionCall) goja.Value {
					l.e.alive()
					v, err := next(it)
					l.e.must(err)
					return v
				})
				if end, ok := goja.AssertFunction(it.Get("return")); ok {
					l.e.method(steps, "return", func(goja.FunctionCall) goja.Value {
						v, err := end(it)
						l.e.must(err)
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
func (l *lists) isPlain(v goja.Value) bool {
	o, ok := v.(*goja.Object)
	return ok && o.ClassName() == "Array" && o.Prototype() == l.arrays && len(o.Symbols()) == 0
}

// collect is what an iterable yields, at most so many values; -1: all.
func (l *lists) collect(v goja.Value, most int) []any {
	l.e.enter("")
	defer l.e.leave()
	var items []any
	l.e.rt.ForOf(v, func(item goja.Value) bool {
		l.e.alive()
		if len(items) >= maxItems {
			l.e.throwError("RangeError", "an iterator of more than %d values is too long", maxItems)
		}
		items = append(items, item)
		return len(items) != most
	})
	return items
}

// list makes an array of the script's iterable, or of its array-like.
func (l *lists) list(v goja.Value) goja.Value {
	o, ok := v.(*goja.Object)
	if !ok || !isNothing(orUndefined(o.GetSymbol(goja.SymIterator))) {
		if _, isText := v.(goja.String); ok || isText {
			return l.e.rt.NewArray(l.collect(v, -1)...)
		}
		return v
	}
	return l.copied(o)
}

// copied is an array of the elements of an array-like, whose length is asked for once.
func (l *lists) copied(o *goja.Object) goja.Value {
	n := l.e.length(o)
	var items []any
	for i := range n {
		if i&0xff == 0 {
			l.e.alive()
		}
		items = append(items, orUndefined(l.e.index(o, i)))
	}
	return l.e.rt.NewArray(items...)
}

func orUndefined(v goja.Value) goja.Value {
	if v == nil {
		return goja.Undefined()
	}
	return v
}

// shaped is a value as a pattern may take it apart: its rest elements get arrays that nothing else
// uses.
func (l *lists) shaped(s *shape, v goja.Value) goja.Value {
	switch {
	case s == nil || isNothing(v):
		return v
	case s.keys == nil:
		most := s.n
		if s.rest {
			most = -1
		}
		items := l.collect(v, most)
		for i, inner := range s.items {
			if i < len(items) {
				items[i] = l.shaped(inner, items[i].(goja.Value))
			}
		}
		return l.e.rt.NewArray(items...)
	}
	o, view := v.ToObject(l.e.rt), l.e.rt.CreateObject(nil)
	set := func(name string) { l.e.must(view.Set(name, l.shaped(s.keys[name], orUndefined(o.Get(name))))) }
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
		counts, err := l.enumerable(o, symbol)
		if l.e.must(err); counts.ToBoolean() {
			l.e.must(view.SetSymbol(symbol, o.GetSymbol(symbol)))
		}
	}
	return view
}

// isBytes says whether an object is an ArrayBuffer or a typed array.
func isBytes(o *goja.Object) bool {
	t := o.ExportType()
	return t == reflect.TypeFor[goja.ArrayBuffer]() || t.Kind() == reflect.Slice && t.Elem().Kind() != reflect.Interface
}
