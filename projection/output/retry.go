package output

import (
	"errors"
	"fmt"

	"github.com/annalsdb/annals/event"
	"github.com/annalsdb/annals/projection/handler"
)

// isFinal reports whether an error will stay.
func isFinal(err error) bool {
	var other *event.WrongExpectedVersion
	var bad *event.BadRequest
	return errors.As(err, &other) || errors.As(err, &bad) || IsLost(err) || isAbsent(err) ||
		errors.Is(err, event.ErrStreamDeleted) || errors.Is(err, event.ErrNotAuthorized) || errors.Is(err, event.ErrTooLarge)
}

// isAbsent reports whether a read found nothing.
func isAbsent(err error) bool {
	return errors.Is(err, event.ErrStreamNotFound) || errors.Is(err, event.ErrEventNotFound)
}

func storageError(what, stream string, err error) error {
	return fmt.Errorf("%s stream %q: %w", what, stream, err)
}

// restart says that the run has to begin again.
func restart(err error) error { return fmt.Errorf("%w: %w", ErrRestart, err) }

func faultf(format string, args ...any) *handler.Fault {
	return &handler.Fault{Message: fmt.Sprintf(format, args...)}
}

// The texts of faults are part of the contract: do not change.

func deletedFault(stream string) error {
	return faultf("Stream : %s is deleted. Cannot emit events to it", stream)
}

func notAuthorizedFault(stream string) error {
	return faultf("Projection cannot write to the stream '%s'. Not authorized.", stream)
}

// outsideFault also says which event it is.
func outsideFault(projection int64, e *event.Record) error {
	return faultf("The '%s' stream managed by projection %d has been written to from the outside.\r\nEvent: %d@%s", e.Stream, projection, e.Number, e.Stream)
}

func invalidFault(e *event.Record) error {
	return faultf("The given checkpoint is invalid. Possible causes might include having written an event to the projection's managed stream. The bad checkpoint: %s", e.Metadata)
}

func multipleFault(stream string, last, ours int64) error {
	return faultf("Multiple projections emitting to the same stream detected.  Stream: '%s'. Last event projection: '%d'.  Emitting projection: '%d'", stream, last, ours)
}

func differsFault(stream, oldType, oldAt, newType, newAt string) error {
	return faultf("An event emitted in recovery for stream %s differs from the originally emitted event. Existing('%s', '%s'). New('%s', '%s')", stream, oldType, oldAt, newType, newAt)
}
