package script

import (
	"strings"

	"github.com/dop251/goja"
)

const (
	// maxMatches bounds what the engine does with an expression in one step: so many
	// characters, times the groups of the expression.
	maxMatches = 1 << 19
	// maxPattern bounds the text that an expression is made from.
	maxPattern = 20_000
)

// expressions are the functions of the engine that go through a text with an expression,
// and ours, which do so where the engine would be in a loop without end or too long.
type expressions struct {
	e         *engine
	iterables *iterables

	prototype *goja.Object
	class     *goja.Object
	intact    goja.Callable
	getters   []goja.Callable // of the flags, in the order of their letters
	flags     goja.Callable
	timed     bool // exec is ours
}

const flagLetters = "gimsuy"

// boundExpressions has what goes through a text with an expression bounded, if the
// script may have one.
func (x *expressions) boundExpressions() {
	texts := x.e.prototype("String")
	for _, name := range []string{"match", "matchAll", "search"} {
		x.e.bound(texts, name, x.checkFirst)
	}
	x.timed = x.e.o.ExecutionTimeout <= 0 || x.e.o.ExecutionTimeout > matchTimeout || x.e.o.CompileTimeout <= 0 || x.e.o.CompileTimeout > matchTimeout
	if x.timed {
		x.timeMatches()
	}
	if !x.iterables.expressions && !x.e.named("RegExp") && !reachesGlobal(x.e.source) {
		return
	}
	x.prototype = x.e.prototype("RegExp")
	builtin := map[*goja.Symbol]goja.Callable{}
	for _, symbol := range []*goja.Symbol{goja.SymMatch, goja.SymReplace, goja.SymSplit} {
		builtin[symbol], _ = goja.AssertFunction(x.prototype.GetSymbol(symbol))
	}
	ours := x.e.help("expressions", maxUnits, x.replaceOne(builtin[goja.SymReplace]))
	x.intact, _ = goja.AssertFunction(ours.Get("intact"))

	// The engine asks for flags and source by name: these are what they are.
	getters := ours.Get("getters").(*goja.Object)
	for i := range len(flagLetters) + 1 {
		fn, _ := goja.AssertFunction(x.e.index(getters, int64(i)))
		x.getters = append(x.getters, fn)
	}
	last := len(flagLetters)
	x.flags, x.getters = x.getters[last], x.getters[:last]
	x.e.must(x.prototype.DefineAccessorProperty("flags", x.e.function("get flags", x.flagsOf()), nil, goja.FLAG_FALSE, goja.FLAG_FALSE))
	x.e.must(x.prototype.DefineAccessorProperty("source", x.e.index(getters, int64(last+1)), nil, goja.FLAG_FALSE, goja.FLAG_FALSE))

	pattern := func(args []goja.Value) []goja.Value {
		for _, v := range args[:min(1, len(args))] {
			x.checkPattern(v)
		}
		return x.expandArguments(args)
	}
	x.e.replaceConstructor("RegExp", x.e.object("RegExp"), pattern)
	x.class = x.e.object("RegExp")
	x.e.bound(x.prototype, "compile", func(call goja.FunctionCall) goja.FunctionCall {
		x.checkPattern(call.Argument(0))
		call.Arguments = x.expandArguments(call.Arguments)
		return call
	})
	// What is derived has species of its own.
	x.e.must(x.class.DefineAccessorPropertySymbol(goja.SymSpecies, x.e.function("get [Symbol.species]", func(call goja.FunctionCall) goja.Value { return call.This }),
		nil, goja.FLAG_FALSE, goja.FLAG_FALSE))

	for symbol, name := range map[*goja.Symbol]string{goja.SymMatch: "match", goja.SymReplace: "replace", goja.SymSplit: "split"} {
		fn, _ := goja.AssertFunction(ours.Get(name))
		old := x.prototype.GetSymbol(symbol).(*goja.Object)
		method := x.e.function("[Symbol."+name+"]", x.going(symbol, builtin[symbol], fn))
		x.e.must(method.DefineDataProperty("length", old.Get("length"), goja.FLAG_FALSE, goja.FLAG_TRUE, goja.FLAG_FALSE))
		x.e.must(x.prototype.DefineDataPropertySymbol(symbol, method, goja.FLAG_TRUE, goja.FLAG_TRUE, goja.FLAG_FALSE))
	}
}

// going is a method of expressions that goes through a text: the engine's where that is
// sure to end soon, and else ours.
func (x *expressions) going(symbol *goja.Symbol, builtin, ours goja.Callable) native {
	return func(call goja.FunctionCall) goja.Value {
		o, ok := call.This.(*goja.Object)
		if !ok {
			x.e.throw("the method of an expression needs an object")
		}
		x.e.enter("")
		defer x.e.leave()
		text, with := call.Argument(0).ToString(), call.Argument(1)
		if symbol == goja.SymReplace {
			with = x.replacement(with)
		}
		plain := x.isPlainExpression(o)
		fits := plain && !x.timed && units(text)*(1+strings.Count(o.Get("source").String(), "(")) <= maxMatches
		if s, ok := with.(goja.String); ok && symbol == goja.SymReplace && units(text) > maxContext && strings.ContainsAny(s.String(), "`'") {
			fits = false // Each match may bring the whole text with it.
		}
		var v goja.Value
		var err error
		if fits {
			v, err = builtin(o, text, with)
		} else {
			v, err = ours(goja.Undefined(), o, text, with, x.e.rt.ToValue(plain))
		}
		x.e.must(err)
		return v
	}
}

// maxContext bounds a text in which each match may be replaced by the text before or after it.
const maxContext = 1000

// isPlainExpression says whether an expression is the engine's own in all that it does.
func (x *expressions) isPlainExpression(o *goja.Object) bool {
	if o.ClassName() != "RegExp" || o.Prototype() != x.prototype || len(o.GetOwnPropertyNames()) != 1 || x.prototype.Get("constructor") != x.class {
		return false
	}
	v, err := x.intact(goja.Undefined())
	x.e.must(err)
	return v.ToBoolean()
}

// flagsOf returns the flags that an expression has, even if the script redefines them.
func (x *expressions) flagsOf() native {
	return func(call goja.FunctionCall) goja.Value {
		if o, ok := call.This.(*goja.Object); !ok || o.ClassName() != "RegExp" {
			v, err := x.flags(call.This)
			x.e.must(err)
			return v
		}
		var flags []byte
		for i, get := range x.getters {
			v, err := get(call.This)
			x.e.must(err)
			if v.ToBoolean() {
				flags = append(flags, flagLetters[i])
			}
		}
		return x.e.rt.ToValue(string(flags))
	}
}

// replaceOne has the engine make what stands for one match.
func (x *expressions) replaceOne(replace goja.Callable) native {
	return func(call goja.FunctionCall) goja.Value {
		match := call.Argument(0).(*goja.Object)
		x.e.must(match.Set("index", call.Argument(1)))
		x.e.must(match.Set("groups", call.Argument(2)))
		of := x.e.rt.NewObject()
		x.e.must(of.Set("flags", ""))
		x.e.must(of.Set("exec", func(goja.FunctionCall) goja.Value { return match }))
		v, err := replace(of, call.Argument(3), call.Argument(4))
		x.e.must(err)
		return v
	}
}

// replacement is what matches are replaced by: a text, or a function whose texts together
// are bounded.
func (x *expressions) replacement(v goja.Value) goja.Value {
	fn, ok := goja.AssertFunction(v)
	if !ok {
		return v.ToString()
	}
	total := 0
	return x.e.rt.ToValue(func(call goja.FunctionCall) goja.Value {
		x.e.alive()
		v, err := fn(goja.Undefined(), call.Arguments...)
		x.e.must(err)
		text := v.ToString()
		total += units(text)
		x.e.checkUnits(float64(total))
		return text
	})
}

// checkFirst bounds the argument that an expression is made of.
func (x *expressions) checkFirst(call goja.FunctionCall) goja.FunctionCall {
	x.checkPattern(call.Argument(0))
	return call
}

// checkPattern bounds the text of an expression.
func (x *expressions) checkPattern(v goja.Value) {
	if n := units(v); n > maxPattern {
		x.e.throwError("RangeError", "an expression of %d characters is too long: at most %d", n, maxPattern)
	}
}
