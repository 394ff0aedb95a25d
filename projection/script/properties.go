package script

import (
	"fmt"
	"strings"
	"sync"
	"unicode"

	"github.com/dop251/goja"
)

// expandProperties writes the Unicode property escapes \p{…} and \P{…} of a pattern with the flag u
// out as the characters that they stand for: the engine takes them for the letter p. The tables are
// those of package unicode. The error is a text for a SyntaxError.
func expandProperties(pattern string) (string, error) {
	if !strings.Contains(pattern, `\p{`) && !strings.Contains(pattern, `\P{`) {
		return pattern, nil
	}
	var b strings.Builder
	inClass := false
	for i := 0; i < len(pattern); i++ {
		c := pattern[i]
		switch {
		case c == '\\' && i+1 < len(pattern):
			i++
			if pattern[i] != 'p' && pattern[i] != 'P' || !strings.HasPrefix(pattern[i+1:], "{") {
				b.WriteByte(c)
				b.WriteByte(pattern[i])
				continue
			}
			end := strings.IndexByte(pattern[i:], '}')
			if end < 0 {
				return "", fmt.Errorf("invalid property name in the expression: %.100s", pattern)
			}
			name := pattern[i+2 : i+end]
			ranges, err := propertyRanges(name, pattern[i] == 'P')
			if err != nil {
				return "", err
			}
			if i += end; inClass {
				b.WriteString(ranges)
			} else {
				b.WriteString("[" + ranges + "]")
			}
			continue
		case c == '[':
			inClass = true
		case c == ']':
			inClass = false
		}
		b.WriteByte(c)
	}
	return b.String(), nil
}

// binaryProperties are the properties without a value that are made of several tables.
var binaryProperties = map[string][]*unicode.RangeTable{
	"Alphabetic": {unicode.L, unicode.Nl, unicode.Other_Alphabetic},
	"Lowercase":  {unicode.Ll, unicode.Other_Lowercase},
	"Uppercase":  {unicode.Lu, unicode.Other_Uppercase},
}

// shortProperties are the short names of properties.
var shortProperties = map[string]string{"Alpha": "Alphabetic", "Lower": "Lowercase", "Upper": "Uppercase", "space": "White_Space", "AHex": "ASCII_Hex_Digit", "Hex": "Hex_Digit"}

// tablesOf returns the tables of a property, as it stands between the braces.
func tablesOf(name string) []*unicode.RangeTable {
	kind, value, hasValue := strings.Cut(name, "=")
	switch {
	case !hasValue:
		value = kind
		if long, ok := shortProperties[value]; ok {
			value = long
		}
		if tables, ok := binaryProperties[value]; ok {
			return tables
		}
		if t, ok := unicode.Properties[value]; ok && !strings.HasPrefix(value, "Other_") {
			return []*unicode.RangeTable{t}
		}
	case kind == "Script" || kind == "sc":
		if t, ok := unicode.Scripts[value]; ok {
			return []*unicode.RangeTable{t}
		}
		return nil
	case kind != "General_Category" && kind != "gc":
		return nil
	}
	if short, ok := unicode.CategoryAliases[value]; ok {
		value = short
	}
	if t, ok := unicode.Categories[value]; ok {
		return []*unicode.RangeTable{t}
	}
	return nil
}

// expanded remembers what properties stand for: their tables have hundreds of ranges. There are
// some hundred names.
var expanded sync.Map

// propertyRanges returns the characters of a property, or all others, as they stand in a class.
func propertyRanges(name string, inverted bool) (string, error) {
	key := fmt.Sprint(inverted, name)
	if v, ok := expanded.Load(key); ok {
		return v.(string), nil
	}
	var has func(r rune) bool
	switch tables := tablesOf(name); {
	case name == "Any":
		has = func(rune) bool { return true }
	case name == "ASCII":
		has = func(r rune) bool { return r < 0x80 }
	case name == "Assigned":
		has = func(r rune) bool { return !unicode.Is(unicode.Cn, r) }
	case tables != nil:
		has = func(r rune) bool { return unicode.In(r, tables...) }
	default:
		return "", fmt.Errorf("the property %.100q of expressions is not known here: general categories, scripts, Alphabetic, Uppercase, Lowercase, White_Space and some more are", name)
	}
	var b strings.Builder
	for from, r := rune(-1), rune(0); r <= unicode.MaxRune+1; r++ {
		// A text in which they stand alone has U+FFFD for the engine.
		isSurrogate := r >= 0xd800 && r < 0xe000
		switch is := r <= unicode.MaxRune && !isSurrogate && has(r) != inverted; {
		case is && from < 0:
			from = r
		case !is && from >= 0:
			fmt.Fprintf(&b, `\u{%x}-\u{%x}`, from, r-1)
			from = -1
		}
	}
	expanded.Store(key, b.String())
	return b.String(), nil
}

// expandArguments does so in what an expression is made of. A script that knows no properties is
// left alone.
func (x *expressions) expandArguments(args []goja.Value) []goja.Value {
	if len(args) < 2 || goja.IsUndefined(args[1]) || !strings.Contains(args[1].String(), "u") {
		return args
	}
	pattern := args[0]
	if o, ok := pattern.(*goja.Object); ok && o.ClassName() == "RegExp" {
		pattern = o.Get("source")
	}
	old := pattern.String()
	text, err := expandProperties(old)
	if err != nil {
		x.e.throwError("SyntaxError", "%v", err)
	}
	if text == old {
		return args
	}
	return append([]goja.Value{x.e.rt.ToValue(text)}, args[1:]...)
}
