package run

import (
	"errors"
	"fmt"
	"strconv"
	"strings"

	"github.com/annalsdb/annals/projection/handler"
	"github.com/annalsdb/annals/projection/position"
)

const lineEnd = "\r\n"

// faulted adds the event to a fault of the handler. what is the action that failed. Clients know
// the text and expect nothing after the message, so the place in the script follows the handler.
func faulted(name string, at position.Position, err error, e *handler.Event, what string) error {
	var f *handler.Fault
	if !errors.As(err, &f) || f.Handler == "" { // Not of one of its functions.
		return err
	}
	var b strings.Builder
	b.WriteString("The " + name + " projection failed to " + what + "." + lineEnd)
	b.WriteString("Handler: " + f.Handler + ", event " + strconv.FormatInt(e.Number, 10) + "@" + e.Stream + " (" + e.Type + ")")
	if f.Line > 0 {
		fmt.Fprintf(&b, ", line %d, column %d", f.Line, f.Column)
	}
	if stack := strings.Fields(f.Stack); len(stack) > 0 {
		b.WriteString(", " + strings.Join(stack, " "))
	}
	b.WriteString(lineEnd + "Event Position: " + at.String() + lineEnd + lineEnd)
	b.WriteString("Message:" + lineEnd + lineEnd + f.Message)
	return &eventFault{text: b.String(), fault: f}
}
