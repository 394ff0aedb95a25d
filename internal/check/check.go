// Package check compares what a test got with what it wants. A function whose name begins with Must
// ends the test when the two differ; the others report it and let the test continue. The words at
// the end of a call, if any, say what was looked at: they stand in front of the report, with spaces
// between them.
package check

import (
	"errors"
	"fmt"
	"reflect"
	"slices"
	"strings"
)

// T is what tests, benchmarks, fuzz targets and properties offer.
type T interface {
	Helper()
	Errorf(format string, args ...any)
	Fatalf(format string, args ...any)
}

// Err is the error of a call that also returns a value.
func Err[V any](_ V, err error) error { return err }

// A Result is what a call returns: a value and an error.
type Result[V any] struct {
	value V
	err   error
}

// Value takes the results of a call, as in check.Value(os.Open(name)).Must(t).
func Value[V any](v V, err error) Result[V] { return Result[V]{v, err} }

// Must is the value. It ends the test if there is an error.
func (r Result[V]) Must(t T, what ...any) V {
	if r.err != nil {
		t.Helper()
		Must(t, r.err, what...)
	}
	return r.value
}

// Must ends the test if there is an error.
func Must(t T, err error, what ...any) {
	if err != nil {
		t.Helper()
		t.Fatalf("%s%v", of(what), err)
	}
}

// NoError reports an error.
func NoError(t T, err error, what ...any) {
	if err != nil {
		t.Helper()
		t.Errorf("%s%v", of(what), err)
	}
}

// Fails reports that there is no error.
func Fails(t T, err error, what ...any) {
	if err == nil {
		t.Helper()
		t.Errorf("%sno error", of(what))
	}
}

// MustFail ends the test if there is no error.
func MustFail(t T, err error, what ...any) {
	if err == nil {
		t.Helper()
		t.Fatalf("%sno error", of(what))
	}
}

// Is reports an error that is not another one, as errors.Is tells.
func Is(t T, err, want error, what ...any) {
	if !errors.Is(err, want) {
		t.Helper()
		t.Errorf("%s%s", of(what), differ(err, want))
	}
}

// MustBe ends the test if an error is not another one, as errors.Is tells.
func MustBe(t T, err, want error, what ...any) {
	if !errors.Is(err, want) {
		t.Helper()
		t.Fatalf("%s%s", of(what), differ(err, want))
	}
}

// Says reports an error that does not contain a text, or that is nil.
func Says(t T, err error, want string, what ...any) {
	if err == nil || !strings.Contains(err.Error(), want) {
		t.Helper()
		t.Errorf("%sgot error %v, want one that says %q", of(what), err, want)
	}
}

// MustSay ends the test if an error does not contain a text, or is nil.
func MustSay(t T, err error, want string, what ...any) {
	if err == nil || !strings.Contains(err.Error(), want) {
		t.Helper()
		t.Fatalf("%sgot error %v, want one that says %q", of(what), err, want)
	}
}

// Equal reports that two values differ.
func Equal[V comparable](t T, got, want V, what ...any) {
	if got != want {
		t.Helper()
		t.Errorf("%s%s", of(what), differ(got, want))
	}
}

// MustEqual ends the test if two values differ.
func MustEqual[V comparable](t T, got, want V, what ...any) {
	if got != want {
		t.Helper()
		t.Fatalf("%s%s", of(what), differ(got, want))
	}
}

// Slice reports that two slices differ in length or in an element. It counts no slice and an empty
// one as equal.
func Slice[S ~[]V, V comparable](t T, got, want S, what ...any) {
	if !slices.Equal(got, want) {
		t.Helper()
		t.Errorf("%s%s", of(what), differ(got, want))
	}
}

// MustSlice ends the test if two slices differ in length or in an element.
func MustSlice[S ~[]V, V comparable](t T, got, want S, what ...any) {
	if !slices.Equal(got, want) {
		t.Helper()
		t.Fatalf("%s%s", of(what), differ(got, want))
	}
}

// Deep reports that two values differ, as reflect.DeepEqual tells.
func Deep(t T, got, want any, what ...any) {
	if !reflect.DeepEqual(got, want) {
		t.Helper()
		t.Errorf("%s%s", of(what), differ(got, want))
	}
}

// MustDeep ends the test if two values differ, as reflect.DeepEqual tells.
func MustDeep(t T, got, want any, what ...any) {
	if !reflect.DeepEqual(got, want) {
		t.Helper()
		t.Fatalf("%s%s", of(what), differ(got, want))
	}
}

// Contains reports a text that lacks a part.
func Contains(t T, text, part string, what ...any) {
	if !strings.Contains(text, part) {
		t.Helper()
		t.Errorf("%s%q is not in %s", of(what), part, text)
	}
}

// MustContain ends the test if a text lacks a part.
func MustContain(t T, text, part string, what ...any) {
	if !strings.Contains(text, part) {
		t.Helper()
		t.Fatalf("%s%q is not in %s", of(what), part, text)
	}
}

// of is the beginning of a report.
func of(what []any) string {
	if len(what) == 0 {
		return ""
	}
	return strings.TrimSuffix(fmt.Sprintln(what...), "\n") + ": "
}

// short is how long a value may be to stand on one line with the other.
const short = 40

// differ shows two values, on lines of their own when they are long.
func differ(got, want any) string {
	g, w := show(got), show(want)
	if len(g) > short || len(w) > short || strings.Contains(g+w, "\n") {
		return "\n got " + g + "\nwant " + w
	}
	return "got " + g + ", want " + w
}

func show(v any) string {
	switch v := v.(type) {
	case string:
		if strings.Contains(v, "\n") {
			return v
		}
		return fmt.Sprintf("%q", v)
	case []string, []byte:
		return fmt.Sprintf("%q", v)
	}
	return fmt.Sprintf("%+v", v)
}
