package script_test

import (
	"runtime"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/dop251/goja"

	"github.com/annalsdb/annals/internal/check"
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
	{"exec of the engine", `const r = /x/g; r.exec = Object; 'abc'.match(r)`, "took too long"},
	{"exec of the engine, replace", `const r = /x/g; r.exec = Object; 'abc'.replace(r, '')`, "took too long"},
	{"exec of the engine, replaceAll", `const r = /x/g; r.exec = Object; 'abc'.replaceAll(r, '')`, "took too long"},
	{"exec of the engine, called", `const r = /x/g; r.exec = Object; r[Symbol.match]('abc')`, "took too long"},
	{"exec of all expressions", `RegExp.prototype.exec = Object; 'abc'.match(/x/g)`, "took too long"},
	{"exec that differs", `let n = 0; const exec = RegExp.prototype.exec; Object.defineProperty(RegExp.prototype, 'exec', {get: () => n++ % 5 ? Object : exec}); for (;;) 'abc'.match(/x/g)`, "took too long"},
	{"exec of a class", `class R extends RegExp {}; R.prototype.exec = Object; 'abc'.match(new R('x', 'g'))`, "took too long"},
	{"exec of an object", `RegExp.prototype[Symbol.match].call({flags: 'g', exec: Object}, 'abc')`, "took too long"},
	{"exec of an object, replace", `RegExp.prototype[Symbol.replace].call({flags: 'g', exec: Object}, 'abc')`, "took too long"},
	{"flags that lie", `const r = /x/; Object.defineProperty(r, 'flags', {value: 'g'}); 'x'.match(r)`, "took too long"},
	{"flags of all expressions that lie", `Object.defineProperty(RegExp.prototype, 'global', {get: () => true}); 'x'.match(/x/); throw 'ended'`, "ended"},
	{"flags of all expressions replaced", `Object.defineProperty(RegExp.prototype, 'flags', {value: 'g'})`, "annot redefine"},
	{"match of any length", `const r = /x/; r.exec = Object.bind(null, {length: 2 ** 53, index: 0}); 'abc'.replace(r, '')`, "took too"},
	{"match of any length, split", `const r = /x/; r.constructor = {[Symbol.species]: function() { return {exec: Object.bind(null, {length: 2 ** 53}), set lastIndex(n) {}, get lastIndex() { return 1 }} }}; 'abc'.split(r)`, "took too"},
	{"matches of a long text", `'x'.repeat(8e6).match(/x/g)`, "took too"},
	{"matches with many groups", `'x'.repeat(1e5).match(new RegExp('()'.repeat(9e3), 'g'))`, "took too"},
	{"replacements of a long text", `'x'.repeat(8e6).replace(/x/g, '')`, "took too"},
	{"replacements by the rest", `'x'.repeat(2e5).replace(/x/g, "$'")`, ""},
	{"parts of a long text", `'x'.repeat(8e6).split(/x/)`, "took too"},
	{"parts of a text", `'x'.repeat(8e6).split('')`, "too long to be split"},
	{"expression of any length", `new RegExp('(?:'.repeat(5e6) + ')'.repeat(5e6))`, "too long"},
	{"expression of any length, matched", `'x'.match('(?:'.repeat(1e6) + ')'.repeat(1e6))`, "too long"},
	{"expression of any length, compiled", `/x/.compile('(?:'.repeat(1e6) + ')'.repeat(1e6))`, "too long"},
	{"replacements of the engine", `'x'.repeat(1e4).replace(/x/g, String.prototype.valueOf.bind('x'.repeat(8e6)))`, "too long"},
	{"replacements of the engine, of a text", `'x'.repeat(1e4).replaceAll('x', String.prototype.valueOf.bind('x'.repeat(8e6)))`, "too long"},
	{"join of texts of the engine", `new Array(1000).fill({toString: String.prototype.valueOf.bind('x'.repeat(8e6))}).join()`, "too long"},
	{"raw that grows", `let n = 0; String.raw({raw: {get length() { return n++ ? 2 ** 53 - 1 : 3 }}}); throw 'ended'`, "ended"},
	{"raw that differs", `let n = 0; String.raw({get raw() { return n++ ? {length: 2 ** 53 - 1} : [] }}); throw 'ended'`, "ended"},
	{"concat that grows", `let n = 0; [].concat({get length() { return n++ ? 2 ** 53 - 1 : 3 }, [Symbol.isConcatSpreadable]: true}); throw 'ended'`, "ended"},
	{"concat of a proxy that grows", `let n = 0; [].concat(new Proxy([], {get: (o, k) => k === 'length' && n++ ? 2 ** 53 - 1 : o[k]})); throw 'ended'`, "ended"},
	{"slow function of the engine", `new Array(1e6).fill('x'.repeat(8e6)).map(Function.prototype.call, String.prototype.toUpperCase)`, "took too"},
	{"slow getter of the engine", `const o = {}, get = String.prototype.toUpperCase.bind('x'.repeat(4e6)); for (let i = 0; i < 1e3; i++) Object.defineProperty(o, i, {enumerable: true, get}); Object.values(o)`, "took too"},
	{"bytes", `new Uint8Array(4e6).sort(Math.max); for (;;) new Uint8Array(4e6).forEach(Object)`, "took too"},
	{"bytes as a text", `new Uint8Array(1e6).join('x'.repeat(1e3))`, "too long"},
	{"digits", `BigInt('9'.repeat(8e6))`, "too long"},
	{"digits compared", `1n < '9'.repeat(8e6)`, "too long"},
	{"buffer", `new ArrayBuffer(1e11)`, "too many"},
	{"typed array", `new Float64Array(1e9)`, "too many"},
	{"typed array of its class", `new (new Uint8Array(1).constructor)(1e10)`, "too many"},
	{"typed array of the class above", `new (Object.getPrototypeOf(Uint8Array))(1e10)`, ""},
	{"expression of the class above", `new (Object.getPrototypeOf(RegExp))('(?:'.repeat(5e6) + ')'.repeat(5e6))`, ""},
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
			case "Maximum call stack size exceeded", "within each other", "too long to be added", "too large", "too many", "nested deeper":
				// A bound stops it, however long that takes.
				o.ExecutionTimeout = 30 * time.Second
			}
			h := compileWith(t, `fromAll().when({T(s, e) { `+c.body+` }})`, o)
			began := time.Now()
			_, err := h.Process(jsonEvent(`{}`))
			// The time limit may come first on a busy machine.
			busy := strings.HasPrefix(c.want, "too") || c.want == "ended"
			if f := fault(t, err); !strings.Contains(f.Message, c.want) && !(busy && strings.Contains(f.Message, "took too long")) {
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

// expressions are scripts whose expressions must mean what they mean to the engine alone.
var expressions = []string{
	`['aXbX'.replace(/x/gi, '-'), 'abc'.replace(/b/, '[$&]'), 'abc'.replace(/(b)(c)?/, "$2$1$$$'$\x60"), 'abab'.replace(/(?<n>b)/g, '<$<n>>'), 'abc'.replace(/(b)/, (m, a, at, s) => m + a + at + s)]`,
	`['abcb'.split(/b/), 'abcb'.split(/(b)/), 'abcb'.split(/b/, 1), ''.split(/b/), ''.split(/(?:)/), 'añ😀b'.split(/(?:)/u), 'abc'.split(/(?:)/), 'abc'.split(/(?=b)/), 'a, b,c'.split(/\s*,\s*/)]`,
	`['abcb'.match(/b/g), 'abcb'.match(/(b)(c)/).slice(), 'abc'.match(/x/g), 'abc'.match(/x/), 'abc'.match('b').index, 'abab'.match(/(?<n>b)/).groups.n, [...'abab'.matchAll(/b/g)].map(m => m.index), 'abc'.search(/c/), 'aXa'.match(/x/i).index]`,
	`[/a/gimsuy.flags, /a\/b/.source, String(/a/g), new RegExp('a', 'g').flags, RegExp('a').source, new RegExp(/a/g, 'i').flags, /a/ instanceof RegExp, /a/.constructor === RegExp, RegExp.name, Object.prototype.toString.call(/a/), RegExp.prototype[Symbol.replace].length, RegExp.prototype.flags, RegExp.prototype.toString()]`,
	`class R extends RegExp { exec(s) { return super.exec(s) } }; const r = new R('(b)', 'g'); return ['abcb'.split(r), 'abcb'.split(r, 3), 'abcb'.match(r), 'abcb'.match(new R('(b)')).slice(), 'abcb'.replace(r, "[$&$'$1]"), 'abcb'.replace(r, "$$$1"), 'abcb'.replace(r, (...a) => a.join()), 'abcb'.search(r), r.flags, r instanceof R, [...'abcb'.matchAll(r)].length]`,
	`const r = /(?<n>b)|(x)/g; r.exec = function(s) { const m = RegExp.prototype.exec.call(this, s); if (m) m[0] += 'y'; return m }; return ['abyc'.match(r), 'abyc'.replace(r, '<$<n>$2$1>'), 'abyc'.split(r)]`,
	`const r = /(?:)/g; r.own = 1; return ['añ'.match(r), 'añ'.replace(r, '-'), 'añ'.split(r), 'a'.replace(r, (m, at) => at)]`,
	`const r = /b/y; r.lastIndex = 1; const a = 'abb'.replace(r, '-'); return [a, r.lastIndex, 'abb'.match(/b/y), 'bba'.match(/b/gy), 'bba'.replace(/b/gy, '-'), 'abb'.split(/b/y)]`,
	`const t = 'ab,c\n'.repeat(2e4); return [t.split(/\n/).length, t.split(/(,)/).length, t.split(/,/, 3), t.match(/[a-z]+/g).length, t.replace(/,/g, '').length]`,
	`const r = /a/g; r.test('aa'); return [r.lastIndex, 'aaa'.replace(r, 'b'), r.lastIndex, 'aaa'.match(r).length, (r.lastIndex = 2, 'aaa'.split(r)), r.lastIndex]`,
	`const log = []; for (const f of [() => 'a'.matchAll(/a/), () => 'a'.replaceAll(/a/, ''), () => RegExp.prototype[Symbol.match].call(1, 'a'), () => RegExp.prototype[Symbol.split].call({flags: ''}, 'a'), () => new RegExp('(')]) try { f(); log.push('none') } catch (e) { log.push(e.name) } return log`,
	`return ['x'.toUpperCase(), 'X'.toLowerCase(), 'é'.normalize('NFD').length, 'a'.localeCompare('b'), encodeURIComponent('é'), decodeURIComponent('%41'), parseInt('12'), parseFloat('1.5'), 'a.b'.split('.'), 'abc'.split('', 2), 'abc'.split(), [1, [2, {}], null].join('-'), [, 1].toString(), new Set([1]).forEach(String), [1, 2].map(String), ['3', 1].map(Number).sort(), ['10', '10'].map(parseInt), [3, 1, 2].map(Math.sqrt.call, Number), ['b'].map(Function.prototype.call, String.prototype.toUpperCase)]`,
	`return [[].concat({length: 2, 0: 1, [Symbol.isConcatSpreadable]: true}, new Proxy([7], {}), {length: 1}, 'ab', [[1]], Object.assign([1, 2], {[Symbol.isConcatSpreadable]: false}).length), String.raw({raw: 'abc'}, 1, 2), String.raw({raw: {length: 1, 0: 'x'}}), BigInt('12') === 12n, BigInt.asIntN(8, 255n) < 0, 2n > 1, 1n == '1', typeof BigInt, BigInt.name, Object(1n) instanceof BigInt, Object(1n).constructor === BigInt]`,
}

// TestExpressions compares scripts with what the engine alone makes of them, in its fast
// way and where matches are timed.
func TestExpressions(t *testing.T) {
	for _, body := range expressions {
		if body[0] == '[' {
			body = "return " + body
		}
		v, err := goja.New().RunString(`JSON.stringify((function() { ` + body + ` })())`)
		if err != nil {
			t.Errorf("%s: the engine: %v", body, err)
			continue
		}
		for _, limit := range []time.Duration{400 * time.Millisecond, 20 * time.Second} {
			o := options()
			o.CompileTimeout, o.ExecutionTimeout = min(limit, 400*time.Millisecond), limit
			out, err := compileWith(t, `fromAll().when({T: function() { `+body+` }})`, o).Process(jsonEvent(`{}`))
			if err != nil && strings.Contains(err.Error(), "took too long") {
				continue // A busy machine; the longer limit does.
			}
			check.Must(t, err)
			check.Equal(t, string(out.State), v.String(), body)
			break
		}
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

// TestMatchesThatTakeLong: where calls may take longer than a match, a match that was cut off
// is a fault rather than one that found nothing.
func TestMatchesThatTakeLong(t *testing.T) {
	h := compile(t, `fromAll().when({T(s, e) { return /(?=a)(a+)+$/.test('a'.repeat(60) + 'b') }})`)
	_, err := h.Process(jsonEvent(`{}`))
	if f := fault(t, err); !strings.Contains(f.Message, "the regular expression took longer") {
		t.Error(f)
	}
	h = compile(t, `fromAll().when({T(s, e) { return ['aXbX'.replace(/x/gi, '-'), 'a1b'.split(/\d/), 'aa'.match(/a/g), [...'ab'.matchAll(/./g)].length, /b/y.test('ab')] }})`)
	check.Equal(t, string(process(t, h, jsonEvent(`{}`)).State), `["a-b-",["a","b"],["a","a"],2,false]`)
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
		`(() => { const t = new Set(); t.add(t); t.then = t.forEach; Promise.resolve(t); return 'thenable' })()`:                        `"thenable"`,
		`(() => { const p = Promise.resolve(), m = new Set(), f = m.forEach.bind(m, p.then.bind(p)); m.add(f); f(); return 'jobs' })()`: `"jobs"`,
		`String([1, [2, 3]])`: `"1,2,3"`,
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
		check.Equal(t, string(process(t, h, jsonEvent(`{}`)).State), want, source)
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
		check.Fails(t, check.Err(h.Process(jsonEvent(`{}`))), body, "no fault")
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
		check.Contains(t, fault(t, err).Message, "took too much memory", body, err)
	}
	// Garbage does not count as memory taken.
	runtime.GC()
	h := compileWith(t, `fromAll().when({T(s, e) { const x = 'x'.repeat(1e6); let n = 0; for (let i = 0; i < 300; i++) n += (x + i).length; return n }})`, o)
	process(t, h, jsonEvent(`{}`))
}

// keptWays are ways of keeping a text of 3 MB at each event.
var keptWays = map[string]string{
	"variable":  `kept.push(text())`,
	"closure":   `own.push(text())`,
	"functions": `const t = text(), f = kept; kept = () => [f, t]`,
	"map":       `for (let i = 0; i < 1e3; i++) (own[0] = own[0] || new Map()).set(n++, {i}); own[0].set(text(), n)`,
	"bound":     `kept = Math.max.bind(null, text(), kept)`,
	"state":     `(s.f = s.f || (() => []))[n] = text()`,
	"generator": `const g = (function*() { const t = text(); yield n; yield t })(); g.next(); own.push(g)`,
}

// TestKeptMemory: a script that keeps more and more from one event to the next ends in a fault.
func TestKeptMemory(t *testing.T) {
	const begin = `let n = 0, kept = []; const text = () => 'x'.repeat(3e6) + n++; fromAll().when((() => { const own = []; return {$init: () => ({}), T(s, e) { `
	for name, body := range keptWays {
		t.Run(name, func(t *testing.T) {
			h := compile(t, begin+body+` }} })())`)
			var last []byte
			for range 200 {
				check.Must(t, h.Load("", last))
				out, err := h.Process(jsonEvent(`{}`))
				if err != nil {
					check.Contains(t, fault(t, err).Message, "keeps too much memory in its variables and its state: more than 64 MiB")
					return
				}
				last = out.State
			}
			t.Error("no fault")
		})
	}
}

// TestLargeBodies: bodies of 4 MiB are read and written whole.
func TestLargeBodies(t *testing.T) {
	body := "[" + strings.Repeat(order+",", (4<<20)/len(order)-1) + order + "]"
	h := compile(t, `fromAll().when({T(s, e) { return e.body.length }, U(s, e) { return e.body }})`)
	check.Equal(t, string(process(t, h, jsonEvent(body)).State), strconv.Itoa((4<<20)/len(order)))
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
	if each > 75<<10 {
		t.Errorf("an idle handler costs %d bytes", each)
	}
	for _, h := range handlers {
		h.Close()
	}
}
