package script

import (
	"bytes"
	"fmt"
	"reflect"

	"github.com/dop251/goja"

	"github.com/annalsdb/annals/event"
	"github.com/annalsdb/annals/internal/jsontext"
	"github.com/annalsdb/annals/projection/handler"
)

// A state is kept as its text, and as an object while events of its partition are handled.
type state struct {
	text  []byte     // nil: there is none
	value goja.Value // nil: not made from the text yet
}

func (s *state) load(text []byte) {
	if (text == nil) == (s.text == nil) && bytes.Equal(text, s.text) {
		s.text = text
		return
	}
	*s = state{text: text}
}

// Load makes a partition the one that Process works on. The object of a state that is
// loaded already is kept.
func (h *Handler) Load(partition string, text []byte) error {
	if partition != h.partition {
		h.partition = partition
		h.own = state{text: text}
	} else {
		h.own.load(text)
	}
	return nil
}

// LoadShared sets the shared state of a bi-state projection.
func (h *Handler) LoadShared(text []byte) error {
	h.shared.load(text)
	return nil
}

// PartitionOf calls the function given to partitionBy.
func (h *Handler) PartitionOf(e *handler.Event) (partition string, ok bool, err error) {
	if h.partitionBy == nil || e.IsJSON() && !jsontext.Valid(e.Data) {
		return "", false, nil
	}
	ev := *e
	ev.Partition = ""
	err = h.e.run("partitionBy", func() error {
		v, err := h.partitionBy(goja.Undefined(), h.eventOf(&ev))
		if ok = err == nil && (goja.IsString(v) || goja.IsNumber(v)); ok {
			partition = v.String()
		}
		return err
	})
	return partition, ok && err == nil, err
}

// Process calls the handler of the event's type.
func (h *Handler) Process(e *handler.Event) (handler.Outcome, error) {
	if e.IsJSON() && !jsontext.Valid(e.Data) {
		return handler.Outcome{Skipped: true}, nil
	}
	name, fn := e.Type, h.named[e.Type]
	if fn == nil {
		name, fn = "$any", h.any
		if fn != nil && h.d.HandlesDeleted && e.Type == event.TypeStreamDeleted {
			fn = nil
		}
	}
	folds := len(h.named) > 0 || h.any != nil
	if fn == nil && folds {
		return handler.Outcome{Skipped: true}, nil
	}
	h.emitter.emitted, h.emitter.emittedText = nil, 0
	object := h.eventOf(e)
	if err := h.begin(object); err != nil {
		return handler.Outcome{}, err
	}
	if !folds {
		text := bytes.Clone(e.Data)
		if !e.IsJSON() {
			text = jsontext.AppendString(nil, h.e.text(e.Data).String())
		}
		h.own.load(text)
		return h.outcome()
	}
	return h.change(name, func() error {
		v, err := fn(goja.Undefined(), h.argument(), object)
		if err == nil && !goja.IsUndefined(v) {
			err = h.replace(v)
		}
		return err
	})
}

// Deleted calls $deleted for the partition that is loaded.
func (h *Handler) Deleted(e *handler.Event) (handler.Outcome, error) {
	if h.deleted == nil {
		return handler.Outcome{Skipped: true}, nil
	}
	h.emitter.emitted, h.emitter.emittedText = nil, 0
	if err := h.begin(nil); err != nil {
		return handler.Outcome{}, err
	}
	return h.change("$deleted", func() error {
		_, err := h.deleted(goja.Undefined(), h.argument(), goja.Null(), h.e.rt.ToValue(h.partition), h.e.rt.ToValue(false))
		return err
	})
}

// change runs f, which changes the states, and returns what became of the event. Its effects
// before it failed are forgotten.
func (h *Handler) change(name string, f func() error) (handler.Outcome, error) {
	err := h.e.run(name, func() error {
		if err := f(); err != nil {
			return err
		}
		return h.save()
	})
	if err != nil {
		h.own.value, h.shared.value, h.emitter.emitted = nil, nil, nil
		return handler.Outcome{}, err
	}
	return h.outcome()
}

// begin makes the states that are loaded objects. One that is new begins with $init,
// and with $created for the event.
func (h *Handler) begin(e *goja.Object) error {
	if err := h.checkKept(); err != nil {
		return err
	}
	fresh := h.own.text == nil
	if err := h.revivify(&h.own, "$init", h.init); err != nil {
		return err
	}
	if h.d.IsBiState {
		if err := h.revivify(&h.shared, "$initShared", h.initShared); err != nil {
			return err
		}
		h.pair = h.e.rt.NewArray(h.own.value, h.shared.value)
	}
	if !fresh || h.created == nil || e == nil {
		return nil
	}
	return h.e.run("$created", func() error {
		_, err := h.created(goja.Undefined(), h.argument(), e)
		return err
	})
}

func (h *Handler) revivify(s *state, name string, init goja.Callable) error {
	if s.value != nil && s.text != nil {
		return nil
	}
	if s.text != nil {
		return h.e.run("", func() (err error) {
			s.value, err = h.parse(s.text)
			return err
		})
	}
	if init == nil {
		s.value = h.e.rt.NewObject()
		return nil
	}
	return h.e.run(name, func() (err error) {
		s.value, err = init(goja.Undefined())
		return err
	})
}

// parse makes a value out of the text of a state.
func (h *Handler) parse(text []byte) (v goja.Value, err error) {
	if !jsontext.Valid(text) {
		return nil, &handler.Fault{Message: fmt.Sprintf("the state%s is not JSON", h.inPartition())}
	}
	err = h.e.try(func() { v = h.codec.read(text) })
	return v, err
}

// argument is the state as handlers see it.
func (h *Handler) argument() goja.Value {
	if h.d.IsBiState {
		return h.pair
	}
	return h.own.value
}

// replace takes the value that a handler returned as the state.
func (h *Handler) replace(v goja.Value) error {
	o, isObject := v.(*goja.Object)
	if _, promise := exported(o).(*goja.Promise); promise {
		return &handler.Fault{Message: "the handler returned a promise: handlers must not be asynchronous"}
	}
	switch {
	case !h.d.IsBiState:
		h.own.value = v
	case goja.IsNull(v):
		return h.e.try(func() { h.e.must(h.pair.Set("0", goja.Null())) })
	case !isObject || o.ClassName() != "Array":
		return &handler.Fault{Message: "the state of a bi-state projection must be an array of its own and the shared state"}
	default:
		h.pair = o
	}
	return nil
}

// exported is the Go value of an object of the engine's own kinds.
func exported(o *goja.Object) any {
	if o == nil || o.ClassName() == "Array" {
		return nil
	}
	if t := o.ExportType(); t.Kind() != reflect.Pointer {
		return nil
	}
	return o.Export()
}

// save writes the states as text.
func (h *Handler) save() error {
	return h.e.try(func() {
		if h.d.IsBiState {
			h.own.value, h.shared.value = h.pair.Get("0"), h.pair.Get("1")
			h.saveOne(&h.shared)
		}
		h.saveOne(&h.own)
	})
}

func (h *Handler) saveOne(s *state) {
	text, ok := h.codec.write(s.value, "the state", maxStateDepth)
	switch {
	case !ok || string(text) == "null":
		*s = state{}
	case s.text == nil || !bytes.Equal(text, s.text):
		s.text = bytes.Clone(text)
	}
}

// outcome is what became of an event.
func (h *Handler) outcome() (handler.Outcome, error) {
	if err := h.checkSize(len(h.own.text) + len(h.shared.text)); err != nil {
		return handler.Outcome{}, err
	}
	out := handler.Outcome{State: h.own.text, Shared: h.shared.text, Emitted: h.emitter.emitted}
	h.emitter.emitted = nil
	return out, nil
}

func (h *Handler) checkSize(n int) error {
	if h.e.o.MaxState == 0 || n <= h.e.o.MaxState {
		return nil
	}
	return &handler.Fault{Message: fmt.Sprintf("The state size of projection '%s'%s is %d bytes which exceeds the configured MaxProjectionStateSize of %d bytes.",
		h.e.o.Name, h.inPartition(), n, h.e.o.MaxState)}
}

func (h *Handler) inPartition() string {
	if h.partition == "" {
		return ""
	}
	return " in partition '" + h.partition + "'"
}

// Result is the state that is loaded after transformBy and filterBy; nil: there is
// none. They work on a copy: what they change is not the state.
func (h *Handler) Result() ([]byte, error) {
	if len(h.transforms) == 0 || h.own.text == nil {
		return h.own.text, nil
	}
	var v goja.Value
	err := h.e.run("", func() (err error) {
		v, err = h.parse(h.own.text)
		return err
	})
	if err != nil {
		return nil, err
	}
	for _, t := range h.transforms {
		name := "transformBy"
		if t.filter {
			name = "filterBy"
		}
		err := h.e.run(name, func() error {
			r, err := t.fn(goja.Undefined(), v)
			switch {
			case err != nil:
				return err
			case !t.filter:
				v = r
			case !r.StrictEquals(h.e.rt.ToValue(true)):
				v = goja.Null()
			}
			return nil
		})
		if err != nil {
			return nil, err
		}
		if goja.IsNull(v) || goja.IsUndefined(v) {
			return nil, nil
		}
	}
	var result []byte
	err = h.e.run("transformBy", func() error {
		return h.e.try(func() {
			if text, ok := h.codec.write(v, "the result", maxStateDepth); ok && string(text) != "null" {
				result = bytes.Clone(text)
			}
		})
	})
	if err != nil {
		return nil, err
	}
	return result, h.checkSize(len(h.own.text) + len(result))
}
