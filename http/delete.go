package httpapi

import (
	"context"
	"net/http"

	"github.com/annalsdb/annals/event"
)

// deleteStream hides or ends a stream.
func (s *streamHandlers) deleteStream(_ context.Context, x *exchange) error {
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
	if done, err := s.way.passOn(x, w.leader, w.hasIDs); done || err != nil {
		return err
	}
	if len(w.Stream) > event.MaxNameBytes {
		return problemLongName
	}
	if _, err := s.commitWrite(x, w); err != nil {
		return err
	}
	x.phrase(http.StatusNoContent, textGone)
	x.send(http.StatusNoContent, nil)
	return nil
}
