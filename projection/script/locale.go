package script

import (
	"math"
	"math/big"
	"regexp"
	"strings"
	"time"

	"github.com/dop251/goja"
	"golang.org/x/text/language"
	"golang.org/x/text/message"
	"golang.org/x/text/number"
)

// maxFractionDigits is the most that a number is shown with, as ECMA-402 has it.
const maxFractionDigits = 100

// boundLocales has numbers shown as their locale writes them, where the engine takes the locale for
// a radix, and refuses with a text what it would show otherwise than other engines do: dates but in
// English, and lists.
func (b *bounds) boundLocales() {
	if !b.e.named("toLocale") && !reachesGlobal(b.e.source) {
		return
	}
	numbers := func(call goja.FunctionCall) goja.Value { return b.e.rt.ToValue(b.localNumber(call)) }
	b.e.method(b.e.prototype("Number"), "toLocaleString", numbers)
	b.e.method(b.e.prototype("BigInt"), "toLocaleString", numbers)
	b.e.method(b.e.prototype("Array"), "toLocaleString", func(goja.FunctionCall) goja.Value {
		b.e.throw("toLocaleString of an array is not supported in projections: map its elements and join them")
		return nil
	})
	for name, layout := range map[string]string{
		"toLocaleString": "1/2/2006, 3:04:05 PM", "toLocaleDateString": "1/2/2006", "toLocaleTimeString": "3:04:05 PM",
	} {
		b.e.method(b.e.prototype("Date"), name, func(call goja.FunctionCall) goja.Value { return b.e.rt.ToValue(b.localTime(call, name, layout)) })
	}
}

// locale is the language that a value is to be shown in; without one it is English as in the United
// States.
func (b *bounds) locale(v goja.Value) language.Tag {
	if o, ok := v.(*goja.Object); ok && o.ClassName() == "Array" {
		v = b.e.index(o, 0)
	}
	if v == nil || goja.IsUndefined(v) {
		return language.AmericanEnglish
	}
	name := v.String()
	tag, err := language.Parse(name)
	if err != nil || len(name) > 100 {
		b.e.throwError("RangeError", "Incorrect locale information provided: %.100s", name)
	}
	return tag
}

// localNumber shows a number.
func (b *bounds) localNumber(call goja.FunctionCall) string {
	print := message.NewPrinter(b.locale(call.Argument(0)))
	show, options := number.Decimal, []number.Option{number.MaxFractionDigits(3)}
	if o, ok := call.Argument(1).(*goja.Object); ok {
		show, options = b.numberOptions(o)
	}
	switch v := call.This.Export().(type) {
	case int64:
		return print.Sprint(show(v, options...))
	case float64:
		switch {
		case math.IsNaN(v):
			return "NaN"
		case math.IsInf(v, 0):
			return strings.TrimPrefix("-∞", map[bool]string{true: "", false: "-"}[v < 0])
		}
		return print.Sprint(show(v, options...))
	case *big.Int:
		if v.IsInt64() {
			return print.Sprint(show(v.Int64(), options...))
		}
		b.e.throwError("RangeError", "toLocaleString of a BigInt beyond 64 bits is not supported in projections")
	}
	b.e.throw("toLocaleString needs a number")
	return ""
}

type showNumber = func(x any, options ...number.Option) number.Formatter

// numberOptions reads the options of ECMA-402 that are known here.
func (b *bounds) numberOptions(o *goja.Object) (showNumber, []number.Option) {
	show, least, most := number.Decimal, -1, -1
	var options []number.Option
	digits := func(v goja.Value) int {
		n := v.ToFloat()
		if !(n >= 0 && n <= maxFractionDigits) {
			b.e.throwError("RangeError", "a number of digits is out of range: %v", n)
		}
		return int(n)
	}
	for _, name := range o.Keys() {
		v := o.Get(name)
		switch {
		case goja.IsUndefined(v):
		case name == "minimumFractionDigits":
			least = digits(v)
		case name == "maximumFractionDigits":
			most = digits(v)
		case name == "minimumIntegerDigits":
			options = append(options, number.MinIntegerDigits(digits(v)))
		case name == "useGrouping" && !v.ToBoolean():
			options = append(options, number.NoSeparator())
		case name == "useGrouping", name == "style" && v.String() == "decimal":
		case name == "style" && v.String() == "percent":
			show = number.Percent
			most = max(most, 0)
		default:
			b.e.throw("toLocaleString: the option %.100s: %.100s is not supported in projections", name, v.String())
		}
	}
	if most < 0 {
		most = max(3, least)
	}
	if least > most {
		b.e.throwError("RangeError", "maximumFractionDigits value is out of range.")
	}
	options = append(options, number.MinFractionDigits(max(least, 0)), number.MaxFractionDigits(most))
	return show, options
}

// localTime shows a time as English of the United States does, in UTC, which is the zone of all
// scripts.
func (b *bounds) localTime(call goja.FunctionCall, name, layout string) string {
	tag := b.locale(call.Argument(0))
	o, hasOptions := call.Argument(1).(*goja.Object)
	if tag != language.AmericanEnglish && tag != language.English {
		b.e.throw("%s: only the locale en-US is supported for dates in projections", name)
	}
	if hasOptions {
		for _, key := range o.Keys() {
			if v := o.Get(key); key != "timeZone" || v.String() != "UTC" {
				b.e.throw("%s: the option %.100s: %.100s is not supported for dates in projections", name, key, v.String())
			}
		}
	}
	at, ok := call.This.Export().(time.Time)
	if !ok {
		if d, isObject := call.This.(*goja.Object); isObject && d.ClassName() == "Date" {
			return "Invalid Date"
		}
		b.e.throw("%s needs a date", name)
	}
	return at.UTC().Format(layout)
}

// lowerTime is a time of RFC 3339 with small letters, which that allows and V8 reads.
var lowerTime = regexp.MustCompile(`^\d{4}-\d\d-\d\d[tT]\d\d:\d\d(:\d\d(\.\d+)?)?([zZ]|[+-]\d\d:\d\d)?$`)

// boundDates has dates made of texts with a small t and z, of which the engine makes none.
func (b *bounds) boundDates() {
	if !b.e.named("Date") && !reachesGlobal(b.e.source) {
		return
	}
	upper := func(args []goja.Value) []goja.Value {
		if len(args) == 1 {
			if s, ok := args[0].(goja.String); ok && s.Length() < 64 && lowerTime.MatchString(s.String()) {
				return []goja.Value{b.e.rt.ToValue(strings.ToUpper(s.String()))}
			}
		}
		return args
	}
	dates := b.e.object("Date")
	b.e.changed(dates, "parse", func(call goja.FunctionCall) goja.FunctionCall {
		call.Arguments = upper(call.Arguments)
		return call
	})
	by := b.e.help("dates", dates, func(call goja.FunctionCall) goja.Value { return upper(call.Arguments)[0] })
	b.e.replaceClass("Date", dates, by)
	b.e.must(by.DefineDataProperty("length", b.e.rt.ToValue(7), goja.FLAG_FALSE, goja.FLAG_TRUE, goja.FLAG_FALSE))
}
