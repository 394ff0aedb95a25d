package script

import (
	"strconv"
	"unicode/utf8"

	"github.com/dop251/goja"
)

// engine is the JavaScript engine of one script: how it is called, bounded in time, and
// given functions of ours.
type engine struct {
	o       Options
	source  string
	rt      *goja.Runtime
	dog     *watchdog
	objects *goja.Object  // Object.prototype
	textOf  goja.Callable // Function.prototype.toString
	// how many functions of ours that bound others run within each other
	nested int
}

// global defines a function of the global object.
func (e *engine) global(name string, fn native) goja.Value {
	v := e.function(name, fn)
	if err := e.rt.GlobalObject().DefineDataProperty(name, v, goja.FLAG_TRUE, goja.FLAG_TRUE, goja.FLAG_FALSE); err != nil {
		panic(err)
	}
	return v
}

// function makes a function that says its name.
func (e *engine) function(name string, fn native) *goja.Object {
	o := e.rt.ToValue(fn).(*goja.Object)
	if err := o.DefineDataProperty("name", e.rt.ToValue(name), goja.FLAG_FALSE, goja.FLAG_TRUE, goja.FLAG_FALSE); err != nil {
		panic(err)
	}
	return o
}

func (e *engine) method(o *goja.Object, name string, fn native) {
	e.must(o.DefineDataProperty(name, e.function(name, fn), goja.FLAG_TRUE, goja.FLAG_TRUE, goja.FLAG_FALSE))
}

// prototype is the prototype property of a global constructor.
func (e *engine) prototype(class string) *goja.Object {
	return e.rt.Get(class).(*goja.Object).Get("prototype").(*goja.Object)
}

func (e *engine) object(name string) *goja.Object { return e.rt.Get(name).(*goja.Object) }

// hidden defines a function that only inserted code calls.
func (e *engine) hidden(name string, fn native) {
	e.must(e.rt.GlobalObject().DefineDataProperty(name, e.rt.ToValue(fn), goja.FLAG_FALSE, goja.FLAG_FALSE, goja.FLAG_FALSE))
}

// index is an element of an array.
func (e *engine) index(o *goja.Object, i int64) goja.Value {
	return o.Get(strconv.FormatInt(i, 10))
}

// must throws an error that a script caused.
func (e *engine) must(err error) {
	if err != nil {
		panic(err)
	}
}

// text is a text of bytes, of which those that are not UTF-8 become U+FFFD.
func (e *engine) text(b []byte) goja.Value {
	if utf8.Valid(b) {
		return e.rt.ToValue(string(b))
	}
	return e.rt.ToValue(string([]rune(string(b))))
}
