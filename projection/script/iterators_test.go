package script_test

import (
	"math/rand/v2"
	"runtime"
	"strings"
	"testing"
	"time"

	"github.com/dop251/goja"

	"github.com/annalsdb/annals/internal/check"
	"github.com/annalsdb/annals/internal/testkit"
	"github.com/annalsdb/annals/projection/script"
)

// endless are ways to have the engine go through an iterator that never ends. Nothing in
// it is a function of the script, so that the engine runs nothing that could be interrupted.
var endless = []struct{ name, body string }{
	{"spread", `[...it]`},
	{"spread into a call", `Math.max(...it)`},
	{"spread into an optional call", `Math.max?.(...it)`},
	{"spread into a method", `[].push(1, ...it)`},
	{"spread into new", `new Date(...it)`},
	{"spread into super", `new (class extends Date { constructor() { super(...it) } })`},
	{"spread within a template", "`${[...it]}`"},
	{"spread of a generator that delegates", `[...(function*() { yield* it })()]`},
	{"spread by a getter that differs", `let n = 0; [...{get [Symbol.iterator]() { return n++ ? Array.prototype.values : it[Symbol.iterator] }}]`},
	{"spread of an array with its own iterator", `const a = [1]; a[Symbol.iterator] = it[Symbol.iterator]; [...a]`},
	{"spread of an array of another kind", `class A extends Array {}; A.prototype[Symbol.iterator] = it[Symbol.iterator]; [...new A(1)]`},
	{"spread of an array with another prototype", `[...Object.setPrototypeOf([1], it)]`},
	{"spread of a proxy", `[...new Proxy([1], {get: (o, k) => k === Symbol.iterator ? it[Symbol.iterator] : o[k]})]`},
	{"spread of a proxied iterator", `[...{[Symbol.iterator]: () => new Proxy({}, {get: () => Object})}]`},
	{"spread of a text", `String.prototype[Symbol.iterator] = it[Symbol.iterator]; [...'a']`},
	{"spread of arguments", `(function() { arguments[Symbol.iterator] = it[Symbol.iterator]; return [...arguments] })(1)`},
	{"spread of a set", `Set.prototype[Symbol.iterator] = it[Symbol.iterator]; [...new Set()]`},
	{"spread of a set that grows", `const s = new Set([1]), step = s.values().__proto__; const next = step.next; step.next = Object; [...s]`},
	{"spread in a scope of its own", `with ({'\x00spread': x => x}) { [...it] }`},
	{"spread in a scope that says all", `with (new Proxy({}, {has: (o, k) => k !== 'it' && k !== 'Object', get: (o, k) => k === Symbol.unscopables ? undefined : x => x})) { [...it] }`},
	{"rest in a scope of its own", `with ({'\x00pattern': (n, x) => x}) { const [...a] = it }`},
	{"spread by a guard that was replaced", `globalThis['\x00spread'] = x => x; [...it]`},
	{"spread by a guard that was taken away", `delete globalThis['\x00spread']; try { Object.defineProperty(globalThis, '\x00spread', {value: x => x}) } catch {} [...it]`},
	{"rest", `const [a, ...b] = it`},
	{"rest of var", `var [...b] = it`},
	{"rest assigned", `let b; [...b] = it`},
	{"rest of a default", `const [[...b] = it] = []`},
	{"rest of a property's default", `const {a: [...b] = it} = {}`},
	{"rest in a property", `const {a: {b: [...c]}} = {a: {b: it}}`},
	{"rest in a property with the rest", `const {a: [...c], ...d} = {a: it, x: 1}`},
	{"rest in an element", `const [, [a, ...b]] = [1, it]`},
	{"rest in the rest", `const [...[, [a, ...b]]] = [1, it]`},
	{"rest in an element, made meanwhile", `const a = [1]; const [b = a[Symbol.iterator] = it[Symbol.iterator], [...c]] = [undefined, a]; [...a]`},
	{"rest of a parameter", `(([a, ...b]) => b)(it)`},
	{"rest of a parameter with a default", `(function([...b] = it) {})()`},
	{"rest of a later parameter", `(function(x, {a: [...b]}, c = b) {})(1, {a: it})`},
	{"rest of rest parameters", `((...[[...b]]) => b)(it)`},
	{"rest of a method", `({m([...b]) {}}).m(it)`},
	{"rest of a setter", `({set m([...b]) {}}).m = it`},
	{"rest of a constructor", `new (class { constructor([...b]) {} })(it)`},
	{"rest of a generator", `(function*([...b]) {})(it).next()`},
	{"rest in for", `for (let [...b] = it;;) break`},
	{"rest in for of", `for (const [...b] of [it]) {}`},
	{"rest in for of var", `for (var [...b] of [it]) {}`},
	{"rest assigned in for of", `let b; for ([...b] of [it]) {}`},
	{"rest in for in", `String.prototype[Symbol.iterator] = it[Symbol.iterator]; for (const [...b] in {a: 1}) {}`},
	{"rest in catch", `try { throw it } catch ([...b]) {}`},
	{"Map", `new Map({[Symbol.iterator]: () => ({next: Array.bind(null, [])})}); new Map({[Symbol.iterator]: () => ({next: Object.bind(null, {value: []})})})`},
	{"Set", `new Set(it)`},
	{"Set of an array", `try { Array.prototype[Symbol.iterator] = it[Symbol.iterator] } catch {} new Set([1]); new Set(it)`},
	{"Set with an array that changes meanwhile", `const a = [1]; Object.defineProperty(Set.prototype, 'add', {get() { a[Symbol.iterator] = it[Symbol.iterator]; return Object }}); new Set(a); new Set(it)`},
	{"WeakMap", `new WeakMap({[Symbol.iterator]: () => ({next: Object.bind(null, {value: [{}]})})})`},
	{"WeakSet", `new WeakSet({[Symbol.iterator]: () => ({next: Object.bind(null, {value: {}})})})`},
	{"inherited Set", `class S extends Set {}; new S(it)`},
	{"Set by its instance", `new (new Set().constructor)(it)`},
	{"Set by its prototype", `new (Object.getPrototypeOf(class extends Set {}))(it)`},
	{"Reflect.construct", `Reflect.construct(Set, [it])`},
	{"AggregateError", `new AggregateError(it)`},
	{"union", `new Set().union({size: 1, has: Object, keys: () => ({next: Object})})`},
	{"symmetricDifference", `new Set().symmetricDifference({size: 1, has: Object, keys: () => ({next: Object})})`},
	{"isSupersetOf", `new Set([undefined]).isSupersetOf({size: 1, has: Object, keys: () => ({next: Object})})`},
	{"Array.from", `Array.from(it)`},
	{"Array.from of another class", `Array.from.call(Object, it)`},
	{"Array.from with a function", `Array.from(it, Object)`},
	{"Object.fromEntries", `Object.fromEntries({[Symbol.iterator]: () => ({next: Object.bind(null, {value: []})})})`},
	{"typed array", `new Uint8Array(it)`},
	{"typed array from", `Uint8Array.from(it)`},
	{"typed array of its class", `new (new Uint8Array(1).constructor)(it)`},
	{"Promise.all", `Promise.all(it)`},
	{"Promise.allSettled", `Promise.allSettled(it)`},
	{"Promise.any", `Promise.any(it)`},
	{"Promise.race", `Promise.race(it)`},
	{"Promise of an async function", `(async () => {})().constructor.all(it)`},
	{"for of", `for (const x of it) {}`},
	{"delegation", `for (const x of (function*() { yield* it })()) {}`},
}

func TestEndlessIterators(t *testing.T) {
	before := runtime.NumGoroutine()
	for _, c := range endless {
		t.Run(c.name, func(t *testing.T) {
			o := options()
			o.ExecutionTimeout = 5 * time.Millisecond
			h := compileWith(t, `fromAll().when({T: function() { const it = {[Symbol.iterator]: () => ({next: Object})}; `+c.body+` }})`, o)
			began := time.Now()
			_, err := h.Process(jsonEvent(`{}`))
			if f := fault(t, err); !strings.Contains(f.Message, "took too") {
				t.Errorf("after %v: %v", time.Since(began), f.Message)
			}
			h.Close()
		})
	}
	runtime.GC()
	if n := runtime.NumGoroutine(); n > before+2 {
		t.Errorf("%d goroutines, %d before", n, before)
	}
}

// ordinary are scripts that must mean what they mean to the engine alone.
var ordinary = []string{
	`[...[1, , 3], ...'añ😀', ...new Set([1, 1]), ...new Map([[1, 2]]), ...(function*() { yield 1; yield 2; return 3 })(), ...[], ...new Uint8Array([7])]`,
	`(function() { return [...arguments].concat(Math.max(...arguments), [...[1].entries()]) })(1, 2)`,
	`[Math.max(1, ...[5, 2]), new Date(...[2020, 1]).getFullYear(), {...[1, 2], ...'a'}]`,
	`const a = [1], b = [...a]; a.push(2); return [a, b]`,
	`const [a, ...b] = [1, 2, 3]; const [, ...c] = 'xyz'; const [...d] = new Map([['a', 1]]); let [e = 5, ...f] = []; return [a, b, c, d, e, f]`,
	`let a, b, c = {}; [a, ...b] = [1, 2]; [a, ...c.x] = [3, 4]; [c.y, ...[c.z]] = [5, 6, 7]; return [a, b, c, ([a, ...b] = [8, 9])]`,
	`const {a: [b, ...c], d = b, ...e} = {a: 'xyz', f: 1, g: 2}; return [b, c, d, e]`,
	`const {a: [b, ...c] = [1, 2], 'x y': [...g], 0: [...h], m: {n: [...o]}} = {'x y': [3], 0: [4], m: {n: [5]}}; return [b, c, g, h, o]`,
	`const [[a, ...b], {c: [...d]}, e = b, ...[[...f], g]] = [[1, 2], {c: [3]}, undefined, [4], 5, 6]; return [a, b, d, e, f, g]`,
	`const [[a, ...b] = [1, 2], c] = (function*() { yield; yield 3; yield 4 })(); return [a, b, c]`,
	`const log = []; const it = {[Symbol.iterator]: () => ({n: 0, next() { return {value: [this.n++], done: false} }, return() { log.push('closed ' + this.n); return {} }})}; const [[...a], b] = it; const [c] = it; return [a, b, c, log]`,
	`const log = []; const it = {[Symbol.iterator]: () => ({n: 0, next() { return {value: this.n++, done: this.n > 3} }, return() { log.push('closed'); return {} }})}; return [[...it], Array.from(it), [...new Set(it)], (([...a]) => a)(it), log]`,
	`const log = []; const it = {[Symbol.iterator]: () => ({next() { log.push('n'); throw new Error('x') }, return() { log.push('closed') }})}; try { [...it] } catch (e) { log.push(e.message) } return log`,
	`const f = ([a, ...b], c = a, {d} = {d: b}, ...e) => [a, b, c, d, e]; return [f([1, 2]), f('xy', 3, {d: 4}, 5, 6), f.length]`,
	`function f(x, [a, ...b] = [x], c = () => b) { return [x, a, b, c(), arguments.length, f.length] } return [f(1), f(2, [3, 4]), f(5, undefined, () => 6)]`,
	`function f([a, ...b]) { const g = () => a; a = 9; return [g(), b] } return f([1, 2])`,
	`return [[1, [2, 3]], [4, [5]]].map(([a, [...b]]) => ({a, b}))`,
	`return Object.entries({a: [1, 2], b: [3]}).map(([k, [first, ...rest]]) => [k, first, rest])`,
	`class A { constructor([a, ...b]) { this.v = [a, b] } set s([...x]) { this.y = x } static m([...x], z = x.length) { return z }; *g([...x]) { yield* x } }; const a = new A([1, 2]); a.s = 'ab'; return [a, A.m([1, 2, 3]), [...a.g([4])]]`,
	`return ((...[[a, ...b], c]) => [a, b, c])([1, 2], 3)`,
	`const out = []; for (const [a, ...b] of [[1, 2], [3]]) out.push(() => [a, b]); for (var [c, ...d] of new Map([[4, 5]])) { if (c) continue; } let x, y; l: for ([x, ...y] of ['ab']) { out.push(() => 7); break l } for (const [e, ...f] in {gh: 1}) out.push(() => [e, f]); return [out.map(f => f()), c, d, x, y]`,
	`for (let [a, ...b] = [0, 1, 2]; ; a++) if (a > 2) return [a, b]`,
	`try { throw [1, 2] } catch ([a, ...b]) { let c = b; return [a, c] }`,
	`const m = new Map([[1, {a: 1}], [2, 3]]), s = new Set('abca'), w = new WeakMap([[m, 1]]); return [[...m], [...s], w.get(m), new WeakSet([m]).has(m), [...new Map(m).keys()], [...new Set(s).union(new Set([1]))], new Map().size, new Set(null).size, new Map(undefined).size, m instanceof Map, Map.name, Object.prototype.toString.call(s)]`,
	`class M extends Map { get(k) { return super.get(k) || 0 } } const m = new M([['a', 1]]); return [m.get('a'), m.get('b'), m instanceof M, m instanceof Map, m.constructor === M, [...m.entries()]]`,
	`return [Array.from('añ'), Array.from({length: 2}), Array.from({length: 2, 0: 'a'}, (x, i) => [x, i]), Array.from(new Set([1, 2]), x => x * 2), Array.from(new Map([[1, 2]]).values()), Array.from([1, , 3]), Array.from(5), Array.from(true)]`,
	`return [Object.fromEntries([['a', 1]]), Object.fromEntries(new Map([['b', 2]])), Object.fromEntries(Object.entries({c: 3}).map(([k, ...v]) => [k, v]))]`,
	`return [Array.from(new Uint8Array([1, 257])), Array.from(new Uint8Array(new Set([3]))), Array.from(new Uint8Array({length: 1, 0: 4})), Array.from(Uint8Array.from(new Set('56'))), Array.from(Uint8Array.from({length: 2}, (x, i) => i)), new Uint8Array(new Uint16Array([300])).length, new Uint8Array(new ArrayBuffer(8), 2, 3).length, new Uint8Array().length, (() => { const u = new Uint8Array(3); u.set([1], 1); u.set({length: 1, 0: 9}); return Array.from(u) })()]`,
	`const s = new Set([1, 2, 3]), t = new Set([2, 3, 4]); return [[...s.union(t)], [...s.intersection(t)], [...s.difference(t)], [...s.symmetricDifference(t)], s.isSubsetOf(t), s.isSupersetOf(new Set([1])), s.isDisjointFrom(t), [...s.union(new Map([[9, 1]]))]]`,
	`const e = new AggregateError([new Error('a')], 'b'); return [e.message, e.errors.length, e instanceof Error]`,
	`const f = Function.prototype.apply, a = [[1], [2]]; return [Math.max.apply(null, {length: 2, 0: 3, 1: 4}), Reflect.apply(Math.max, null, (function() { return arguments })(5, 6)), Reflect.construct(Array, [1, 2]), Reflect.construct(Set, a).size, a]`,
	`const a = [it => 1, [new Set([1])]]; Reflect.apply(Array.from, Array, a[1]); return a[1][0] instanceof Set`,
	`const errors = []; for (const f of [() => [...1], () => { const [...a] = 1 }, () => new Set(1), () => { const [...a] = null }, () => Array.from(null), () => Math.max(...undefined), () => { const {a: [...b]} = undefined }, () => { const {a: [...b]} = {} }, () => Object.fromEntries(3)]) try { f(); errors.push('none') } catch (e) { errors.push(e instanceof TypeError) } return errors`,
	`with ({a: [1, 2], f(x) { return x }}) { const [b, ...c] = a; return [b, c, f([...a]), typeof g] }`,
	`const o = {__proto__: {a: [1, 2]}, get b() { return 3 }}; const {a: [...x], b, ...rest} = o; return [x, b, rest]`,
	`const s = Symbol('s'); const {a: [...x], ...rest} = {a: [1], [s]: 2}; return [x, rest[s], Object.getOwnPropertySymbols(rest).length]`,
	`class A extends Array {}; A.prototype[Symbol.iterator] = function*() { yield 7 }; const a = [1]; a[Symbol.iterator] = () => new A(3)[Symbol.iterator](); return [[...new A(1)], [...a], Array.from(a), [...[1]]]`,
	`const a = Array.prototype, o = {length: 2, 0: 'x', 1: 'y'}; const n = a.push.call(o, 'z'), same = a.fill.call(o, 'w', 2) === o; a.reverse.call(o); const all = a.map.call(o, (x, i, l) => x + i + l.length); return [n, same, o, all, a.join.call(o, '-'), a.pop.call(o), a.shift.call(o), a.unshift.call(o, 1), a.splice.call(o, 1, 1, 2, 3), o, a.sort.call(o, (x, y) => y - x) === o, o, a.slice.call('abc', 1), a.indexOf.call(o, 2), a.includes.call(Object.freeze({length: 1, 0: 5}), 5), a.map.call('ab', x => x + x), a.concat.call([], (function() { return a.slice.call(arguments) })(1, 2)), a.reduce.call(new Uint8Array([1, 2]), (x, y) => x + y), a.forEach.call({length: 3, 1: 1}, x => x), a.some.call({length: 3}, () => true), 'ñ'.concat('é'), 'ñ'.padEnd(3, 'é')]`,
	`const f = async ([a, ...b]) => b; return typeof f([1, 2]).then`,
	`let [a, ...b] = [1, 2], [c, ...d] = b; ({a, x: [c, ...d] = [5]} = {a: 7, x: [8, 9]}); return [a, b, c, d]`,
}

// TestSetsWithoutNext: what the engine would trip over is an error that a script can catch.
func TestSetsWithoutNext(t *testing.T) {
	for _, keys := range []string{"{}", "{next: 5}"} {
		out := check.Value(compile(t, `fromAll().when({T: function() {
			try { new Set([1]).union({size: 1, has() { return true }, keys() { return `+keys+` }}) } catch (e) { return e.message }
		}})`).Process(jsonEvent(`{}`))).Must(t)
		check.Contains(t, string(out.State), "next is not a function", keys)
	}
}

// TestOrdinaryIterables compares scripts with what the engine alone makes of them.
func TestOrdinaryIterables(t *testing.T) {
	for _, body := range ordinary {
		if !strings.Contains(body, "return ") || body[0] == '[' || body[0] == '(' {
			body = "return " + body
		}
		v, err := goja.New().RunString(`JSON.stringify((function() { ` + body + ` })())`)
		if err != nil {
			t.Errorf("%s: the engine: %v", body, err)
			continue
		}
		out, err := compile(t, `fromAll().when({T: function() { `+body+` }})`).Process(jsonEvent(`{}`))
		check.Must(t, err, body)
		check.Equal(t, string(out.State), v.String(), body)
	}
}

// TestRandomPatterns compares patterns of all forms with what the engine alone makes of them.
func TestRandomPatterns(t *testing.T) {
	seed := uint64(time.Now().UnixNano())
	rng := rand.New(rand.NewPCG(seed, 1))
	var names []string
	var pattern, value func(depth int) string
	leaf := func() string {
		names = append(names, "v"+string(rune('a'+len(names)%26))+strings.Repeat("x", len(names)/26))
		return names[len(names)-1]
	}
	pattern = func(depth int) string {
		var parts []string
		object := rng.IntN(2) == 0
		for i := range rng.IntN(4) {
			part := ""
			if depth == 0 || rng.IntN(2) == 0 {
				part = leaf()
			} else {
				part = pattern(depth - 1)
			}
			if rng.IntN(3) == 0 {
				part += " = " + value(depth)
			}
			if object {
				part = string("abc"[i]) + ": " + part
			}
			parts = append(parts, part)
		}
		switch {
		case object && rng.IntN(3) == 0:
			parts = append(parts, "..."+leaf())
		case !object && rng.IntN(2) == 0:
			parts = append(parts, "..."+leaf())
		}
		if object {
			return "{" + strings.Join(parts, ", ") + "}"
		}
		return "[" + strings.Join(parts, ", ") + "]"
	}
	value = func(depth int) string {
		if depth < 0 {
			return []string{"1", "'xy'", "undefined", "[]", "{}"}[rng.IntN(5)]
		}
		in := func() string { return value(depth - 1) }
		switch rng.IntN(6) {
		case 0:
			return "[" + in() + ", " + in() + "]"
		case 1, 2:
			return "Object.assign([" + in() + ", " + in() + ", " + in() + "], {a: " + in() + ", b: " + in() + "})"
		case 3:
			return "{a: " + in() + ", c: " + in() + "}"
		case 4:
			return "new Set([" + in() + ", " + in() + "])"
		default:
			return "(function*() { yield " + in() + "; yield " + in() + " })()"
		}
	}
	took := 0 // patterns that fit their value
	for range testkit.Fewer(150, 500) {
		names = nil
		p := pattern(2)
		v := value(3)
		all := "[" + strings.Join(names, ", ") + "]"
		body := ""
		switch rng.IntN(6) {
		case 0:
			body = "const " + p + " = " + v + "; return " + all
		case 1:
			body = "return ((" + p + ", last) => [last, " + all + "])(" + v + ", 1)"
		case 2:
			body = "const o = []; for (let " + p + " of [" + v + "]) o.push(" + all + "); return o"
		case 3:
			body = "try { throw " + v + " } catch (" + p + ") { return " + all + " }"
		case 4:
			body = "return (function(first = 2, " + p + " = " + v + ") { return " + all + " })()"
		case 5:
			if len(names) > 0 {
				body = "let " + strings.Join(names, ", ") + "; "
			}
			body += "(" + p + " = " + v + "); return " + all
		}
		body = "try { return (() => { " + body + " })() } catch (e) { return 'failed ' + (e instanceof TypeError) }"
		want, err := goja.New().RunString(`JSON.stringify((function() { ` + body + ` })())`)
		if err != nil {
			continue // The engine itself fails at some.
		}
		h, err := script.Compile(`fromAll().when({T: function() { `+body+` }})`, options())
		check.Must(t, err, "seed", seed, body)
		out := check.Value(h.Process(jsonEvent(`{}`))).Must(t)
		check.MustEqual(t, string(out.State), want.String(), "seed", seed, body)
		if want.String() != `"failed true"` {
			took++
		}
		h.Close()
	}
	if t.Log(took, "without a fault"); took < testkit.Fewer(30, 100) {
		t.Errorf("only %d patterns fitted", took)
	}
}

func TestRefusedPatterns(t *testing.T) {
	for _, body := range []string{`const {[e.x]: [...a]} = {}`, `const [...{0: [...a]}] = []`, `const {a, a: [...b]} = {}`} {
		_, err := script.Compile("fromAll().when({T(s, e) {\n"+body+" }})", options())
		if f := fault(t, err); !f.Definition || f.Line != 2 || !strings.Contains(f.Message, "cannot hold a rest element") {
			t.Errorf("%s: %+v", body, f)
		}
	}
}
