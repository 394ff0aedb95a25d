package standard

import "github.com/annalsdb/annals/projection/handler"

// base is what all handlers of this package have in common: they read the log,
// keep no state and emit.
type base struct{}

func (base) Load(string, []byte) error { return nil }
func (base) LoadShared([]byte) error   { return nil }
func (base) Result() ([]byte, error)   { return nil, nil }
func (base) Close()                    {}

// PartitionOf is never called: nothing is partitioned.
func (base) PartitionOf(*handler.Event) (string, bool, error) { return "", false, nil }

// Deleted is never called: deletions are events like others here.
func (base) Deleted(*handler.Event) (handler.Outcome, error) { return skipped, nil }

// skipped is the outcome of an event from which nothing follows.
var skipped = handler.Outcome{Skipped: true}

// forbidden is a handler that may not emit, and that marks nothing.
type forbidden struct{ handler.Handler }

func (f forbidden) Definition() *handler.Definition {
	d := f.Handler.Definition()
	d.Mark = nil
	return d
}

func (f forbidden) Process(e *handler.Event) (handler.Outcome, error) {
	o, err := f.Handler.Process(e)
	if len(o.Emitted) > 0 {
		return handler.Outcome{}, &handler.Fault{Handler: e.Type, Message: "'emit' is not allowed by the projection/configuration/mode"}
	}
	return o, err
}

// withoutLinks is the source of handlers that pass links over.
func withoutLinks() *handler.Definition {
	return &handler.Definition{AllStreams: true, AllEvents: true, Options: handler.Options{DefinesFold: true}}
}

func withLinks() *handler.Definition {
	d := withoutLinks()
	d.IncludeLinks = true
	return d
}
