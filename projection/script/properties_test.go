package script_test

import (
	"strings"
	"testing"

	"github.com/annalsdb/annals/internal/check"
)

// valueOf evaluates an expression in a handler and returns it as JSON, or as the text that it
// throws.
func valueOf(t *testing.T, expression string) string {
	t.Helper()
	h := compile(t, "fromAll().when({$any: function(s, e) { try { return {r: "+expression+"}; } catch (x) { return {r: 'throws ' + x}; } }})")
	return strings.TrimSuffix(strings.TrimPrefix(show(process(t, h, jsonEvent(`{}`)).State), `{"r":`), "}")
}

// TestAsOtherEngines: what other engines support gives what it gives there, or a text that says
// that it is not supported.
func TestAsOtherEngines(t *testing.T) {
	for _, c := range []struct{ expression, want string }{
		{`/\p{L}/u.test('a')`, `true`},
		{`/^[\p{L}\p{N} ]+$/u.test('Zoë 1')`, `true`},
		{`'Zoë Ünal'.replace(/[^\p{L}]/gu, '')`, `"ZoëÜnal"`},
		{`/\p{Lu}/u.test('a')`, `false`},
		{`/\p{Lu}/iu.test('a')`, `true`},
		{`/\P{L}/u.test('1')`, `true`},
		{`/^\P{L}+$/u.test('12a')`, `false`},
		{`/\p{Script=Greek}/u.test('α')`, `true`},
		{`/\p{sc=Cyrillic}/u.test('α')`, `false`},
		{`/\p{Letter}\p{General_Category=Decimal_Number}\p{gc=Nd}/u.test('a12')`, `true`},
		{`/^\p{Alphabetic}\p{Uppercase}\p{Lowercase}\p{White_Space}\p{Any}\p{ASCII}$/u.test('ΩΩω\u2003😀a')`, `true`},
		{`/(?=\p{L})\p{L}(?<a>\p{N})\k<a>/u.exec('a11').groups.a`, `"1"`},
		{`/\\p{L}/u.test('\\pp')`, `false`},
		{`/\p{L}/.test('p{L}')`, `true`},
		{`new RegExp('\\p{L}', 'u').test('ä')`, `true`},
		{`new RegExp(/\p{L}/, 'u').test('ä')`, `true`},
		{`new RegExp('\\p{Nonsense}', 'u')`, `"throws SyntaxError: the property \"Nonsense\" of expressions is not known here: general categories, scripts, Alphabetic, Uppercase, Lowercase, White_Space and some more are"`},
		{`new RegExp('\\p{L', 'u')`, `"throws SyntaxError: invalid property name in the expression: \\p{L"`},

		{`(1234567.891).toLocaleString()`, `"1,234,567.891"`},
		{`(1234.5678).toLocaleString('en-US')`, `"1,234.568"`},
		{`(1234.5).toLocaleString('de-DE', {minimumFractionDigits: 2})`, `"1.234,50"`},
		{`(-1234).toLocaleString(['en'])`, `"-1,234"`},
		{`(0.256).toLocaleString('en-US', {style: 'percent'})`, `"26%"`},
		{`(1234.5).toLocaleString(undefined, {useGrouping: false, maximumFractionDigits: 0})`, `"1234"`},
		{`[NaN, -Infinity].map(n => n.toLocaleString()).join()`, `"NaN,-∞"`},
		{`12345n.toLocaleString('en')`, `"12,345"`},
		{`(10n ** 30n).toLocaleString('en')`, `"throws RangeError: toLocaleString of a BigInt beyond 64 bits is not supported in projections"`},
		{`(1).toLocaleString('en', {style: 'currency'})`, `"throws TypeError: toLocaleString: the option style: currency is not supported in projections"`},
		{`(1).toLocaleString('?')`, `"throws RangeError: Incorrect locale information provided: ?"`},
		{`[1].toLocaleString()`, `"throws TypeError: toLocaleString of an array is not supported in projections: map its elements and join them"`},
		{`new Date(1464082707000).toLocaleString()`, `"5/24/2016, 9:38:27 AM"`},
		{`new Date(1464082707000).toLocaleDateString('en-US', {timeZone: 'UTC'})`, `"5/24/2016"`},
		{`new Date(1464082707000).toLocaleTimeString('en')`, `"9:38:27 AM"`},
		{`new Date(NaN).toLocaleString()`, `"Invalid Date"`},
		{`new Date(0).toLocaleDateString('de')`, `"throws TypeError: toLocaleDateString: only the locale en-US is supported for dates in projections"`},

		{`typeof DataView`, `"function"`},
		{`(v => (v.setBigInt64(0, -2n), v.getBigInt64(0).toString() + v.getUint8(7)))(new DataView(new ArrayBuffer(8)))`, `"-2254"`},
		{`new DataView(new ArrayBuffer(8)).setBigInt64(0, '1'.repeat(1000))`, `"throws RangeError: setBigInt64: a text of 1000 characters is too long"`},
		{`typeof BigInt64Array`, `"function"`},
		{`new BigInt64Array(1)`, `"throws TypeError: BigInt64Array is not supported in projections: use an array of BigInts"`},

		{`new Date('2016-05-24t09:38:27z').getTime()`, `1464082707000`},
		{`Date.parse('2016-05-24t09:38:27.5+01:00')`, `1464079107500`},
		{`new Date('2016-05-24T09:38:27Z').getTime()`, `1464082707000`},
		{`new Date(2016, 4, 24) instanceof Date && new Date(new Date(5)).getTime()`, `5`},
		{`typeof Date()`, `"string"`},
		{`new (class extends Date {})(5).getTime()`, `5`},
		{`[Date.length, Date.name, Date.UTC(1970, 0), new Date(0).constructor === Date].join()`, `"7,Date,0,true"`},
	} {
		check.Equal(t, valueOf(t, c.expression), c.want, c.expression)
	}
}
