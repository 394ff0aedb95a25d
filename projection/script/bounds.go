package script

import (
	"math/big"
	"regexp"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/dlclark/regexp2/v2"
	"github.com/dop251/goja"
)

const (
	// maxItems bounds the arrays that functions of the engine go through, and their results.
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

// named says whether the script may name something. That fromAll and its like begin with it does
// not count as a use of from.
func (e *engine) named(name string) bool {
	if name == "from" {
		return fromWord.MatchString(e.source)
	}
	return strings.Contains(e.source, name)
}

// bounds are checks in front of the functions of the engine whose work is not bounded by
// the size of what exists already.
type bounds struct {
	e           *engine
	lists       *lists
	expressions *expressions
	isArray     goja.Callable  // Array.isArray
	joined      []*goja.Object // whose elements are being made a text
	bytes       bool           // typed arrays are bounded
}

// boundBuiltins puts checks in front of the functions of the engine whose work is not
// bounded by the size of what exists already. Within them no interrupt is seen. Those
// that the script does not name are taken away instead.
func (b *bounds) boundBuiltins() {
	named, source := b.e.named, b.e.source
	b.lists.arrays = b.e.prototype("Array")
	b.lists.begin()
	b.expressions.boundExpressions() // It takes functions that are bounded later.
	b.boundDates()                   // Likewise.
	arrays := b.lists.arrays
	check := func(o *goja.Object, name string, check func(goja.FunctionCall)) {
		b.e.bound(o, name, func(call goja.FunctionCall) goja.FunctionCall {
			check(call)
			return call
		})
	}
	callbacks := strings.Fields(arrayCallbacks)
	for name := range strings.FieldsSeq(arrayMethods) {
		calls := slices.Contains(callbacks, name)
		b.e.bound(arrays, name, func(call goja.FunctionCall) goja.FunctionCall {
			if call.This = b.e.measured(call.This); calls {
				call.Arguments = b.e.interruptible(call.Arguments, 0)
			}
			return call
		})
	}
	b.e.must(arrays.Delete("toLocaleString")) // That of objects does the same.
	b.e.checked(arrays, "values", b.checkThis)
	b.e.changed(arrays, "join", func(call goja.FunctionCall) goja.FunctionCall {
		call.This = b.texts(call.This)
		b.checkJoin(call)
		return call
	})
	b.e.checked(arrays, "toString", b.checkThis)
	b.isArray, _ = goja.AssertFunction(b.e.object("Array").Get("isArray"))
	b.e.bound(arrays, "concat", b.checkConcat)
	if b.e.must(arrays.Delete("flat")); named("flat") {
		b.e.must(arrays.DefineDataProperty("flat", b.lists.helpers.Get("flat"), goja.FLAG_TRUE, goja.FLAG_TRUE, goja.FLAG_FALSE))
	}
	b.e.must(arrays.DefineDataPropertySymbol(goja.SymIterator, arrays.Get("values"), goja.FLAG_TRUE, goja.FLAG_TRUE, goja.FLAG_FALSE))

	arguments := func(o *goja.Object, name string, i int) {
		b.e.bound(o, name, func(call goja.FunctionCall) goja.FunctionCall {
			if i < len(call.Arguments) {
				call.Arguments = withArgument(call.Arguments, i, b.once(call.Arguments[i]))
			}
			return call
		})
	}
	arguments(b.e.prototype("Function"), "apply", 1)
	arguments(b.e.object("Reflect"), "apply", 2)
	arguments(b.e.object("Reflect"), "construct", 1)

	texts := b.e.prototype("String")
	check(texts, "repeat", func(call goja.FunctionCall) {
		b.e.checkUnits(float64(units(call.This)) * call.Argument(0).ToFloat())
	})
	check(texts, "padStart", func(call goja.FunctionCall) { b.e.checkUnits(call.Argument(0).ToFloat()) })
	check(texts, "padEnd", func(call goja.FunctionCall) { b.e.checkUnits(call.Argument(0).ToFloat()) })
	check(texts, "concat", func(call goja.FunctionCall) {
		n := units(call.This)
		for _, a := range call.Arguments {
			n += units(a)
		}
		b.e.checkUnits(float64(n))
	})
	for _, name := range []string{"replace", "replaceAll"} {
		b.e.bound(texts, name, func(call goja.FunctionCall) goja.FunctionCall {
			b.checkReplace(call)
			if _, ok := call.Argument(0).(*goja.Object); !ok { // Expressions do so themselves.
				if _, ok := goja.AssertFunction(call.Argument(1)); ok {
					call.Arguments = withArgument(call.Arguments, 1, b.expressions.replacement(call.Argument(1)))
				}
			}
			return call
		})
	}
	b.e.bound(b.e.object("String"), "raw", func(call goja.FunctionCall) goja.FunctionCall {
		if o, ok := call.Argument(0).(*goja.Object); ok {
			template := b.e.rt.NewObject()
			b.e.must(template.Set("raw", b.once(o.Get("raw"))))
			call.Arguments = withArgument(call.Arguments, 0, template)
		}
		return call
	})
	check(texts, "split", b.checkPieces)
	for name := range strings.FieldsSeq("toUpperCase toLowerCase toLocaleUpperCase toLocaleLowerCase") {
		check(texts, name, func(goja.FunctionCall) {})
	}
	for name := range strings.FieldsSeq("encodeURIComponent encodeURI decodeURIComponent decodeURI escape unescape parseInt parseFloat") {
		if named(name) || reachesGlobal(source) {
			check(b.e.rt.GlobalObject(), name, func(goja.FunctionCall) {})
		}
	}
	check(texts, "normalize", b.checkShort)
	check(texts, "localeCompare", b.checkShort)
	b.boundBuffers()
	b.boundLocales()
	b.boundTexts()
	if named("asIntN") || named("asUintN") || mayGrow(source) {
		b.boundBigInts()
	} else if reachesGlobal(source) {
		b.e.must(b.e.object("BigInt").Delete("asIntN"))
		b.e.must(b.e.object("BigInt").Delete("asUintN"))
	}
	if mayBeBig(source) {
		b.boundDigits()
	}
}

func (b *bounds) checkThis(call goja.FunctionCall) { b.e.length(call.This) }

// once is a list whose length is asked for once. That of an array is the same when it is
// asked for again; that of anything else may not be.
func (b *bounds) once(v goja.Value) goja.Value {
	o, ok := v.(*goja.Object)
	if !ok || o.ClassName() == "Array" {
		b.e.length(v)
		return v
	}
	return b.lists.help("copied", o)
}

// withArgument never changes the arguments themselves, which may be those of an array of the
// script.
func withArgument(args []goja.Value, i int, v goja.Value) []goja.Value {
	args = slices.Clone(args)
	args[i] = v
	return args
}

// units is the length of a text.
func units(v goja.Value) int {
	if s, ok := v.(goja.String); ok {
		return s.Length()
	}
	return 0
}

// checkJoin bounds what is between the elements; texts has looked at these.
func (b *bounds) checkJoin(call goja.FunctionCall) {
	b.e.checkUnits(float64(int64(units(call.Argument(0))+1) * b.e.length(call.This)))
}

func (b *bounds) checkConcat(call goja.FunctionCall) goja.FunctionCall {
	call.This, call.Arguments = b.spreadable(call.This), slices.Clone(call.Arguments)
	n := b.e.length(call.This)
	for i, a := range call.Arguments {
		a = b.spreadable(a)
		call.Arguments[i] = a
		if n += b.e.length(a); n > maxItems {
			b.e.throwError("RangeError", "an array of %d elements is too long: at most %d can be worked on", n, maxItems)
		}
	}
	return call
}

// checkReplace bounds what a replacement can make of a text at worst: one at every
// place, each of which may repeat the whole text.
func (b *bounds) checkReplace(call goja.FunctionCall) {
	by, ok := call.Argument(1).(goja.String)
	if !ok || by.Length() < 64 && !strings.Contains(by.String(), "$") {
		return
	}
	this, with := float64(units(call.This)), by.String()
	repeats := float64(strings.Count(with, "$"))
	if pattern, ok := call.Argument(0).(goja.String); ok {
		places := float64(strings.Count(call.This.String(), pattern.String()))
		b.e.checkUnits(places*float64(len(with)) + repeats*this*places)
		return
	}
	// An expression's matches are known only when it ran.
	if (this+1)*float64(len(with))+repeats*this > 16*maxUnits {
		b.e.checkUnits((this + 1) * float64(len(with)))
	}
}

// timeMatches makes a match that took too long a fault where the time limit of calls
// does not: the engine would say that nothing was found.
func (x *expressions) timeMatches() {
	expressions := x.e.prototype("RegExp")
	for _, name := range []string{"exec", "test"} {
		match, _ := goja.AssertFunction(expressions.Get(name))
		x.e.method(expressions, name, func(call goja.FunctionCall) goja.Value {
			began := time.Now()
			v, err := match(call.This, call.Arguments...)
			x.e.must(err)
			if !v.ToBoolean() && time.Since(began) >= matchTimeout {
				x.e.throwError("RangeError", "the regular expression took longer than %v", matchTimeout)
			}
			return v
		})
	}
}

// bufferClasses make arrays of bytes of a given length.
const bufferClasses = "ArrayBuffer Int8Array Uint8Array Uint8ClampedArray Int16Array Uint16Array Int32Array Uint32Array " +
	"Float32Array Float64Array"

// bigClasses make BigInts of texts of any length, where nothing could look at these.
const bigClasses = "BigInt64Array BigUint64Array"

// maxBigText bounds a text that a DataView makes a BigInt of.
const maxBigText = 100

// boundBuffers puts constructors that check the length in the place of the engine's. A
// script that names neither them nor the global object cannot reach them: they are
// left alone then, as two kilobytes each appear when they are touched.
func (b *bounds) boundBuffers() {
	global, named, reachable := b.e.rt.GlobalObject(), b.e.named, reachesGlobal(b.e.source)
	for name := range strings.FieldsSeq(bigClasses) {
		if reachable || named("Big") {
			b.refuseClass(name)
		}
	}
	switch {
	case named("DataView"):
		b.boundViews()
	case reachable:
		b.e.must(global.Delete("DataView"))
	}
	for name := range strings.FieldsSeq(bufferClasses) {
		if !named(name) {
			if reachable {
				b.e.must(global.Delete(name))
			}
		} else if class, ok := global.Get(name).(*goja.Object); ok {
			if name != "ArrayBuffer" {
				b.boundBytes(class.Prototype())
			}
			b.boundClass(name, class)
		}
	}
}

// refuseClass puts a constructor in the place of another that says that there is none.
func (b *bounds) refuseClass(name string) {
	b.e.must(b.e.rt.GlobalObject().Set(name, func(goja.ConstructorCall) *goja.Object {
		b.e.throw("%s is not supported in projections: use an array of BigInts", name)
		return nil
	}))
}

// boundViews bounds what the methods of DataView make BigInts of.
func (b *bounds) boundViews() {
	for _, name := range []string{"setBigInt64", "setBigUint64"} {
		b.e.checked(b.e.prototype("DataView"), name, func(call goja.FunctionCall) {
			if _, isBig := call.Argument(1).Export().(*big.Int); !isBig && units(call.Argument(1)) > maxBigText {
				b.e.throwError("RangeError", "%s: a text of %d characters is too long", name, units(call.Argument(1)))
			}
		})
	}
}

// boundBytes bounds what all typed arrays have in common.
func (b *bounds) boundBytes(class *goja.Object) {
	if b.bytes {
		return
	}
	b.bytes = true
	b.lists.lockArrays()
	b.lists.listed(class, "from")
	prototype := class.Get("prototype").(*goja.Object)
	b.e.boundCallbacks(prototype, "every filter find findIndex findLast findLastIndex forEach map reduce reduceRight some sort toSorted", 0)
	b.e.must(prototype.Delete("toLocaleString"))
	b.e.checked(prototype, "join", b.checkJoin)
	b.e.changed(prototype, "set", func(call goja.FunctionCall) goja.FunctionCall {
		if o, ok := call.Argument(0).(*goja.Object); ok && o.ClassName() != "Array" && !isBytes(o) {
			call.Arguments = withArgument(call.Arguments, 0, b.lists.help("copied", o))
		}
		return call
	})
}

func (b *bounds) boundClass(name string, class *goja.Object) {
	size := 1.0
	if n := class.Get("BYTES_PER_ELEMENT"); n != nil {
		size = n.ToFloat()
	}
	b.e.replaceConstructor(name, class, func(args []goja.Value) []goja.Value {
		if len(args) == 0 {
			return args
		}
		n := args[0].ToFloat
		if o, ok := args[0].(*goja.Object); ok {
			if name != "ArrayBuffer" && !isBytes(o) {
				o = b.lists.help("list", o).(*goja.Object)
				args = withArgument(args, 0, o)
			}
			n = func() float64 { return float64(b.e.length(o)) }
		}
		if bytes := n() * size; bytes > maxBuffer {
			b.e.throwError("RangeError", "%.0f bytes are too many: at most %d can be had", bytes, maxBuffer)
		}
		return args
	})
}
