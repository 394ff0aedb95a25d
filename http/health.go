package httpapi

import (
	"context"
	"encoding/json"
	"errors"
	"math"
	"net/http"
	"strconv"

	"github.com/annalsdb/annals/event"
	"github.com/annalsdb/annals/http/caching"
	"github.com/annalsdb/annals/http/media"
	"github.com/annalsdb/annals/http/problem"
	"github.com/annalsdb/annals/http/request"
)

// probe is a path for balancers and orchestrators. None of them looks at credentials,
// and all of them answer while the node is still starting.
func probe(path string, serve request.Handler) row {
	r := open(path, serve)
	r.Methods = []string{"GET, HEAD, OPTIONS"}
	return r
}

// healthReady tells whether the node should be sent requests: it serves them, and its data is at
// most a moment older than the leader's.
func (s *Server) healthReady(_ context.Context, x *request.Request) error {
	x.W.Header()[caching.KeyControl] = caching.Probe
	if reason := s.Unready(); reason != "" {
		return problem.New(http.StatusServiceUnavailable, reason)
	}
	x.Send(http.StatusNoContent, nil)
	return nil
}

// Unready returns why the node should not be sent requests, nothing when it should.
func (s *Server) Unready() string {
	progress := s.progress()
	serving := s.opts.Health.Ready()
	trouble := s.opts.Health.Unhealthy()
	switch {
	case s.drained.Load():
		return "shutting down"
	case trouble != "":
		return trouble
	case !progress.Started:
		return progress.text()
	case serving && (s.opts.Startup == nil || s.opts.Startup.CaughtUp()):
		return ""
	case errors.Is(s.node.Lead(), event.ErrNotReady):
		if why := s.opts.Health.Leaderless(); why != "" {
			return "no leader is known: " + why
		}
		return "no leader is known"
	case !serving:
		return "not serving requests"
	}
	return "catching up with the leader"
}

// healthStartup tells how far the node is with starting.
func (s *Server) healthStartup(_ context.Context, x *request.Request) error {
	progress := s.progress()
	document := struct {
		Started bool            `json:"started"`
		Doing   *string         `json:"doing,omitempty"`
		Percent json.RawMessage `json:"percent,omitempty"`
	}{Started: progress.Started}
	status := http.StatusOK
	if !progress.Started {
		status = http.StatusServiceUnavailable
		document.Doing, document.Percent = &progress.Doing, json.RawMessage("null")
		if progress.measured() {
			document.Percent = strconv.AppendFloat(nil, progress.Percent, 'f', 1, 64)
		}
	}
	var err error
	if x.Out, err = request.AppendJSON(x.Out[:0], document); err != nil {
		return err
	}
	h := x.W.Header()
	h[caching.KeyControl] = caching.Probe
	h[request.KeyContentType] = media.JSON.ContentType
	x.Send(status, x.Out)
	return nil
}

func (s *Server) progress() Progress {
	if s.opts.Startup == nil {
		return Progress{Started: true}
	}
	return s.opts.Startup.Starting()
}

// measured reports whether the percentage is known.
func (p *Progress) measured() bool { return p.Percent >= 0 && !math.IsInf(p.Percent, 0) }

// text describes in a line the current step of a node that has not started.
func (p *Progress) text() string {
	text := "starting"
	if p.Doing != "" {
		text += ": " + p.Doing
	}
	if p.measured() {
		text += " " + strconv.FormatFloat(p.Percent, 'f', 0, 64) + " %"
	}
	return text
}

// Health is how a node is.
type Health interface {
	// Ready reports whether the node serves requests.
	Ready() bool
	// Serves reports whether the node answers requests for what it has, also without a leader.
	Serves() bool
	// Leaderless says why the node knows of no leader; empty when it knows one, or not why.
	Leaderless() string
	// Unhealthy describes the problem of the node itself; empty when it has none.
	Unhealthy() string
}

// Startup tells how far the node is with starting.
type Startup interface {
	Starting() Progress
	// CaughtUp reports whether the node has, as far as it can know, all that the
	// leader has acknowledged, but for a moment.
	CaughtUp() bool
}

// Progress is how far a start is.
type Progress struct {
	Started bool
	Doing   string  // the current step: "reading the log"
	Percent float64 // of that; below 0: not known
}
