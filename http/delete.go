package httpapi

import (
	"net/http"

	"github.com/annalsdb/annals/event"
)

// deleteStream hides or ends a stream.
func deleteStream(x *exchange) error {
	w, err := newWrite(x, x.route.stream)
	if err != nil {
		return err
	}
	hard, err := headerHardDelete.flag(x.r.Header, false)
	if err != nil {
		return err
	}
	w.Kind = event.SoftDelete
	if hard {
		w.Kind = event.HardDelete
	}
	if done, err := passOn(x, w); done || err != nil {
		return err
	}
	if len(w.Stream) > event.MaxNameBytes {
		return problemLongName
	}
	if _, err := commitWrite(x, w); err != nil {
		return err
	}
	x.phrase(http.StatusNoContent, textGone)
	x.send(http.StatusNoContent, nil)
	return nil
}
