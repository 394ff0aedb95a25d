package script

import (
	"sync"

	"github.com/dop251/goja"
)

// helpers are functions in JavaScript for features that the engine does not offer to Go code.
var helpers = sync.OnceValue(func() *goja.Program {
	return goja.MustCompile("helpers", `(function() {
	"use strict";
	const keys = Object.keys;
	return {
		put: (o, k, v) => { o[k] = v },
		odd: (o, i, value) => { const k = keys(o)[i]; return value ? o[k] : k },
		generator: Object.getPrototypeOf(function*() {}),
		async: Object.getPrototypeOf(async function() {}),
	};
})()`, true)
})

// restrict removes features that a script must not have. It also bounds functions of the engine
// that could take time or memory without end, as no interrupt is seen inside them.
func restrict(c *codec, source string, it *iterables) error {
	setMatchTimeout()
	e := c.e
	return catch(func() error {
		v, err := e.rt.RunProgram(helpers())
		if err != nil {
			return err
		}
		help := v.(*goja.Object)
		c.put, _ = goja.AssertFunction(help.Get("put"))
		c.odd, _ = goja.AssertFunction(help.Get("odd"))
		e.objects = e.prototype("Object")
		e.source = source
		e.textOf, _ = goja.AssertFunction(e.prototype("Function").Get("toString"))
		e.noEvaluation(help)
		c.ownJSON()
		l := &lists{e: e, iterables: it}
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
