package script

import (
	_ "embed"
	"sync"

	"github.com/dop251/goja"
)

//go:embed helpers.js
var helpersText string

// helpers makes functions in JavaScript.
var helpers = sync.OnceValue(func() *goja.Program { return goja.MustCompile("helpers", helpersText, true) })

// help makes a part of the helpers.
func (e *engine) help(part string, args ...any) *goja.Object {
	v, err := e.rt.RunProgram(helpers())
	e.must(err)
	begin, _ := goja.AssertFunction(v)
	values := []goja.Value{e.rt.ToValue(part)}
	for _, a := range args {
		values = append(values, e.rt.ToValue(a))
	}
	v, err = begin(goja.Undefined(), values...)
	e.must(err)
	return v.(*goja.Object)
}

// restrict removes features that a script must not have. It also bounds functions of the engine
// that could take time or memory without end, as no interrupt is seen inside them.
func restrict(c *codec, source string, it *iterables) error {
	setMatchTimeout()
	e := c.e
	return catch(func() error {
		help := e.help("basic")
		c.put, _ = goja.AssertFunction(help.Get("put"))
		c.odd, _ = goja.AssertFunction(help.Get("odd"))
		e.objects = e.prototype("Object")
		e.source = source
		e.textOf, _ = goja.AssertFunction(e.prototype("Function").Get("toString"))
		e.noEvaluation(help)
		c.ownJSON()
		l := &lists{e: e, codec: c, iterables: it}
		b := &bounds{e: e, lists: l, expressions: &expressions{e: e, iterables: it}}
		b.boundBuiltins()
		l.boundIterables()
		if e.named("bind") {
			e.keepArguments()
		} else {
			e.must(e.prototype("Function").Delete("bind"))
		}
		return nil
	})
}

// noEvaluation makes eval and Function throw, whichever way they are reached.
func (e *engine) noEvaluation(help *goja.Object) {
	refuse := func(goja.FunctionCall) goja.Value {
		e.throwError("EvalError", "code from texts is not allowed")
		return nil
	}
	e.global("eval", refuse)
	functions := e.prototype("Function")
	fn := e.rt.ToValue(func(goja.ConstructorCall) *goja.Object {
		refuse(goja.FunctionCall{})
		return nil
	}).(*goja.Object)
	e.must(fn.DefineDataProperty("name", e.rt.ToValue("Function"), goja.FLAG_FALSE, goja.FLAG_TRUE, goja.FLAG_FALSE))
	e.must(fn.DefineDataProperty("prototype", functions, goja.FLAG_FALSE, goja.FLAG_FALSE, goja.FLAG_FALSE))
	e.must(e.rt.GlobalObject().DefineDataProperty("Function", fn, goja.FLAG_TRUE, goja.FLAG_TRUE, goja.FLAG_FALSE))
	for _, o := range []*goja.Object{functions, help.Get("generator").(*goja.Object), help.Get("async").(*goja.Object)} {
		e.must(o.DefineDataProperty("constructor", fn, goja.FLAG_FALSE, goja.FLAG_FALSE, goja.FLAG_FALSE))
	}
}

// ownJSON puts this package's reader and writer in the place of the engine's, which
// know no bounds.
func (j *codec) ownJSON() {
	json := j.e.rt.Get("JSON").(*goja.Object)
	j.e.method(json, "parse", j.parseJSON)
	j.e.method(json, "stringify", j.stringify)
	j.e.must(json.Delete("rawJSON"))
	j.e.must(json.Delete("isRawJSON"))
}
