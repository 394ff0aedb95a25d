package script

import (
	"sync"

	"github.com/dop251/goja"
)

// helpers are functions in JavaScript for what the engine offers to no Go code.
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

// restrict takes away what a script must not have, and bounds what could take time or
// memory without end inside of one function of the engine, where no interrupt is seen.
func (h *Handler) restrict(source string) error {
	setMatchTimeout()
	return catch(func() error {
		v, err := h.rt.RunProgram(helpers())
		if err != nil {
			return err
		}
		help := v.(*goja.Object)
		h.put, _ = goja.AssertFunction(help.Get("put"))
		h.odd, _ = goja.AssertFunction(help.Get("odd"))
		h.objects = h.prototype("Object")
		h.noEvaluation(help)
		h.ownJSON()
		h.boundBuiltins(source)
		h.boundIterables(source)
		return nil
	})
}

// prototype is the prototype property of a global constructor.
func (h *Handler) prototype(class string) *goja.Object {
	return h.rt.Get(class).(*goja.Object).Get("prototype").(*goja.Object)
}

// noEvaluation makes eval and Function throw, whichever way they are reached.
func (h *Handler) noEvaluation(help *goja.Object) {
	refuse := func(goja.FunctionCall) goja.Value {
		h.throwError("EvalError", "code from texts is not allowed")
		return nil
	}
	h.global("eval", refuse)
	functions := h.prototype("Function")
	fn := h.rt.ToValue(func(goja.ConstructorCall) *goja.Object {
		refuse(goja.FunctionCall{})
		return nil
	}).(*goja.Object)
	h.must(fn.DefineDataProperty("name", h.rt.ToValue("Function"), goja.FLAG_FALSE, goja.FLAG_TRUE, goja.FLAG_FALSE))
	h.must(fn.DefineDataProperty("prototype", functions, goja.FLAG_FALSE, goja.FLAG_FALSE, goja.FLAG_FALSE))
	h.must(h.rt.GlobalObject().DefineDataProperty("Function", fn, goja.FLAG_TRUE, goja.FLAG_TRUE, goja.FLAG_FALSE))
	for _, o := range []*goja.Object{functions, help.Get("generator").(*goja.Object), help.Get("async").(*goja.Object)} {
		h.must(o.DefineDataProperty("constructor", fn, goja.FLAG_FALSE, goja.FLAG_FALSE, goja.FLAG_FALSE))
	}
}

// ownJSON puts this package's reader and writer in the place of the engine's, which
// know no bounds.
func (h *Handler) ownJSON() {
	json := h.rt.Get("JSON").(*goja.Object)
	h.method(json, "parse", h.parseJSON)
	h.method(json, "stringify", h.stringify)
	h.must(json.Delete("rawJSON"))
	h.must(json.Delete("isRawJSON"))
}

func (h *Handler) method(o *goja.Object, name string, fn native) {
	h.must(o.DefineDataProperty(name, h.function(name, fn), goja.FLAG_TRUE, goja.FLAG_TRUE, goja.FLAG_FALSE))
}
