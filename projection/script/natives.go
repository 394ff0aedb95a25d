package script

import (
	"math"
	"strings"

	"github.com/dop251/goja"
)

// checked puts a check in front of a method.
func (e *engine) checked(o *goja.Object, name string, check func(goja.FunctionCall)) {
	e.changed(o, name, func(call goja.FunctionCall) goja.FunctionCall {
		check(call)
		return call
	})
}

// bound is as changed. A method that the script does not name is taken away instead: a check costs
// a kilobyte.
func (e *engine) bound(o *goja.Object, name string, change func(goja.FunctionCall) goja.FunctionCall) {
	if e.named(name) {
		e.changed(o, name, change)
	} else {
		e.must(o.Delete(name))
	}
}

// changed puts a check in front of a method that may give it something else to work on.
func (e *engine) changed(o *goja.Object, name string, change func(goja.FunctionCall) goja.FunctionCall) {
	old, ok := o.Get(name).(*goja.Object)
	if !ok {
		return
	}
	fn, _ := goja.AssertFunction(old)
	where := name + ": "
	e.method(o, name, func(call goja.FunctionCall) goja.Value {
		e.enter(where)
		defer e.leave()
		this := call.This
		call = change(call)
		v, err := fn(call.This, call.Arguments...)
		e.must(err)
		if o, ok := v.(*goja.Object); ok && o.SameAs(call.This) {
			return this
		}
		return v
	})
	e.must(o.Get(name).(*goja.Object).DefineDataProperty("length", old.Get("length"), goja.FLAG_FALSE, goja.FLAG_TRUE, goja.FLAG_FALSE))
}

// enter and leave count functions of ours that bound others. where is the beginning of the text of
// an error.
func (e *engine) enter(where string) {
	if e.nested >= maxNested {
		e.throwError("RangeError", "%smore than %d functions of the engine within each other", where, maxNested)
	}
	e.alive()
	e.nested++
}

func (e *engine) leave() { e.nested-- }

// length is that of an array, or of what is used as one.
func (e *engine) length(v goja.Value) int64 {
	o, ok := v.(*goja.Object)
	if !ok {
		return 0
	}
	length := o.Get("length")
	if length == nil {
		return 0
	}
	n := length.ToFloat()
	if n > maxItems {
		e.throwError("RangeError", "an array of %.0f elements is too long: at most %d can be worked on", n, maxItems)
	}
	if math.IsNaN(n) {
		return 0
	}
	return int64(n)
}

// measured is what a method of arrays works on: an array, or another object with the
// length that it has now. A getter might say another one the next time.
func (e *engine) measured(v goja.Value) goja.Value {
	o, ok := v.(*goja.Object)
	if !ok || o.ClassName() == "Array" || isBytes(o) {
		e.length(v)
		return v
	}
	n := e.rt.ToValue(e.length(o))
	return e.rt.ToValue(e.rt.NewProxy(o, &goja.ProxyTrapConfig{
		Get: func(o *goja.Object, name string, _ goja.Value) goja.Value {
			if name == "length" {
				return n
			}
			return o.Get(name)
		},
		GetSym: func(o *goja.Object, name *goja.Symbol, _ goja.Value) goja.Value { return o.GetSymbol(name) },
	}))
}

func (e *engine) checkUnits(n float64) {
	if n > maxUnits {
		e.throwError("RangeError", "a text of %.0f characters is too long: at most %d can be made", n, maxUnits)
	}
}

// interruptible has a function of the engine, which sees no interrupt, look for one: it
// may be slow, and be called for each of many elements.
func (e *engine) interruptible(args []goja.Value, i int) []goja.Value {
	if i >= len(args) {
		return args
	}
	fn, ok := goja.AssertFunction(args[i])
	if !ok || !e.isNative(args[i]) {
		return args
	}
	return withArgument(args, i, e.rt.ToValue(func(call goja.FunctionCall) goja.Value {
		e.alive()
		v, err := fn(call.This, call.Arguments...)
		e.must(err)
		return v
	}))
}

// isNative says whether a function has no text in the script.
func (e *engine) isNative(v goja.Value) bool {
	text, err := e.textOf(v)
	return err != nil || strings.Contains(text.String(), "[native code]")
}

// boundCallbacks has methods look for interrupts when what they call does not.
func (e *engine) boundCallbacks(o *goja.Object, names string, i int) {
	for name := range strings.FieldsSeq(names) {
		e.bound(o, name, func(call goja.FunctionCall) goja.FunctionCall {
			call.Arguments = e.interruptible(call.Arguments, i)
			return call
		})
	}
}

// replaceConstructor puts a constructor in the place of another one, which checks what it is
// given and may change it.
func (e *engine) replaceConstructor(name string, class *goja.Object, change func([]goja.Value) []goja.Value) {
	construct, _ := goja.AssertConstructor(class)
	replaced := e.rt.ToValue(func(call goja.ConstructorCall) *goja.Object {
		e.alive()
		o, err := construct(call.NewTarget, change(call.Arguments)...)
		e.must(err)
		return o
	}).(*goja.Object)
	e.replaceClass(name, class, replaced)
}

// replaceClass puts one in the place of another. That one is nowhere to be found, so it
// has the properties itself.
func (e *engine) replaceClass(name string, class, by *goja.Object) {
	prototype := class.Get("prototype").(*goja.Object)
	e.must(by.DefineDataProperty("name", e.rt.ToValue(name), goja.FLAG_FALSE, goja.FLAG_TRUE, goja.FLAG_FALSE))
	e.must(by.DefineDataProperty("prototype", prototype, goja.FLAG_FALSE, goja.FLAG_FALSE, goja.FLAG_FALSE))
	for _, name := range class.GetOwnPropertyNames() {
		if name != "name" && name != "length" && name != "prototype" {
			e.must(by.DefineDataProperty(name, class.Get(name), goja.FLAG_TRUE, goja.FLAG_TRUE, goja.FLAG_FALSE))
		}
	}
	if class.GetSymbol(goja.SymSpecies) != nil {
		e.must(by.DefineAccessorPropertySymbol(goja.SymSpecies, e.function("get [Symbol.species]", func(call goja.FunctionCall) goja.Value { return call.This }),
			nil, goja.FLAG_TRUE, goja.FLAG_FALSE))
	}
	e.must(by.SetPrototype(class.Prototype()))
	e.must(prototype.DefineDataProperty("constructor", by, goja.FLAG_TRUE, goja.FLAG_TRUE, goja.FLAG_FALSE))
	e.must(e.rt.GlobalObject().DefineDataProperty(name, by, goja.FLAG_TRUE, goja.FLAG_TRUE, goja.FLAG_FALSE))
}
