package script

import (
	"math"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/dlclark/regexp2/v2"
	"github.com/dop251/goja"
)

const (
	// maxItems bounds the arrays that functions of the engine go through, and what they make.
	maxItems = 2 << 20
	// maxUnits bounds the texts that they make, in UTF-16 units.
	maxUnits = 8 << 20
	// maxBuffer bounds the bytes of an ArrayBuffer.
	maxBuffer = 4 << 20
	// maxNested is how many functions of the engine may call the script within each other.
	maxNested = 250
	// matchTimeout bounds one match of a regular expression, which no interrupt reaches.
	matchTimeout = 500 * time.Millisecond
)

// setMatchTimeout bounds the matches of expressions that the engine cannot run in
// linear time. The engine takes an expired match for one that found nothing.
var setMatchTimeout = sync.OnceFunc(func() { regexp2.DefaultMatchTimeout = matchTimeout })

// arrayMethods go through an array of the length that it claims.
const arrayMethods = "copyWithin every fill filter find findIndex findLast findLastIndex flatMap forEach includes indexOf lastIndexOf " +
	"map pop push reduce reduceRight reverse shift slice some sort splice unshift toReversed toSorted toSpliced with"

var fromWord = regexp.MustCompile(`from\b`)

// naming returns a function that says whether a script may name something. That fromAll
// and its like begin with it is no use of from.
func naming(source string) func(string) bool {
	return func(name string) bool {
		if name == "from" {
			return fromWord.MatchString(source)
		}
		return strings.Contains(source, name)
	}
}

// boundBuiltins puts checks in front of the functions of the engine whose work is not
// bounded by the size of what exists already. Within them no interrupt is seen. Those
// that the script does not name are taken away instead: a check costs a kilobyte.
func (h *Handler) boundBuiltins(source string) {
	named := naming(source)
	h.arrays = h.prototype("Array")
	h.boundExpressions(source) // It takes functions that are bounded behind it.
	arrays := h.arrays
	check := func(o *goja.Object, name string, check func(goja.FunctionCall)) {
		if named(name) {
			h.checked(o, name, check)
		} else {
			h.must(o.Delete(name))
		}
	}
	callbacks := strings.Fields(arrayCallbacks)
	for name := range strings.FieldsSeq(arrayMethods) {
		if !named(name) {
			h.must(arrays.Delete(name))
			continue
		}
		calls := slices.Contains(callbacks, name)
		if calls {
			h.knowTexts()
		}
		h.changed(arrays, name, func(call goja.FunctionCall) goja.FunctionCall {
			if call.This = h.measured(call.This); calls {
				call.Arguments = h.interruptible(call.Arguments, 0)
			}
			return call
		})
	}
	h.must(arrays.Delete("toLocaleString")) // That of objects does the same.
	h.checked(arrays, "values", h.checkThis)
	h.changed(arrays, "join", func(call goja.FunctionCall) goja.FunctionCall {
		call.This = h.texts(call.This)
		h.checkJoin(call)
		return call
	})
	h.checked(arrays, "toString", h.checkThis)
	if !named("concat") {
		h.must(arrays.Delete("concat"))
	} else {
		h.isArray, _ = goja.AssertFunction(h.object("Array").Get("isArray"))
		h.changed(arrays, "concat", h.checkConcat)
	}
	if h.must(arrays.Delete("flat")); named("flat") {
		h.method(arrays, "flat", h.flat)
	}
	h.must(arrays.DefineDataPropertySymbol(goja.SymIterator, arrays.Get("values"), goja.FLAG_TRUE, goja.FLAG_TRUE, goja.FLAG_FALSE))

	arguments := func(o *goja.Object, name string, i int) {
		if !named(name) {
			h.must(o.Delete(name))
			return
		}
		h.changed(o, name, func(call goja.FunctionCall) goja.FunctionCall {
			call.Arguments = h.checkArguments(call.Arguments, i)
			return call
		})
	}
	arguments(h.prototype("Function"), "apply", 1)
	arguments(h.object("Reflect"), "apply", 2)
	arguments(h.object("Reflect"), "construct", 1)

	texts := h.prototype("String")
	check(texts, "repeat", func(call goja.FunctionCall) {
		h.checkUnits(float64(units(call.This)) * call.Argument(0).ToFloat())
	})
	check(texts, "padStart", func(call goja.FunctionCall) { h.checkUnits(call.Argument(0).ToFloat()) })
	check(texts, "padEnd", func(call goja.FunctionCall) { h.checkUnits(call.Argument(0).ToFloat()) })
	check(texts, "concat", func(call goja.FunctionCall) {
		n := units(call.This)
		for _, a := range call.Arguments {
			n += units(a)
		}
		h.checkUnits(float64(n))
	})
	for _, name := range []string{"replace", "replaceAll"} {
		if !named(name) {
			h.must(texts.Delete(name))
			continue
		}
		h.changed(texts, name, func(call goja.FunctionCall) goja.FunctionCall {
			h.checkReplace(call)
			if _, ok := call.Argument(0).(*goja.Object); !ok { // Expressions do so themselves.
				if _, ok := goja.AssertFunction(call.Argument(1)); ok {
					call.Arguments = withArgument(call.Arguments, 1, h.replacement(call.Argument(1)))
				}
			}
			return call
		})
	}
	if !named("raw") {
		h.must(h.object("String").Delete("raw"))
	} else {
		h.changed(h.object("String"), "raw", func(call goja.FunctionCall) goja.FunctionCall {
			if o, ok := call.Argument(0).(*goja.Object); ok {
				template := h.rt.NewObject()
				h.must(template.Set("raw", h.parts(o.Get("raw"))))
				call.Arguments = withArgument(call.Arguments, 0, template)
			}
			return call
		})
	}
	check(texts, "split", h.checkPieces)
	for name := range strings.FieldsSeq("toUpperCase toLowerCase toLocaleUpperCase toLocaleLowerCase") {
		check(texts, name, func(goja.FunctionCall) {})
	}
	for name := range strings.FieldsSeq("encodeURIComponent encodeURI decodeURIComponent decodeURI escape unescape parseInt parseFloat") {
		if named(name) || reachesGlobal(source) {
			check(h.rt.GlobalObject(), name, func(goja.FunctionCall) {})
		}
	}
	check(texts, "normalize", h.checkShort)
	check(texts, "localeCompare", h.checkShort)
	h.boundBuffers(named, reachesGlobal(source))
	h.boundTexts()
	if named("asIntN") || named("asUintN") || mayGrow(source) {
		h.boundBigInts()
	} else if reachesGlobal(source) {
		h.must(h.object("BigInt").Delete("asIntN"))
		h.must(h.object("BigInt").Delete("asUintN"))
	}
	if mayBeBig(source) {
		h.boundDigits()
	}
}

func (h *Handler) object(name string) *goja.Object { return h.rt.Get(name).(*goja.Object) }

// checked puts a check in front of a method.
func (h *Handler) checked(o *goja.Object, name string, check func(goja.FunctionCall)) {
	h.changed(o, name, func(call goja.FunctionCall) goja.FunctionCall {
		check(call)
		return call
	})
}

// changed puts a check in front of a method that may give it something else to work on.
func (h *Handler) changed(o *goja.Object, name string, change func(goja.FunctionCall) goja.FunctionCall) {
	old, ok := o.Get(name).(*goja.Object)
	if !ok {
		return
	}
	fn, _ := goja.AssertFunction(old)
	h.method(o, name, func(call goja.FunctionCall) goja.Value {
		if h.nested >= maxNested {
			h.throwError("RangeError", "%s: more than %d functions of the engine within each other", name, maxNested)
		}
		h.nested++
		defer func() { h.nested-- }()
		h.alive()
		this := call.This
		call = change(call)
		v, err := fn(call.This, call.Arguments...)
		h.must(err)
		if o, ok := v.(*goja.Object); ok && o.SameAs(call.This) {
			return this
		}
		return v
	})
	h.must(o.Get(name).(*goja.Object).DefineDataProperty("length", old.Get("length"), goja.FLAG_FALSE, goja.FLAG_TRUE, goja.FLAG_FALSE))
}

func (h *Handler) checkThis(call goja.FunctionCall) { h.length(call.This) }

// measured is what a method of arrays works on: an array, or another object with the
// length that it has now. A getter might say another one the next time.
func (h *Handler) measured(v goja.Value) goja.Value {
	o, ok := v.(*goja.Object)
	if !ok || o.ClassName() == "Array" || isBytes(o) {
		h.length(v)
		return v
	}
	n := h.rt.ToValue(h.length(o))
	return h.rt.ToValue(h.rt.NewProxy(o, &goja.ProxyTrapConfig{
		Get: func(o *goja.Object, name string, _ goja.Value) goja.Value {
			if name == "length" {
				return n
			}
			return o.Get(name)
		},
		GetSym: func(o *goja.Object, name *goja.Symbol, _ goja.Value) goja.Value { return o.GetSymbol(name) },
	}))
}

// length is that of an array, or of what is used as one.
func (h *Handler) length(v goja.Value) int64 {
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
		h.throwError("RangeError", "an array of %.0f elements is too long: at most %d can be worked on", n, maxItems)
	}
	if math.IsNaN(n) {
		return 0
	}
	return int64(n)
}

// checkArguments bounds a list of arguments, which is one of the arguments itself. The
// length of an array is the same when it is asked for again; that of anything else may not be.
func (h *Handler) checkArguments(args []goja.Value, i int) []goja.Value {
	if i >= len(args) {
		return args
	}
	o, ok := args[i].(*goja.Object)
	switch {
	case !ok:
		return args
	case o.ClassName() == "Array":
		h.length(o)
		return args
	}
	return withArgument(args, i, h.copied(o))
}

// withArgument never changes the arguments themselves, which may be those of an array of the script.
func withArgument(args []goja.Value, i int, v goja.Value) []goja.Value {
	args = slices.Clone(args)
	args[i] = v
	return args
}

func (h *Handler) checkUnits(n float64) {
	if n > maxUnits {
		h.throwError("RangeError", "a text of %.0f characters is too long: at most %d can be made", n, maxUnits)
	}
}

// units is the length of a text.
func units(v goja.Value) int {
	if s, ok := v.(goja.String); ok {
		return s.Length()
	}
	return 0
}

// checkJoin bounds what is between the elements; texts has looked at these.
func (h *Handler) checkJoin(call goja.FunctionCall) {
	h.checkUnits(float64(int64(units(call.Argument(0))+1) * h.length(call.This)))
}

func (h *Handler) checkConcat(call goja.FunctionCall) goja.FunctionCall {
	call.This, call.Arguments = h.spreadable(call.This), slices.Clone(call.Arguments)
	n := h.length(call.This)
	for i, a := range call.Arguments {
		a = h.spreadable(a)
		call.Arguments[i] = a
		if n += h.length(a); n > maxItems {
			h.throwError("RangeError", "an array of %d elements is too long: at most %d can be worked on", n, maxItems)
		}
	}
	return call
}

// checkReplace bounds what a replacement can make of a text at worst: one at every
// place, each of which may repeat the whole text.
func (h *Handler) checkReplace(call goja.FunctionCall) {
	by, ok := call.Argument(1).(goja.String)
	if !ok || by.Length() < 64 && !strings.Contains(by.String(), "$") {
		return
	}
	this, with := float64(units(call.This)), by.String()
	repeats := float64(strings.Count(with, "$"))
	if pattern, ok := call.Argument(0).(goja.String); ok {
		places := float64(strings.Count(call.This.String(), pattern.String()))
		h.checkUnits(places*float64(len(with)) + repeats*this*places)
		return
	}
	// An expression's matches are known only when it ran.
	if (this+1)*float64(len(with))+repeats*this > 16*maxUnits {
		h.checkUnits((this + 1) * float64(len(with)))
	}
}

// flat is Array.prototype.flat.
func (h *Handler) flat(call goja.FunctionCall) goja.Value {
	o, ok := call.This.(*goja.Object)
	if !ok {
		h.throw("flat needs an array")
	}
	depth := 1.0
	if d := call.Argument(0); !goja.IsUndefined(d) {
		depth = d.ToFloat()
	}
	var list []any
	seen := 0
	var walk func(o *goja.Object, depth float64, level int)
	walk = func(o *goja.Object, depth float64, level int) {
		if level > maxNested {
			h.throwError("RangeError", "flat: arrays nested deeper than %d levels", maxNested)
		}
		for i := range h.length(o) {
			if seen++; seen&0xfff == 0 {
				h.alive()
			}
			if len(list) >= maxItems {
				h.throwError("RangeError", "flat: more than %d elements", maxItems)
			}
			v := h.index(o, i)
			if inner, ok := v.(*goja.Object); ok && depth >= 1 && inner.ClassName() == "Array" {
				seen += 100
				h.alive()
				walk(inner, depth-1, level+1)
			} else if v != nil {
				list = append(list, v)
			}
		}
	}
	walk(o, depth, 0)
	return h.rt.NewArray(list...)
}

// timeMatches makes a match that took too long a fault where the time limit of calls
// does not: the engine would say that nothing was found.
func (h *Handler) timeMatches() {
	expressions := h.prototype("RegExp")
	for _, name := range []string{"exec", "test"} {
		match, _ := goja.AssertFunction(expressions.Get(name))
		h.method(expressions, name, func(call goja.FunctionCall) goja.Value {
			began := time.Now()
			v, err := match(call.This, call.Arguments...)
			h.must(err)
			if !v.ToBoolean() && time.Since(began) >= matchTimeout {
				h.throwError("RangeError", "the regular expression took longer than %v", matchTimeout)
			}
			return v
		})
	}
}

// bufferClasses make arrays of bytes of a given length.
const bufferClasses = "ArrayBuffer Int8Array Uint8Array Uint8ClampedArray Int16Array Uint16Array Int32Array Uint32Array " +
	"Float32Array Float64Array"

// bigClasses make BigInts of texts of any length, where nothing could look at these.
const bigClasses = "BigInt64Array BigUint64Array DataView"

// boundBuffers puts constructors that check the length in the place of the engine's. A
// script that names neither them nor the global object cannot reach them: they are
// left alone then, as two kilobytes each appear when they are touched.
func (h *Handler) boundBuffers(named func(string) bool, reachable bool) {
	global := h.rt.GlobalObject()
	if reachable || named("Big") || named("DataView") {
		for name := range strings.FieldsSeq(bigClasses) {
			h.must(global.Delete(name))
		}
	}
	for name := range strings.FieldsSeq(bufferClasses) {
		if !named(name) {
			if reachable {
				h.must(global.Delete(name))
			}
		} else if class, ok := global.Get(name).(*goja.Object); ok {
			if name != "ArrayBuffer" {
				h.boundBytes(class.Prototype(), named)
			}
			h.boundClass(name, class)
		}
	}
}

// boundBytes bounds what all typed arrays have in common.
func (h *Handler) boundBytes(class *goja.Object, named func(string) bool) {
	if h.bytes {
		return
	}
	h.bytes = true
	h.lockArrays()
	h.listed(class, "from", named)
	prototype := class.Get("prototype").(*goja.Object)
	h.boundCallbacks(prototype, "every filter find findIndex findLast findLastIndex forEach map reduce reduceRight some sort toSorted", 0, named)
	h.must(prototype.Delete("toLocaleString"))
	h.checked(prototype, "join", h.checkJoin)
	h.changed(prototype, "set", func(call goja.FunctionCall) goja.FunctionCall {
		if o, ok := call.Argument(0).(*goja.Object); ok && o.ClassName() != "Array" && !isBytes(o) {
			call.Arguments = withArgument(call.Arguments, 0, h.copied(o))
		}
		return call
	})
}

func (h *Handler) boundClass(name string, class *goja.Object) {
	size := 1.0
	if n := class.Get("BYTES_PER_ELEMENT"); n != nil {
		size = n.ToFloat()
	}
	h.replaceConstructor(name, class, func(args []goja.Value) []goja.Value {
		if len(args) == 0 {
			return args
		}
		n := args[0].ToFloat
		if o, ok := args[0].(*goja.Object); ok {
			if name != "ArrayBuffer" && !isBytes(o) {
				o = h.list(o).(*goja.Object)
				args = withArgument(args, 0, o)
			}
			n = func() float64 { return float64(h.length(o)) }
		}
		if bytes := n() * size; bytes > maxBuffer {
			h.throwError("RangeError", "%.0f bytes are too many: at most %d can be had", bytes, maxBuffer)
		}
		return args
	})
}

// replaceConstructor puts a constructor in the place of another one, which checks what it is
// given and may change it.
func (h *Handler) replaceConstructor(name string, class *goja.Object, change func([]goja.Value) []goja.Value) {
	construct, _ := goja.AssertConstructor(class)
	replaced := h.rt.ToValue(func(call goja.ConstructorCall) *goja.Object {
		h.alive()
		o, err := construct(call.NewTarget, change(call.Arguments)...)
		h.must(err)
		return o
	}).(*goja.Object)
	h.replaceClass(name, class, replaced)
}

// replaceClass puts one in the place of another. That one is nowhere to be found, so it
// has the properties itself.
func (h *Handler) replaceClass(name string, class, by *goja.Object) {
	prototype := class.Get("prototype").(*goja.Object)
	h.must(by.DefineDataProperty("name", h.rt.ToValue(name), goja.FLAG_FALSE, goja.FLAG_TRUE, goja.FLAG_FALSE))
	h.must(by.DefineDataProperty("prototype", prototype, goja.FLAG_FALSE, goja.FLAG_FALSE, goja.FLAG_FALSE))
	for _, name := range class.GetOwnPropertyNames() {
		if name != "name" && name != "length" && name != "prototype" {
			h.must(by.DefineDataProperty(name, class.Get(name), goja.FLAG_TRUE, goja.FLAG_TRUE, goja.FLAG_FALSE))
		}
	}
	if class.GetSymbol(goja.SymSpecies) != nil {
		h.must(by.DefineAccessorPropertySymbol(goja.SymSpecies, h.function("get [Symbol.species]", func(call goja.FunctionCall) goja.Value { return call.This }),
			nil, goja.FLAG_TRUE, goja.FLAG_FALSE))
	}
	h.must(by.SetPrototype(class.Prototype()))
	h.must(prototype.DefineDataProperty("constructor", by, goja.FLAG_TRUE, goja.FLAG_TRUE, goja.FLAG_FALSE))
	h.must(h.rt.GlobalObject().DefineDataProperty(name, by, goja.FLAG_TRUE, goja.FLAG_TRUE, goja.FLAG_FALSE))
}

// index is an element of an array.
func (h *Handler) index(o *goja.Object, i int64) goja.Value {
	return o.Get(strconv.FormatInt(i, 10))
}

// parts are those of a template, whose length is asked for once.
func (h *Handler) parts(v goja.Value) goja.Value {
	o, ok := v.(*goja.Object)
	if !ok || o.ClassName() == "Array" {
		h.length(v)
		return v
	}
	return h.copied(o)
}
