package script_test

import (
	"runtime"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/annalsdb/annals/projection/script"
)

// hostile are scripts that take time, stack or memory without end. Each must end in a
// fault whose message holds the text, if one is given.
var hostile = []struct{ name, body, want string }{
	{"loop", `for (;;) {}`, "took too long to execute"},
	{"loop that catches", `for (;;) { try { for (;;) {} } catch (x) {} finally { for (;;) {} } }`, "took too long"},
	{"getter", `({get a() { for (;;) {} }}).a`, "took too long"},
	{"toJSON", `return {toJSON() { for (;;) {} }}`, "took too long"},
	{"getter of the state", `return {get a() { for (;;) {} }}`, "took too long"},
	{"getter that throws", `return {get a() { throw new Error('own') }}`, "own"},
	{"proxy", `return new Proxy({}, {ownKeys() { for (;;) {} }})`, "took too long"},
	{"proxy get", `new Proxy({}, {get() { for (;;) {} }}).x`, "took too long"},
	{"generator", `for (const x of (function*() { for (;;) yield 1 })()) {}`, "took too long"},
	{"generator into an array", `[...(function*() { for (;;) yield 1 })()]`, "took too"},
	{"toPrimitive", `+{[Symbol.toPrimitive]() { for (;;) {} }}`, "took too long"},
	{"comparator", `[2, 1].sort(() => { for (;;) {} })`, "took too long"},
	{"replacer", `'a'.replace('a', () => { for (;;) {} })`, "took too long"},
	{"message", `throw {get message() { for (;;) {} }}`, "cannot be read"},
	{"promises", `(function f() { Promise.resolve().then(f) })()`, "took too long"},
	{"recursion", `(function f() { f() })()`, "Maximum call stack size exceeded"},
	{"recursion through the engine", `(function f() { [1].forEach(f) })()`, "within each other"},
	{"recursion through call", `(function f() { f.call() })()`, ""},
	{"recursion through a getter", `const o = {get a() { return this.a }}; o.a`, ""},
	{"regular expression", `/(?=a)(a+)+$/.test('a'.repeat(60) + 'b')`, "took too long"},
	{"regular expression, many", `for (;;) /^(a|aa)+$/.test('a'.repeat(40) + 'b') && /(?=a)(a*)*b\1/.test('a'.repeat(40))`, "took too long"},
	{"repeat", `'x'.repeat(1e9)`, "too long"},
	{"padStart", `'x'.padStart(1e9)`, "too long"},
	{"join", `new Array(1e6).fill('x'.repeat(1e6)).join()`, "too long"},
	{"join of nothing", `new Array(4e9).join('xx')`, "too long"},
	{"join within itself", `let a = ['']; for (let i = 0; i < 100; i++) a = [a, a]; String(a)`, "took too"},
	{"deep join", `let a = []; for (let i = 0; i < 1e5; i++) a = [a]; String(a)`, ""},
	{"doubling", `let t = 'x'; for (;;) t += t`, "too long to be added"},
	{"doubling a template", "let t = 'x'; for (;;) t = `${t}${t}`", "too long to be added"},
	{"doubling an array", `let a = [1]; for (;;) a = [...a, ...a]`, ""},
	{"doubling by another name", `let t = 'x'; for (;;) { const u = t; t = u + t }`, "too long to be added"},
	{"list", `const l = []; for (;;) l.push({a: [1, 2, 3]})`, "took too"},
	{"fill", `new Array(1e9).fill(0)`, "too long"},
	{"length", `const a = []; a.length = 4294967295; a.indexOf(1)`, "too long"},
	{"spread", `const a = []; a.length = 4294967295; [...a]`, "too long"},
	{"spread call", `Math.max(...new Array(4e9))`, "too long"},
	{"array-like", `Array.prototype.indexOf.call({length: 2 ** 53 - 1}, 1)`, "too long"},
	{"array-like that grows", `let n = 0; const o = {get length() { return n++ ? 2 ** 53 - 1 : 3 }}; Array.prototype.indexOf.call(o, 1); n = 0; Array.prototype.join.call(o); n = 0; Array.prototype.fill.call(o, 1); n = 0; Reflect.apply(Math.max, null, o); n = 0; Array.from(o); n = 0; new Uint8Array(o); throw 'ended'`, "ended"},
	{"array-like of a proxy that grows", `let n = 0; Array.prototype.forEach.call(new Proxy({}, {get: (o, k) => k === 'length' && n++ ? 2 ** 53 - 1 : 0}), x => x); throw 'ended'`, "ended"},
	{"from", `Array.from({length: 1e9})`, "too long"},
	{"apply", `Math.max.apply(null, {length: 1e9})`, "too long"},
	{"flat", `let a = [1]; for (let i = 0; i < 60; i++) a = [a, a]; a.flat(Infinity)`, "took too"},
	{"concat", `let a = new Array(5e6); a.concat(a)`, "too long"},
	{"replaceAll", `'x'.repeat(1e6).replaceAll('x', 'y'.repeat(1e6))`, "too long"},
	{"replace", `'x'.repeat(1e6).replace(/x/g, 'y'.repeat(1e6))`, "too long"},
	{"replace by itself", `'x'.repeat(1e6).replaceAll('x', '$&'.repeat(1e4))`, "too long"},
	{"buffer", `new ArrayBuffer(1e11)`, "too many"},
	{"typed array", `new Float64Array(1e9)`, "too many"},
	{"typed array of its class", `new (new Uint8Array(1).constructor)(1e10)`, "too many"},
	{"stringify", `const a = []; a.length = 4e9; JSON.stringify(a)`, ""},
	{"stringify within itself", `let a = []; for (let i = 0; i < 60; i++) a = [a, a]; JSON.stringify(a)`, ""},
	{"state within itself", `let a = []; for (let i = 0; i < 60; i++) a = [a, a]; return a`, ""},
	{"circle", `const a = []; a.push(a); return a`, "circular"},
	{"deep state", `let a = []; for (let i = 0; i < 1e5; i++) a = [a]; return a`, ""},
	{"deep parse", `JSON.parse('['.repeat(1e6) + ']'.repeat(1e6))`, "nested deeper"},
	{"bomb", `JSON.parse('[' + '[],'.repeat(2e6) + '0]')`, ""},
	{"emissions", `for (;;) emit('s', 'T', {text: 'x'.repeat(1e6)})`, ""},
	{"typed array through the global object", `new globalThis['Uint8' + 'Array'](1e10)`, ""},
	{"typed array through this", `(function() { new this['Uint8' + 'Array'](1e10) })()`, ""},
	{"method by a name that is made", `[]['index' + 'Of'].call({length: 2 ** 53 - 1}, 1)`, ""},
	{"power", `2n ** (2n ** 40n)`, "too large"},
	{"power of a power", `let a = 2n ** 4096n; a = a ** 1000000n`, "too large"},
	{"power of an expression", `((2n ** 4096n) + 1n) ** 1000000n`, "too large"},
	{"power assigned", `let a = 3n ** 64n; for (;;) a **= 64n`, "too large"},
	{"power of a member", `const o = {a: 3n}; for (;;) o.a **= 17n`, "too large"},
	{"shift", `1n << 100000000000n`, "too large"},
	{"shift back", `1n >> -100000000000n`, "too large"},
	{"shift assigned", `let a = 1n; a <<= 100000000000n`, "too large"},
	{"power through the global object", `const B = globalThis['Big' + 'Int']; B(2) ** B(2 ** 40)`, "too large"},
	{"asUintN", `BigInt.asUintN(2 ** 40, -1n)`, "too large"},
	{"product", `let a = 3n; for (;;) a *= a`, "took too"},
	{"eval", `eval('1')`, "code from texts is not allowed"},
	{"indirect eval", `(0, eval)('1')`, "code from texts"},
	{"Function", `new Function('return 1')()`, "code from texts"},
	{"constructor", `(() => {}).constructor('return 1')()`, "code from texts"},
	{"generator's constructor", `(function*() {}).constructor('yield 1')()`, "code from texts"},
	{"async constructor", `(async () => {}).constructor('return 1')()`, "code from texts"},
	{"inherited Function", `new (class extends Function {})('return 1')()`, "code from texts"},
	{"require", `require('fs')`, "require is not defined"},
	{"console", `console.log(1)`, "console is not defined"},
	{"timer", `setTimeout(() => {}, 1)`, "setTimeout is not defined"},
	{"definition", `fromAll()`, "fromAll is not defined"},
}

func TestHostileScripts(t *testing.T) {
	before := runtime.NumGoroutine()
	for _, c := range hostile {
		t.Run(c.name, func(t *testing.T) {
			o := options()
			o.ExecutionTimeout = 40 * time.Millisecond
			switch c.want {
			case "too long to be added", "too large", "too many", "nested deeper": // A bound stops it, however long that takes.
				o.ExecutionTimeout = 30 * time.Second
			}
			h := compileWith(t, `fromAll().when({T(s, e) { `+c.body+` }})`, o)
			began := time.Now()
			_, err := h.Process(jsonEvent(`{}`))
			if f := fault(t, err); !strings.Contains(f.Message, c.want) {
				t.Errorf("after %v: fault %q, want %q", time.Since(began), f.Message, c.want)
			}
			t.Log(time.Since(began).Round(time.Millisecond), err)
			h.Close()
		})
	}
	runtime.GC()
	if n := runtime.NumGoroutine(); n > before+2 {
		t.Errorf("%d goroutines, %d before", n, before)
	}
}

func TestHostileDefinitions(t *testing.T) {
	for name, source := range map[string]string{
		"loop":          `for (;;) {}`,
		"parentheses":   strings.Repeat("(", 1<<19),
		"arrows":        strings.Repeat("a=>", 1<<18) + "1",
		"hidden":        strings.Repeat("a=>/*;*/", 1<<16) + "1",
		"unary":         strings.Repeat("!", 1<<19) + "1",
		"sum":           strings.Repeat("a+", 1<<18) + "1",
		"conditionals":  strings.Repeat("a?a:", 1<<17) + "1",
		"ifs":           strings.Repeat("if(a)", 1<<17) + "1",
		"elses":         strings.Repeat("if(a);else ", 1<<16) + "1",
		"templates":     strings.Repeat("`${", 1<<18),
		"blocks":        strings.Repeat("{", 1<<19),
		"long":          strings.Repeat(" ", 2<<20),
		"source map":    "fromAll(\n//# sourceMappingURL=/etc/passwd",
		"sums of texts": `fromAll(` + strings.Repeat(`";"+`, 1<<17) + "1",
	} {
		t.Run(name, func(t *testing.T) {
			o := options()
			o.CompileTimeout = 200 * time.Millisecond
			began := time.Now()
			_, err := script.Compile(source, o)
			t.Log(time.Since(began).Round(time.Millisecond), fault(t, err).Message)
		})
	}
}

// TestLongMatches: where calls may take longer than a match, a match that was cut off
// is a fault rather than one that found nothing.
func TestLongMatches(t *testing.T) {
	h := compile(t, `fromAll().when({T(s, e) { return /(?=a)(a+)+$/.test('a'.repeat(60) + 'b') }})`)
	_, err := h.Process(jsonEvent(`{}`))
	if f := fault(t, err); !strings.Contains(f.Message, "the regular expression took longer") {
		t.Error(f)
	}
	h = compile(t, `fromAll().when({T(s, e) { return ['aXbX'.replace(/x/gi, '-'), 'a1b'.split(/\d/), 'aa'.match(/a/g), [...'ab'.matchAll(/./g)].length, /b/y.test('ab')] }})`)
	if out := process(t, h, jsonEvent(`{}`)); string(out.State) != `["a-b-",["a","b"],["a","a"],2,false]` {
		t.Errorf("%s", out.State)
	}
}

// TestBoundedBuiltins: what is bounded still does what it did.
func TestBoundedBuiltins(t *testing.T) {
	for source, want := range map[string]string{
		`[1, 2, 3].map(x => x * 2).filter(x => x > 2).concat([7], 8).join('-')`: `"4-6-7-8"`,
		`[[1, [2]], , [3]].flat()`:                                     `[1,[2],3]`,
		`[1, [2, [3, [4]]]].flat(Infinity)`:                            `[1,2,3,4]`,
		`[...[1, 2], ...new Set([3])]`:                                 `[1,2,3]`,
		`Array.from({length: 3}, (x, i) => i)`:                         `[0,1,2]`,
		`[3, 1, 2].sort().reverse()`:                                   `[3,2,1]`,
		`'ab'.repeat(2) + 'x'.padStart(3, '-') + 'a'.concat('b', 1)`:   `"abab--xab1"`,
		`'a.b.c'.replaceAll('.', '$&$&') + 'abc'.replace(/b/, '[$&]')`: `"a..b..ca[b]c"`,
		`Math.max.apply(null, [1, 5, 3])`:                              `5`,
		`Array.from(new Uint8Array([1, 2, 300]))`:                      `[1,2,44]`,
		`new Uint8Array(2) instanceof Uint8Array`:                      `true`,
		`new (class extends Uint8Array {})(3).length`:                  `3`,
		`new ArrayBuffer(8).byteLength`:                                `8`,
		`Uint8Array.from([1, 2]).map(x => x + 1).length`:               `2`,
		`(() => {}) instanceof Function`:                               `true`,
		`String([1, [2, 3]])`:                                          `"1,2,3"`,
		`[2n ** 64n, 2 ** 10, 1n << 70n, 1 << 4, 256 >> 4, -1 >>> 28, (() => { let a = 2n; a **= 10n; a <<= 1n; return a })(), (-2) ** 2, 2 ** 3 ** 2]`: `["18446744073709551616",1024,"1180591620717411303424",16,16,15,"2048",4,512]`,
		`(() => { const o = {a: 2n, b: 3}; o.a **= 3n; o.b **= 2; o.b <<= 1; return [o.a, o.b, BigInt.asUintN(8, 257n)] })()`:                           `["8",18,"1"]`,
		`(() => { let n = 0; const f = x => (n++, x); return [f(2n) ** f(3n) ** f(2n), (f(2n) + 1n) ** 40n, n, f(2) ** f(-1)] })()`:                     `["512","12157665459056928801",4,0.5]`,
		"`a${1 + 2}b${[1] + ''}` + (x => x + x)('y') + (() => { let s = 's'; s += 's'; s += 1; return s })() + (1 + 2 + '3')":                           `"a3b1yyss133"`,
		"((s, ...v) => s.raw.join('|') + v.join())`a${1}b${2}`":                                                                                         `"a|b|1,2"`,
		`[].map.name + [].map.length`:   `"map1"`,
		`[1, 2].entries().next().value`: `[0,1]`,
		`String.raw` + "`a${1}\\n`":     `"a1\\n"`,
		`Object.keys([]).length`:        `0`,
		`(() => { let n = 0; for (const x of [1, 2, 3]) n += x; for (const i in [1]) n += i; return n })()`: `"60"`,
	} {
		h := compile(t, `fromAll().when({T: (s, e) => `+source+`})`)
		if got := process(t, h, jsonEvent(`{}`)); string(got.State) != want {
			t.Errorf("%s is %s, want %s", source, got.State, want)
		}
	}
}

// TestNothingStays: memory comes back after calls that took much of it.
func TestNothingStays(t *testing.T) {
	heap := func() uint64 {
		var m runtime.MemStats
		runtime.GC()
		runtime.GC()
		runtime.ReadMemStats(&m)
		return m.HeapAlloc
	}
	before := heap()
	for _, body := range []string{`const l = []; for (;;) l.push({a: [1, 2, 3]})`, `let t = 'x'; for (;;) t += t`, `JSON.parse('[' + '[],'.repeat(1e5) + '0]'); throw 1`} {
		o := options()
		o.ExecutionTimeout = 150 * time.Millisecond
		h := compileWith(t, `fromAll().when({T(s, e) { `+body+` }})`, o)
		if _, err := h.Process(jsonEvent(`{}`)); err == nil {
			t.Errorf("%s: no fault", body)
		}
		h.Close()
	}
	if after := heap(); after > before+4<<20 {
		t.Errorf("the heap grew from %d to %d bytes", before, after)
	}
}

// TestMemoryLimit: a call without a time limit ends when it takes too much memory.
func TestMemoryLimit(t *testing.T) {
	o := options()
	o.ExecutionTimeout = 0
	for _, body := range []string{`const x = 'x'.repeat(1e6), l = []; for (;;) l.push(x + l.length)`, `const m = new Map(); for (;;) m.set(m.size, [m.size])`} {
		_, err := compileWith(t, `fromAll().when({T(s, e) { `+body+` }})`, o).Process(jsonEvent(`{}`))
		if f := fault(t, err); !strings.Contains(f.Message, "took too much memory") {
			t.Errorf("%s: %v", body, err)
		}
	}
	// Garbage is no memory taken.
	runtime.GC()
	h := compileWith(t, `fromAll().when({T(s, e) { const x = 'x'.repeat(1e6); let n = 0; for (let i = 0; i < 300; i++) n += (x + i).length; return n }})`, o)
	process(t, h, jsonEvent(`{}`))
}

// TestLargeBodies: bodies of 4 MiB are read and written whole.
func TestLargeBodies(t *testing.T) {
	body := "[" + strings.Repeat(order+",", (4<<20)/len(order)-1) + order + "]"
	h := compile(t, `fromAll().when({T(s, e) { return e.body.length }, U(s, e) { return e.body }})`)
	if out := process(t, h, jsonEvent(body)); string(out.State) != strconv.Itoa((4<<20)/len(order)) {
		t.Errorf("%s", out.State)
	}
	if out := process(t, h, typed("U", body)); string(out.State) != body {
		t.Error("a body of 4 MiB came out otherwise")
	}
}

// TestIdleHandlers: a thousand idle projections must not cost 100 MB.
func TestIdleHandlers(t *testing.T) {
	const n = 200
	heap := func() uint64 {
		var m runtime.MemStats
		runtime.GC()
		runtime.ReadMemStats(&m)
		return m.HeapAlloc
	}
	before := heap()
	o := script.Options{CompileTimeout: 500 * time.Millisecond, ExecutionTimeout: 250 * time.Millisecond}
	handlers := make([]*script.Handler, n)
	for i := range handlers {
		h, err := script.Compile(`fromAll().when({$init: () => ({count: 0}), T(s, e) { s.count++; s.sum += e.body.amount }})`, o)
		for ; err != nil; h, err = script.Compile(`fromAll()`, o) {
			t.Log(err) // a machine so busy that half a second does not do
		}
		if _, err := h.Process(jsonEvent(`{"amount":1}`)); err != nil {
			t.Log(err)
		}
		handlers[i] = h
	}
	each := (heap() - before) / n
	t.Logf("%d bytes each", each)
	if each > 70<<10 {
		t.Errorf("an idle handler costs %d bytes", each)
	}
	for _, h := range handlers {
		h.Close()
	}
}
