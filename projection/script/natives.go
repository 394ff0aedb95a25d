package script

import (
	"math"
	"strings"

	"github.com/dop251/goja"
)

// natives puts bounded functions in the place of those of the engine, which see no interrupt.
type natives struct {
	e      *engine
	textOf goja.Callable // Function.prototype.toString
}

// checked puts a check in front of a method.
func (na *natives) checked(o *goja.Object, name string, check func(goja.FunctionCall)) {
	na.changed(o, name, func(call goja.FunctionCall) goja.FunctionCall {
		check(call)
		return call
	})
}

// changed puts a check in front of a method that may give it something else to work on.
func (na *natives) changed(o *goja.Object, name string, change func(goja.FunctionCall) goja.FunctionCall) {
	old, ok := o.Get(name).(*goja.Object)
	if !ok {
		return
	}
	fn, _ := goja.AssertFunction(old)
	na.e.method(o, name, func(call goja.FunctionCall) goja.Value {
		if na.e.nested >= maxNested {
			na.e.throwError("RangeError", "%s: more than %d functions of the engine within each other", name, maxNested)
		}
		na.e.nested++
		defer func() { na.e.nested-- }()
		na.e.alive()
		this := call.This
		call = change(call)
		v, err := fn(call.This, call.Arguments...)
		na.e.must(err)
		if o, ok := v.(*goja.Object); ok && o.SameAs(call.This) {
			return this
		}
		return v
	})
	na.e.must(o.Get(name).(*goja.Object).DefineDataProperty("length", old.Get("length"), goja.FLAG_FALSE, goja.FLAG_TRUE, goja.FLAG_FALSE))
}

// length is that of an array, or of what is used as one.
func (na *natives) length(v goja.Value) int64 {
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
		na.e.throwError("RangeError", "an array of %.0f elements is too long: at most %d can be worked on", n, maxItems)
	}
	if math.IsNaN(n) {
		return 0
	}
	return int64(n)
}

// measured is what a method of arrays works on: an array, or another object with the
// length that it has now. A getter might say another one the next time.
func (na *natives) measured(v goja.Value) goja.Value {
	o, ok := v.(*goja.Object)
	if !ok || o.ClassName() == "Array" || isBytes(o) {
		na.length(v)
		return v
	}
	n := na.e.rt.ToValue(na.length(o))
	return na.e.rt.ToValue(na.e.rt.NewProxy(o, &goja.ProxyTrapConfig{
		Get: func(o *goja.Object, name string, _ goja.Value) goja.Value {
			if name == "length" {
				return n
			}
			return o.Get(name)
		},
		GetSym: func(o *goja.Object, name *goja.Symbol, _ goja.Value) goja.Value { return o.GetSymbol(name) },
	}))
}

func (na *natives) checkUnits(n float64) {
	if n > maxUnits {
		na.e.throwError("RangeError", "a text of %.0f characters is too long: at most %d can be made", n, maxUnits)
	}
}

// interruptible has a function of the engine, which sees no interrupt, look for one: it
// may be slow, and be called for each of many elements.
func (na *natives) interruptible(args []goja.Value, i int) []goja.Value {
	if i >= len(args) {
		return args
	}
	fn, ok := goja.AssertFunction(args[i])
	if !ok || !na.isNative(args[i]) {
		return args
	}
	return withArgument(args, i, na.e.rt.ToValue(func(call goja.FunctionCall) goja.Value {
		na.e.alive()
		v, err := fn(call.This, call.Arguments...)
		na.e.must(err)
		return v
	}))
}

// knowTexts makes isNative ready, before the script can change what it asks.
func (na *natives) knowTexts() {
	if na.textOf == nil {
		na.textOf, _ = goja.AssertFunction(na.e.prototype("Function").Get("toString"))
	}
}

// isNative says whether a function has no text in the script.
func (na *natives) isNative(v goja.Value) bool {
	text, err := na.textOf(v)
	return err != nil || strings.Contains(text.String(), "[native code]")
}

// boundCallbacks has methods look for interrupts when what they call does not.
func (na *natives) boundCallbacks(o *goja.Object, names string, i int, named func(string) bool) {
	for name := range strings.FieldsSeq(names) {
		if !named(name) {
			na.e.must(o.Delete(name))
			continue
		}
		na.knowTexts()
		na.changed(o, name, func(call goja.FunctionCall) goja.FunctionCall {
			call.Arguments = na.interruptible(call.Arguments, i)
			return call
		})
	}
}

// replaceConstructor puts a constructor in the place of another one, which checks what it is
// given and may change it.
func (na *natives) replaceConstructor(name string, class *goja.Object, change func([]goja.Value) []goja.Value) {
	construct, _ := goja.AssertConstructor(class)
	replaced := na.e.rt.ToValue(func(call goja.ConstructorCall) *goja.Object {
		na.e.alive()
		o, err := construct(call.NewTarget, change(call.Arguments)...)
		na.e.must(err)
		return o
	}).(*goja.Object)
	na.replaceClass(name, class, replaced)
}

// replaceClass puts one in the place of another. That one is nowhere to be found, so it
// has the properties itself.
func (na *natives) replaceClass(name string, class, by *goja.Object) {
	prototype := class.Get("prototype").(*goja.Object)
	na.e.must(by.DefineDataProperty("name", na.e.rt.ToValue(name), goja.FLAG_FALSE, goja.FLAG_TRUE, goja.FLAG_FALSE))
	na.e.must(by.DefineDataProperty("prototype", prototype, goja.FLAG_FALSE, goja.FLAG_FALSE, goja.FLAG_FALSE))
	for _, name := range class.GetOwnPropertyNames() {
		if name != "name" && name != "length" && name != "prototype" {
			na.e.must(by.DefineDataProperty(name, class.Get(name), goja.FLAG_TRUE, goja.FLAG_TRUE, goja.FLAG_FALSE))
		}
	}
	if class.GetSymbol(goja.SymSpecies) != nil {
		na.e.must(by.DefineAccessorPropertySymbol(goja.SymSpecies, na.e.function("get [Symbol.species]", func(call goja.FunctionCall) goja.Value { return call.This }),
			nil, goja.FLAG_TRUE, goja.FLAG_FALSE))
	}
	na.e.must(by.SetPrototype(class.Prototype()))
	na.e.must(prototype.DefineDataProperty("constructor", by, goja.FLAG_TRUE, goja.FLAG_TRUE, goja.FLAG_FALSE))
	na.e.must(na.e.rt.GlobalObject().DefineDataProperty(name, by, goja.FLAG_TRUE, goja.FLAG_TRUE, goja.FLAG_FALSE))
}
