package script

import (
	"fmt"
	"math/bits"
	"reflect"
	"slices"
	"strings"
	"unsafe"

	"github.com/dop251/goja"

	"github.com/annalsdb/annals/projection/handler"
)

const (
	// maxVariables bounds the bytes that a script keeps from one event to the next.
	maxVariables = 64 << 20
	// perStateByte is how many bytes more it may keep for each byte of its state's text.
	perStateByte = 32
)

// checkKept faults when the script keeps too much. It runs between two calls, and walks what the
// script keeps only when the process has grown enough while the script ran.
func (h *Handler) checkKept() error {
	if !h.e.dog.due() {
		return nil
	}
	limit := uint64(maxVariables + perStateByte*(len(h.own.text)+len(h.shared.text)))
	kept := weigh(limit, h.e.rt, h.given, h.own.value, h.shared.value, h.pair)
	if kept > limit {
		return &handler.Fault{Message: fmt.Sprintf("the script keeps too much memory in its variables and its state: more than %d MiB", limit>>20)}
	}
	h.e.dog.weighed(limit - kept)
	return nil
}

// keepArguments has bind leave what it binds where it can be weighed.
func (e *engine) keepArguments() {
	functions, bound := e.prototype("Function"), goja.NewSymbol("bound")
	bind, _ := goja.AssertFunction(functions.Get("bind"))
	e.method(functions, "bind", func(call goja.FunctionCall) goja.Value {
		v, err := bind(call.This, call.Arguments...)
		e.must(err)
		var args []any
		for _, a := range call.Arguments {
			args = append(args, a)
		}
		e.must(v.(*goja.Object).DefineDataPropertySymbol(bound, e.rt.NewArray(args...), goja.FLAG_FALSE, goja.FLAG_FALSE, goja.FLAG_FALSE))
		return v
	})
}

// A scale adds up the memory that can be reached: values of the engine, the scopes that functions
// have around them, and what generators have on their stacks. It does not see what functions of Go
// capture, such as the reactions to a promise, nor that a text may be a part of a longer one.
type scale struct {
	seen  map[piece]struct{}
	kinds map[reflect.Type]kind
	todo  []reflect.Value
	total uint64
}

// A piece is memory that was counted. A struct and its first field have one address.
type piece struct{ at, t unsafe.Pointer }

// A kind is what the scale has to know of a type.
type kind struct {
	enter  bool  // values of it may reach memory to be counted
	fields []int // of a struct, those that do
}

// weigh returns how many bytes are reached from the values, or a number above the limit.
func weigh(limit uint64, from ...any) uint64 {
	s := scale{seen: map[piece]struct{}{}, kinds: map[reflect.Type]kind{}}
	for s.add(reflect.ValueOf(from)); len(s.todo) > 0 && s.total <= limit; {
		last := len(s.todo) - 1
		v := s.todo[last]
		s.todo = s.todo[:last]
		s.add(v)
	}
	return s.total
}

// count counts a piece of memory. Not new: it was counted before.
func (s *scale) count(at unsafe.Pointer, t reflect.Type, size uint64) (isNew bool) {
	p := piece{at, reflect.ValueOf(t).UnsafePointer()}
	if _, ok := s.seen[p]; ok || at == nil {
		return false
	}
	s.seen[p] = struct{}{}
	s.total += size
	return true
}

// add counts what a value points to. Its own bytes are those of what it is in.
func (s *scale) add(v reflect.Value) {
	t := v.Type()
	if k := s.kind(t); k.enter {
		switch t.Kind() {
		case reflect.String:
			s.count(unsafe.Pointer(unsafe.StringData(v.String())), t, uint64(v.Len()))
		case reflect.Interface:
			if v = v.Elem(); v.IsValid() {
				if v.Kind() != reflect.Pointer {
					s.total += uint64(v.Type().Size())
				}
				s.todo = append(s.todo, v)
			}
		case reflect.Pointer:
			if s.count(v.UnsafePointer(), t, uint64(t.Elem().Size())) {
				s.todo = append(s.todo, v.Elem())
			}
		case reflect.Slice:
			if s.count(v.UnsafePointer(), t, uint64(v.Cap())*uint64(t.Elem().Size())) && s.kind(t.Elem()).enter {
				for i := range v.Len() {
					s.todo = append(s.todo, v.Index(i))
				}
			}
		case reflect.Map:
			if n := uint64(v.Len()); n > 0 && s.count(v.UnsafePointer(), t, mapBytes(n)*uint64(t.Key().Size()+t.Elem().Size())) {
				for i := v.MapRange(); i.Next(); {
					s.todo = append(s.todo, i.Key(), i.Value())
				}
			}
		case reflect.Struct:
			for _, i := range k.fields {
				s.add(v.Field(i))
			}
		}
	}
}

// mapBytes is for how many entries a map of n has room.
func mapBytes(n uint64) uint64 { return max(8, uint64(1)<<bits.Len64(n*8/7)) }

// entered are the packages whose types hold what a script made. Those of others are shared by
// engines, or hold nothing that a script can make more of.
var entered = []string{"github.com/dop251/goja", "github.com/dlclark/regexp2", "math/big", "regexp", "github.com/annalsdb/annals"}

func (s *scale) kind(t reflect.Type) kind {
	k, ok := s.kinds[t]
	if ok {
		return k
	}
	switch t.Kind() {
	case reflect.String, reflect.Interface, reflect.Slice, reflect.Map:
		k.enter = true
	case reflect.Pointer:
		k.enter = t.Elem().Kind() != reflect.Struct || isEntered(t.Elem())
	case reflect.Struct:
		for i := range t.NumField() {
			if isEntered(t) && s.kind(t.Field(i).Type).enter {
				k.fields = append(k.fields, i)
			}
		}
		k.enter = k.fields != nil
	}
	s.kinds[t] = k
	return k
}

// isEntered says so of a struct. A Program is code; a Handler is what is weighed.
func isEntered(t reflect.Type) bool {
	isOurs := func(path string) bool { return strings.HasPrefix(t.PkgPath(), path) }
	return (t.PkgPath() == "" || slices.ContainsFunc(entered, isOurs)) && t.Name() != "Program" && t != reflect.TypeFor[Handler]()
}
