package script

import (
	"math/big"
	"reflect"
	"regexp"
	"strings"

	"github.com/dop251/goja"
	"github.com/dop251/goja/ast"
	"github.com/dop251/goja/token"
	"github.com/dop251/goja/unistring"
)

// maxBits bounds the BigInts that one operation makes.
const maxBits = 4 << 20

// maxBases is how many operations may wait for their right operand.
const maxBases = 10_000

// Names of the functions that check operands. No script can say them.
const (
	baseName    = "\x00base"
	powerOfName = "\x00powerOf"
	powerName   = "\x00power"
	shiftName   = "\x00shift"
	digitsName  = "\x00digits"
	textName    = "\x00text"
)

var bigLiteral = regexp.MustCompile(`[0-9a-fA-F]n\b`)

// mayGrow says whether a script may hold operations that make a BigInt of any size at once.
func mayGrow(source string) bool {
	if !strings.Contains(source, "**") && !strings.Contains(source, "<<") && !strings.Contains(source, ">>") {
		return false
	}
	return mayBeBig(source)
}

// mayBeBig says whether a script may have BigInts.
func mayBeBig(source string) bool {
	return strings.Contains(source, "BigInt") || reachesGlobal(source) || bigLiteral.MatchString(source)
}

// reachesGlobal says whether a script may get at the global object, and with it at
// anything by a name that it puts together.
func reachesGlobal(source string) bool {
	return strings.Contains(source, "this") || strings.Contains(source, "This") || strings.Contains(source, `\u`)
}

// rewrite has the operators that make large texts and BigInts in one step check what they
// are given, and what goes through iterables collect them before.
func rewrite(program *ast.Program, bigInts, grow bool) *iterables {
	it := &iterables{}
	seen := map[any]bool{}
	var walk func(v reflect.Value)
	walk = func(v reflect.Value) {
		switch v.Kind() {
		case reflect.Interface:
			walk(v.Elem())
		case reflect.Slice:
			for i := range v.Len() {
				walk(v.Index(i))
			}
		case reflect.Pointer:
			if v.IsNil() || v.Elem().Kind() != reflect.Struct || v.Elem().Type().PkgPath() != astPackage || seen[v.Interface()] {
				return
			}
			seen[v.Interface()] = true
			walk(v.Elem())
			it.visit(v.Interface())
			checkText(v.Interface())
			if grow {
				checkOperand(v.Interface())
			}
			if bigInts {
				checkCompared(v.Interface())
			}
		case reflect.Struct:
			for i := range v.NumField() {
				if v.Type().Field(i).IsExported() {
					walk(v.Field(i))
				}
			}
		}
	}
	walk(reflect.ValueOf(program.Body))
	return it
}

var astPackage = reflect.TypeFor[ast.Program]().PkgPath()

// maxAdded bounds a text that is added to another. A text that doubles itself would take
// all memory between two looks of the watchdog, as copying it holds all of them up.
const maxAdded = 8 << 20

// checkText has what is added to a text checked.
func checkText(node any) {
	switch n := node.(type) {
	case *ast.BinaryExpression:
		if n.Operator == token.PLUS {
			n.Right = checkedBy(textName, n.Right)
		}
	case *ast.AssignExpression:
		if n.Operator == token.PLUS {
			n.Right = checkedBy(textName, n.Right)
		}
	case *ast.TemplateLiteral:
		for i := range n.Expressions {
			n.Expressions[i] = checkedBy(textName, n.Expressions[i])
		}
	}
}

// checkedBy has the function of that name look at an operand, unless it is a literal.
func checkedBy(name string, e ast.Expression) ast.Expression {
	switch e.(type) {
	case *ast.NumberLiteral, *ast.StringLiteral, *ast.BooleanLiteral, *ast.NullLiteral:
		return e
	}
	return call(name, e)
}

// checkCompared has what may be compared with a BigInt checked: a text becomes one then.
func checkCompared(node any) {
	n, ok := node.(*ast.BinaryExpression)
	if !ok {
		return
	}
	switch n.Operator {
	case token.EQUAL, token.NOT_EQUAL, token.LESS, token.LESS_OR_EQUAL, token.GREATER, token.GREATER_OR_EQUAL:
		n.Left, n.Right = checkedBy(digitsName, n.Left), checkedBy(digitsName, n.Right)
	}
}

func checkOperand(node any) {
	switch n := node.(type) {
	case *ast.BinaryExpression:
		switch n.Operator {
		case token.EXPONENT:
			switch n.Left.(type) {
			case *ast.Identifier, *ast.NumberLiteral:
				n.Right = call(powerName, n.Right, n.Left)
			default: // It must not be evaluated twice.
				n.Left, n.Right = call(baseName, n.Left), call(powerOfName, n.Right)
			}
		case token.SHIFT_LEFT, token.SHIFT_RIGHT:
			n.Right = call(shiftName, n.Right)
		}
	case *ast.AssignExpression:
		switch n.Operator {
		case token.EXPONENT:
			if _, ok := n.Left.(*ast.Identifier); ok {
				n.Right = call(powerName, n.Right, n.Left)
			} else {
				n.Right = call(powerName, n.Right)
			}
		case token.SHIFT_LEFT, token.SHIFT_RIGHT:
			n.Right = call(shiftName, n.Right)
		}
	}
}

func call(name string, args ...ast.Expression) ast.Expression {
	at := args[0].Idx0()
	return &ast.CallExpression{
		Callee: &ast.Identifier{Name: unistring.String(name), Idx: at}, LeftParenthesis: at, ArgumentList: args, RightParenthesis: at,
	}
}

// boundTexts defines what checkText has called.
func (b *bounds) boundTexts() {
	b.e.hidden(textName, func(call goja.FunctionCall) goja.Value {
		v := call.Argument(0)
		if s, ok := v.(goja.String); ok && s.Length() > maxAdded {
			b.e.throwError("RangeError", "a text of %d characters is too long to be added to another: at most %d", s.Length(), maxAdded)
		}
		return v
	})
}

// maxDigits bounds a text that may become a BigInt, which takes the square of its length.
const maxDigits = 100_000

func (b *bounds) checkDigits(v goja.Value) {
	if n := units(v); n > maxDigits {
		b.e.throwError("RangeError", "a text of %d characters is too long where there are BigInts: at most %d", n, maxDigits)
	}
}

// boundDigits bounds the texts that BigInts are made of.
func (b *bounds) boundDigits() {
	b.e.hidden(digitsName, func(call goja.FunctionCall) goja.Value {
		b.checkDigits(call.Argument(0))
		return call.Argument(0)
	})
	class := b.e.object("BigInt")
	fn, _ := goja.AssertFunction(class)
	checked := b.e.function("BigInt", func(call goja.FunctionCall) goja.Value {
		args := call.Arguments
		if len(args) > 0 {
			v := args[0]
			if o, ok := v.(*goja.Object); ok {
				v = o.ToString()
			}
			b.checkDigits(v)
			args = withArgument(args, 0, v)
		}
		v, err := fn(goja.Undefined(), args...)
		b.e.must(err)
		return v
	})
	b.e.replaceClass("BigInt", class, checked)
}

// boundBigInts defines what checkOperands has called.
func (b *bounds) boundBigInts() {
	refuse := func() { b.e.throwError("RangeError", "a BigInt of more than %d bits is too large", maxBits) }
	power := func(by, of goja.Value) goja.Value {
		n, ok := bigOf(by)
		if !ok {
			return by
		}
		base, known := bigOf(of)
		switch {
		case !known && n.BitLen() > 4, known && base.BitLen() > 1 && (!n.IsInt64() || n.Int64() > int64(maxBits/base.BitLen())):
			refuse()
		}
		return by
	}
	b.e.hidden(powerName, func(call goja.FunctionCall) goja.Value { return power(call.Argument(0), call.Argument(1)) })
	var bases []goja.Value
	b.e.hidden(baseName, func(call goja.FunctionCall) goja.Value {
		if len(bases) > maxBases { // left behind by operands that threw
			bases = bases[:0]
		}
		bases = append(bases, call.Argument(0))
		return call.Argument(0)
	})
	b.e.hidden(powerOfName, func(call goja.FunctionCall) goja.Value {
		var of goja.Value
		if n := len(bases); n > 0 {
			of, bases = bases[n-1], bases[:n-1]
		}
		return power(call.Argument(0), of)
	})
	b.e.hidden(shiftName, func(call goja.FunctionCall) goja.Value {
		if n, ok := bigOf(call.Argument(0)); ok && (!n.IsInt64() || n.Int64() > maxBits || n.Int64() < -maxBits) {
			refuse()
		}
		return call.Argument(0)
	})
	for _, name := range []string{"asIntN", "asUintN"} {
		b.e.checked(b.e.object("BigInt"), name, func(call goja.FunctionCall) {
			if call.Argument(0).ToFloat() > maxBits {
				refuse()
			}
		})
	}
}

func bigOf(v goja.Value) (*big.Int, bool) {
	if v == nil || !goja.IsBigInt(v) {
		return nil, false
	}
	n, ok := v.Export().(*big.Int)
	return n, ok
}
