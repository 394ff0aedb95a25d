package script

import (
	"slices"
	"strconv"
	"strings"

	"github.com/dop251/goja/ast"
	"github.com/dop251/goja/file"
	"github.com/dop251/goja/token"
	"github.com/dop251/goja/unistring"
)

// Names of the functions that collect what is spread and what patterns with rest elements
// take apart. No script can say them, nor those of the variables.
const (
	spreadName  = "\x00spread"
	patternName = "\x00pattern"
	scopeName   = "\x00scope"
	itemName    = "\x00item"
	paramName   = "\x00param"
)

// A shape says where in a value a pattern has rest elements of arrays. The helpers read its JSON.
type shape struct {
	Count int      `json:"count"` // of an array: the elements taken before the rest
	Rest  bool     `json:"rest"`
	Items []int    `json:"items"` // of an array: the elements that hold rest elements
	Names []string `json:"names"` // of an object: the properties taken; nil: an array
	Inner []*shape `json:"inner"` // of Items or Names
}

// isFlat says whether the pattern takes the values of an array as they are.
func (s *shape) isFlat() bool { return s.Names == nil && s.Rest && len(s.Items) == 0 }

// iterables has each iterable that the engine would go through at once collected before:
// see boundIterables.
type iterables struct {
	shapes      []*shape // by the number that the calls have
	spreads     bool     // something is spread
	scopes      bool     // there is a with statement
	expressions bool     // there is a regular expression
	refused     ast.Node // a pattern that cannot be rewritten, or an expression
	why         string   // what is wrong with it
}

// shapeOf is nil of a pattern without rest elements of arrays.
func (it *iterables) shapeOf(target ast.Expression) *shape {
	s := &shape{}
	holds := false
	switch p := target.(type) {
	case *ast.ArrayPattern:
		s.Count, s.Rest, s.Items = len(p.Elements), p.Rest != nil, []int{}
		holds = s.Rest
		for i, e := range p.Elements {
			if inner := it.shapeOf(targetOf(e)); inner != nil {
				s.Items, s.Inner, holds = append(s.Items, i), append(s.Inner, inner), true
			}
		}
		if inner := it.shapeOf(p.Rest); inner != nil {
			if inner.Names != nil {
				it.refused, it.why = p.Rest, refusedPattern
			}
			for _, i := range inner.Items {
				s.Items = append(s.Items, s.Count+i)
			}
			s.Inner = append(s.Inner, inner.Inner...)
		}
	case *ast.ObjectPattern:
		s.Rest, s.Names = p.Rest != nil, []string{}
		known := true
		for _, e := range p.Properties {
			var name string
			var inner *shape
			switch e := e.(type) {
			case *ast.PropertyShort:
				name = e.Name.Name.String()
			case *ast.PropertyKeyed:
				switch key := e.Key.(type) {
				case *ast.StringLiteral:
					name = key.Value.String()
				case *ast.NumberLiteral:
					n, ok := key.Value.(int64)
					name, known = strconv.FormatInt(n, 10), known && ok
				default:
					known = false
				}
				inner = it.shapeOf(targetOf(e.Value))
			}
			holds = holds || inner != nil
			// Both take what was made for one of them.
			if i := slices.Index(s.Names, name); i >= 0 {
				known = known && inner == nil && s.Inner[i] == nil
				continue
			}
			s.Names, s.Inner = append(s.Names, name), append(s.Inner, inner)
		}
		if holds && !known {
			it.refused, it.why = p, refusedPattern
		}
	}
	if !holds {
		return nil
	}
	return s
}

// refusedPattern is what is wrong with a pattern that cannot be rewritten.
const refusedPattern = "a pattern with computed or repeated names, or of an object in the place of the rest of an array, cannot hold a rest element within it"

// targetOf is a part of a pattern without its default.
func targetOf(e ast.Expression) ast.Expression {
	if a, ok := e.(*ast.AssignExpression); ok {
		return a.Left
	}
	return e
}

// collect has a value collected as the shape says.
func (it *iterables) collect(s *shape, value ast.Expression) ast.Expression {
	it.shapes = append(it.shapes, s)
	n := int64(len(it.shapes) - 1)
	c := call(patternName, value).(*ast.CallExpression)
	c.ArgumentList = []ast.Expression{&ast.NumberLiteral{Idx: value.Idx0(), Literal: strconv.FormatInt(n, 10), Value: n}, value}
	return c
}

// visit changes a node whose parts were visited.
func (it *iterables) visit(node any) {
	switch n := node.(type) {
	case *ast.RegExpLiteral:
		it.expressions = true
		if strings.Contains(n.Flags, "u") {
			if text, err := expandProperties(n.Pattern); err != nil {
				it.refused, it.why = n, err.Error()
			} else {
				n.Pattern = text
			}
		}
	case *ast.ArrayLiteral:
		it.spread(n.Value)
	case *ast.CallExpression:
		it.spread(n.ArgumentList)
	case *ast.NewExpression:
		it.spread(n.ArgumentList)
	case *ast.Binding:
		if n.Initializer != nil {
			if s := it.shapeOf(n.Target); s != nil {
				n.Initializer = it.collect(s, n.Initializer)
			}
		}
	case *ast.AssignExpression:
		if s := it.shapeOf(n.Left); s != nil {
			n.Right = it.collect(s, n.Right)
		}
	case *ast.ForOfStatement:
		n.Into, n.Body = it.loop(n.Into, n.Body)
	case *ast.ForInStatement:
		n.Into, n.Body = it.loop(n.Into, n.Body)
	case *ast.WithStatement:
		it.scopes, n.Object = true, call(scopeName, n.Object)
	case *ast.CatchStatement:
		if s := it.shapeOf(n.Parameter); s != nil {
			at := n.Parameter.Idx0()
			n.Body = block(&ast.LexicalDeclaration{Idx: at, Token: token.LET, List: []*ast.Binding{
				{Target: n.Parameter, Initializer: it.collect(s, variable(itemName, at))},
			}}, n.Body)
			n.Parameter = variable(itemName, at)
		}
	case *ast.FunctionLiteral:
		if v := it.parameters(n.ParameterList); v != nil {
			n.DeclarationList = append(n.DeclarationList, &ast.VariableDeclaration{Var: v.Var, List: v.List})
			n.Body.List = append([]ast.Statement{v}, n.Body.List...)
		}
	case *ast.ArrowFunctionLiteral:
		if v := it.parameters(n.ParameterList); v != nil {
			n.DeclarationList = append(n.DeclarationList, &ast.VariableDeclaration{Var: v.Var, List: v.List})
			switch body := n.Body.(type) {
			case *ast.ExpressionBody:
				n.Body = block(v, &ast.ReturnStatement{Return: body.Idx0(), Argument: body.Expression})
			case *ast.BlockStatement:
				body.List = append([]ast.Statement{v}, body.List...)
			}
		}
	}
}

func (it *iterables) spread(list []ast.Expression) {
	for _, e := range list {
		if s, ok := e.(*ast.SpreadElement); ok {
			it.spreads, s.Expression = true, call(spreadName, s.Expression)
		}
	}
}

// loop takes what a loop yields apart within its body.
func (it *iterables) loop(into ast.ForInto, body ast.Statement) (ast.ForInto, ast.Statement) {
	var target ast.Expression
	switch into := into.(type) {
	case *ast.ForIntoVar:
		target = into.Binding.Target
	case *ast.ForDeclaration:
		target = into.Target
	case *ast.ForIntoExpression:
		target = into.Expression
	}
	s := it.shapeOf(target)
	if s == nil {
		return into, body
	}
	at := target.Idx0()
	value := it.collect(s, variable(itemName, at))
	var first ast.Statement
	switch into := into.(type) {
	case *ast.ForIntoVar:
		first = &ast.VariableStatement{Var: at, List: []*ast.Binding{{Target: into.Binding.Target, Initializer: value}}}
	case *ast.ForDeclaration:
		kind := token.LET
		if into.IsConst {
			kind = token.CONST
		}
		first = &ast.LexicalDeclaration{Idx: at, Token: kind, List: []*ast.Binding{{Target: into.Target, Initializer: value}}}
	default:
		first = &ast.ExpressionStatement{Expression: &ast.AssignExpression{Operator: token.ASSIGN, Left: target, Right: value}}
	}
	return &ast.ForDeclaration{Idx: at, IsConst: true, Target: variable(itemName, at)}, block(first, body)
}

// parameters takes those with rest elements apart in the function's body, and those after them,
// whose defaults may need them. Nil: there are none.
func (it *iterables) parameters(p *ast.ParameterList) *ast.VariableStatement {
	if p == nil {
		return nil
	}
	var v *ast.VariableStatement
	move := func(i int, target ast.BindingTarget, s *shape, def ast.Expression) *ast.Identifier {
		at := target.Idx0()
		if v == nil {
			v = &ast.VariableStatement{Var: at}
		}
		name := paramName + strconv.Itoa(i)
		var value ast.Expression = variable(name, at)
		if def != nil {
			value = &ast.ConditionalExpression{
				Test: &ast.BinaryExpression{Operator: token.STRICT_EQUAL, Left: variable(name, at), Right: nothing(at), Comparison: true}, Consequent: def, Alternate: value,
			}
		}
		if s != nil {
			value = it.collect(s, value)
		}
		v.List = append(v.List, &ast.Binding{Target: target, Initializer: value})
		return variable(name, at)
	}
	for i, b := range p.List {
		s := it.shapeOf(b.Target)
		_, simple := b.Target.(*ast.Identifier)
		if s == nil && (v == nil || simple && b.Initializer == nil) {
			continue
		}
		moved := &ast.Binding{Target: move(i, b.Target, s, b.Initializer)}
		if b.Initializer != nil { // The function's length counts those before it.
			moved.Initializer = nothing(b.Idx0())
		}
		p.List[i] = moved
	}
	if target, ok := p.Rest.(ast.BindingTarget); ok {
		_, simple := target.(*ast.Identifier)
		if s := it.shapeOf(target); s != nil || v != nil && !simple {
			p.Rest = move(len(p.List), target, s, nil)
		}
	}
	return v
}

func variable(name string, at file.Idx) *ast.Identifier {
	return &ast.Identifier{Name: unistring.String(name), Idx: at}
}

// nothing is undefined.
func nothing(at file.Idx) ast.Expression {
	return &ast.UnaryExpression{Operator: token.VOID, Idx: at, Operand: &ast.NumberLiteral{Idx: at, Literal: "0", Value: int64(0)}}
}

func block(list ...ast.Statement) *ast.BlockStatement {
	return &ast.BlockStatement{LeftBrace: list[0].Idx0(), List: list, RightBrace: list[len(list)-1].Idx1()}
}
