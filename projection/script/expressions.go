package script

import (
	"strings"
	"sync"

	"github.com/dop251/goja"
)

const (
	// maxMatches bounds what the engine does with an expression in one step: so many
	// characters, times the groups of the expression.
	maxMatches = 1 << 19
	// maxPattern bounds the text that an expression is made from.
	maxPattern = 20_000
)

// expressionHelpers match, replace and split with expressions in JavaScript, one match
// after the other, so that interrupts are seen. The engine's own functions do all in a
// loop that calls the expression's exec, which a script can replace.
var expressionHelpers = sync.OnceValue(func() *goja.Program {
	return goja.MustCompile("helpers", `(function(most, replaceOne) {
	"use strict";
	const {apply} = Reflect, {getOwnPropertyDescriptor} = Object, {min, max, trunc} = Math, {substring, charCodeAt} = String.prototype, {join} = Array.prototype;
	const Expression = RegExp, prototype = RegExp.prototype, {species} = Symbol, Long = RangeError, Wrong = TypeError;
	const part = (s, a, b) => apply(substring, s, [a, b]);
	const has = (s, c) => {
		for (let i = 0; i < s.length; i++) if (s[i] === c) return true;
		return false;
	};
	const whole = v => (v = trunc(+v)) === v ? v : 0;
	const length = v => max(min(whole(v), 2 ** 53 - 1), 0);
	const pair = (s, i) => i + 1 < s.length && (apply(charCodeAt, s, [i]) & 0xfc00) === 0xd800 && (apply(charCodeAt, s, [i + 1]) & 0xfc00) === 0xdc00;
	const advance = (s, i, unicode) => i + (unicode && pair(s, i) ? 2 : 1);
	const exec = (r, s) => {
		const m = r.exec(s);
		if (m !== null && typeof m !== "object" && typeof m !== "function") throw new Wrong("exec returned something other than an object or null");
		return m;
	};
	const all = (r, s, flags, take) => {
		const list = [], unicode = has(flags, "u");
		r.lastIndex = 0;
		for (;;) {
			const m = exec(r, s);
			if (m === null) return list;
			const text = `+"`${m[0]}`"+`;
			list[list.length] = take ? text : m;
			if (text === "") r.lastIndex = advance(s, length(r.lastIndex), unicode);
		}
	};
	const classOf = r => {
		let c = r.constructor;
		if (c === undefined) return Expression;
		if (c === null || typeof c !== "object" && typeof c !== "function") throw new Wrong("constructor is not an object");
		c = c[species];
		return c === undefined || c === null ? Expression : c;
	};
	const exact = (f, c) => f.get === c.get && f.value === c.value;
	const getters = [];
	for (const name of ["global", "ignoreCase", "multiline", "dotAll", "unicode", "sticky", "flags", "source"]) getters[getters.length] = getOwnPropertyDescriptor(prototype, name).get;
	const first = getOwnPropertyDescriptor(prototype, "exec");
	return {
		getters,
		intact: () => {
			const d = getOwnPropertyDescriptor(prototype, "exec");
			return d !== undefined && exact(d, first);
		},
		match: (r, s) => {
			const flags = `+"`${r.flags}`"+`;
			if (!has(flags, "g")) return exec(r, s);
			const list = all(r, s, flags, true);
			return list.length ? list : null;
		},
		replace: (r, s, by) => {
			const flags = `+"`${r.flags}`"+`;
			let list = [];
			if (has(flags, "g")) list = all(r, s, flags, false);
			else {
				const m = exec(r, s);
				if (m !== null) list[0] = m;
			}
			const calls = typeof by === "function", context = !calls && (has(by, "\x60") || has(by, "'"));
			const pieces = [], plain = !calls && !has(by, "$");
			let size = 0, next = 0;
			for (let i = 0; i < list.length; i++) {
				const m = list[i], n = length(m.length), found = `+"`${m[0]}`"+`;
				const at = max(min(whole(m.index), s.length), 0), end = at + found.length, one = [found];
				for (let k = 1; k < n; k++) {
					const c = m[k];
					one[k] = c === undefined ? c : `+"`${c}`"+`;
				}
				const {groups} = m;
				let to;
				if (calls) {
					one[one.length] = at;
					one[one.length] = s;
					if (groups !== undefined) one[one.length] = groups;
					to = `+"`${apply(by, undefined, one)}`"+`;
				} else if (plain) to = by;
				else if (context) {
					to = replaceOne(one, at, groups, s, by);
					to = part(to, at, to.length - max(s.length - end, 0));
				} else to = replaceOne(one, 0, groups, found, by);
				if (at >= next) {
					pieces[pieces.length] = part(s, next, at);
					pieces[pieces.length] = to;
					size += at - next + to.length;
					next = end;
				}
				if (size > most) throw new Long("the text that replacements make is too long: more than " + most + " characters");
			}
			if (next < s.length) pieces[pieces.length] = part(s, next, s.length);
			return apply(join, pieces, [""]);
		},
		split: (r, s, limit, plain) => {
			const flags = `+"`${r.flags}`"+`, unicode = has(flags, "u"), list = [];
			let t, plainly = "g";
			for (let i = 0; i < flags.length; i++) if (flags[i] !== "g" && flags[i] !== "y") plainly += flags[i];
			if (plain) t = new Expression(r, plainly);
			else t = new (classOf(r))(r, has(flags, "y") ? flags : flags + "y");
			const size = s.length, count = limit === undefined ? 2 ** 32 - 1 : limit >>> 0;
			if (count === 0) return list;
			if (size === 0) return exec(t, s) === null ? [s] : list;
			let p = 0, q = 0;
			while (q < size) {
				t.lastIndex = q;
				const m = exec(t, s);
				if (plain) {
					if (m === null || m.index >= size) break;
					q = m.index;
				}
				const e = m === null ? p : min(length(t.lastIndex), size);
				if (e === p) {
					q = advance(s, q, unicode);
					continue;
				}
				list[list.length] = part(s, p, q);
				if (list.length === count) return list;
				p = e;
				for (let i = 1, n = length(m.length); i < n; i++) {
					list[list.length] = m[i];
					if (list.length === count) return list;
				}
				q = p;
			}
			list[list.length] = part(s, p, size);
			return list;
		},
	};
})`, true)
})

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
	v, err := x.e.rt.RunProgram(expressionHelpers())
	x.e.must(err)
	begin, _ := goja.AssertFunction(v)
	v, err = begin(goja.Undefined(), x.e.rt.ToValue(maxUnits), x.e.rt.ToValue(x.replaceOne(builtin[goja.SymReplace])))
	x.e.must(err)
	ours := v.(*goja.Object)
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
