package script

import (
	"encoding/json"
	"reflect"
	"slices"
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
	e         *engine
	codec     *codec
	iterables *iterables   // how the script goes through them
	arrays    *goja.Object // Array.prototype
	locked    bool         // nothing changes how arrays are walked
	helpers   *goja.Object
}

// begin makes the helpers, before the script can change what they are made of. They cost 25 KB: a
// script that has no use for them has none.
func (l *lists) begin() {
	uses := strings.Fields("AggregateError Array Map Promise Set WeakMap WeakSet apply async concat construct flat from fromEntries raw")
	if !l.iterables.spreads && !l.iterables.scopes && len(l.iterables.shapes) == 0 && !slices.ContainsFunc(uses, l.e.named) && !reachesGlobal(l.e.source) {
		return
	}
	length := func(call goja.FunctionCall) goja.Value { return l.e.rt.ToValue(l.e.length(call.Argument(0))) }
	l.helpers = l.e.help("lists", maxItems, maxNested, length)
}

// help calls a helper of lists.
func (l *lists) help(name string, args ...goja.Value) goja.Value {
	fn, _ := goja.AssertFunction(l.helpers.Get(name))
	v, err := fn(goja.Undefined(), args...)
	l.e.must(err)
	return v
}

// boundIterables has what goes through iterables collect them before.
func (l *lists) boundIterables() {
	named, reachable := l.e.named, reachesGlobal(l.e.source)
	if l.iterables.spreads {
		l.lockArrays()
		all := l.e.rt.ToValue(-1)
		l.e.hidden(spreadName, func(call goja.FunctionCall) goja.Value {
			if l.isPlain(call.Argument(0)) {
				return call.Argument(0)
			}
			return l.help("collect", call.Argument(0), all)
		})
	}
	if len(l.iterables.shapes) > 0 {
		l.lockArrays()
		text, err := json.Marshal(l.iterables.shapes)
		l.e.must(err)
		shapes := l.codec.read(text).(*goja.Object)
		l.e.hidden(patternName, func(call goja.FunctionCall) goja.Value {
			n, v := call.Argument(0).ToInteger(), call.Argument(1)
			if l.iterables.shapes[n].isFlat() && l.isPlain(v) {
				return v
			}
			return l.help("shaped", l.e.index(shapes, n), v)
		})
	}
	if l.iterables.scopes {
		l.e.hidden(scopeName, func(call goja.FunctionCall) goja.Value { return l.help("scope", call.Argument(0)) })
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
	return withArgument(args, 0, l.help("list", args[0]))
}

// boundSets has the methods of sets that take another set look at the interrupt: they
// walk what its keys method returns.
func (l *lists) boundSets() {
	sets := l.e.prototype("Set")
	for name := range strings.FieldsSeq("union intersection difference symmetricDifference isSubsetOf isSupersetOf isDisjointFrom") {
		l.e.bound(sets, name, func(call goja.FunctionCall) goja.FunctionCall {
			call.Arguments = withArgument(call.Arguments, 0, l.help("other", call.Argument(0)))
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

func orUndefined(v goja.Value) goja.Value {
	if v == nil {
		return goja.Undefined()
	}
	return v
}

// isBytes says whether an object is an ArrayBuffer or a typed array.
func isBytes(o *goja.Object) bool {
	t := o.ExportType()
	return t == reflect.TypeFor[goja.ArrayBuffer]() || t.Kind() == reflect.Slice && t.Elem().Kind() != reflect.Interface
}
