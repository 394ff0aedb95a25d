package streams

import (
	"context"
	"net/http"

	"github.com/annalsdb/annals/api"
	"github.com/annalsdb/annals/event"
	"github.com/annalsdb/annals/http/args"
	"github.com/annalsdb/annals/http/problem"
	"github.com/annalsdb/annals/http/request"
)

// Delete hides or ends a stream.
func (s *Handlers) Delete(_ context.Context, x *request.Request) error {
	w, err := newWrite(x, x.Route.Stream)
	if err != nil {
		return err
	}
	hard, err := args.HeaderHardDelete.Flag(x.R.Header, false)
	if err != nil {
		return err
	}
	w.Kind = event.SoftDelete
	if hard {
		w.Kind = event.HardDelete
	}
	if w.anywhere, err = s.Way.Write(x, w.leader); err != nil {
		return err
	}
	if err := api.CheckName(len(w.Stream)); err != nil {
		return err
	}
	if _, err := s.commitWrite(x, w); err != nil {
		return err
	}
	x.Phrase(http.StatusNoContent, problem.TextGone)
	x.Send(http.StatusNoContent, nil)
	return nil
}
