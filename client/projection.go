package client

import (
	"context"
	"encoding/json"
	"net/http"
	"net/url"
	"strconv"
	"time"
)

// Mode says how long a projection lives.
type Mode string

// The modes of projections.
const (
	Continuous Mode = "Continuous" // it follows its streams
	OneTime    Mode = "OneTime"    // it ends at the end of its streams
	Transient  Mode = "Transient"  // as OneTime, and in the memory of the leader alone
)

// Projection is a projection: a script that folds events into state, and may emit other events.
type Projection struct {
	c    *Client
	name string
}

// Projection returns a projection, which need not exist yet. One without a name gets a new one.
func (c *Client) Projection(name string) *Projection {
	if name == "" {
		name = NewID()
	}
	return &Projection{c, name}
}

// Name is the name of the projection.
func (p *Projection) Name() string { return p.name }

// ProjectionOptions say how a projection is made. The zero value is a continuous one that runs, and
// emits nothing.
type ProjectionOptions struct {
	Mode         Mode // by default Continuous
	Disabled     bool // do not start it
	Emit         bool // it may emit events. One of OneTime then needs Checkpoints
	TrackEmitted bool // note the streams that it emits to, so that DeleteEmitted finds them
	Checkpoints  bool // of OneTime; a continuous one has them always
	// Handler is native:... for one that the server has built in. Its script is its configuration.
	Handler string
}

// Create makes the projection and starts it. It is ErrExists if there is one. A script that fails
// is not an error: the status of the projection is Faulted then.
func (p *Projection) Create(ctx context.Context, script string, o ProjectionOptions) error {
	path := "/projections/continuous"
	switch o.Mode {
	case OneTime:
		path = "/projections/onetime"
	case Transient:
		path = "/projections/transient"
	}
	query := url.Values{"name": {p.name}}
	for name, on := range map[string]bool{
		"enabled": !o.Disabled, "emit": o.Emit, "trackemittedstreams": o.TrackEmitted, "checkpoints": o.Checkpoints,
	} {
		query.Set(name, strconv.FormatBool(on))
	}
	if o.Handler != "" {
		query.Set("type", o.Handler)
	}
	return p.send(ctx, scriptRequest(http.MethodPost, path+"?"+query.Encode(), script), http.StatusConflict)
}

// Update replaces the script. The projection continues with its state where it is. It may emit
// events as before.
func (p *Projection) Update(ctx context.Context, script string) error {
	return p.send(ctx, scriptRequest(http.MethodPut, p.path("/query"), script))
}

// UpdateEmit replaces the script, and says whether the projection may emit events.
func (p *Projection) UpdateEmit(ctx context.Context, script string, emit bool) error {
	return p.send(ctx, scriptRequest(http.MethodPut, p.path("/query?emit="+strconv.FormatBool(emit)), script))
}

// send sends a command. A node refuses what it cannot do with a status that else means that the
// outcome is not known.
func (p *Projection) send(ctx context.Context, q Request, done ...int) error {
	return p.c.sender.finishWhile(ctx, q, func(err error) bool {
		return mayPass(err) && !HasStatus(err, http.StatusInternalServerError)
	}, done...)
}

func scriptRequest(method, path, script string) Request {
	return Request{Method: method, Path: path, Body: []byte(script), Header: map[string]string{
		"Accept": MediaJSON, "Content-Type": "application/javascript",
	}}
}

// Enable starts the projection where it stopped.
func (p *Projection) Enable(ctx context.Context) error { return p.command(ctx, "enable") }

// Disable stops the projection after it wrote a checkpoint.
func (p *Projection) Disable(ctx context.Context) error { return p.command(ctx, "disable") }

// Abort stops the projection without a checkpoint.
func (p *Projection) Abort(ctx context.Context) error { return p.command(ctx, "abort") }

func (p *Projection) command(ctx context.Context, name string) error {
	return p.send(ctx, Request{Method: http.MethodPost, Path: p.path("/command/" + name)})
}

// Reset makes the projection forget its state and start again from the beginning. It is not
// repeated when it may have been done.
func (p *Projection) Reset(ctx context.Context) error {
	return p.c.Call(ctx, http.MethodPost, p.path("/command/reset"), nil, nil)
}

// DeleteProjection says what is deleted with a projection.
type DeleteProjection struct {
	Checkpoints bool // the streams of its checkpoints
	State       bool // the streams of its results
	Emitted     bool // the streams that it emitted to, if it tracked them
}

// Delete removes the projection, which must be disabled or faulted unless it is a transient one.
func (p *Projection) Delete(ctx context.Context, d DeleteProjection) error {
	query := url.Values{}
	for name, on := range map[string]bool{
		"deleteCheckpointStream": d.Checkpoints, "deleteStateStream": d.State, "deleteEmittedStreams": d.Emitted,
	} {
		query.Set(name, strconv.FormatBool(on))
	}
	return p.send(ctx, Request{Method: http.MethodDelete, Path: p.path("?" + query.Encode())}, http.StatusNotFound)
}

// Rebuild begins a second version of the projection, with another script, next to the one that
// runs. It reads all from the start, and emits nothing. The same request once more does nothing.
// With emit nil it may emit what the projection may.
func (p *Projection) Rebuild(ctx context.Context, script string, emit *bool) error {
	below := "/rebuild"
	if emit != nil {
		below += "?emit=" + strconv.FormatBool(*emit)
	}
	return p.send(ctx, scriptRequest(http.MethodPost, p.path(below), script))
}

// SwapRebuild makes the second version the projection, once its status is Ready: it continues where
// the first stops, and from there on it emits. After the swap the same request does nothing.
func (p *Projection) SwapRebuild(ctx context.Context) error {
	return p.send(ctx, Request{Method: http.MethodPost, Path: p.path("/rebuild/swap")})
}

// EndRebuild ends the second version, which is then gone.
func (p *Projection) EndRebuild(ctx context.Context) error {
	return p.send(ctx, Request{Method: http.MethodDelete, Path: p.path("/rebuild")}, http.StatusNotFound)
}

// RebuildStatus returns how the second version does. It is ErrNotFound if there is none. With
// compare the states of both versions are compared first, which takes a while, and with states the
// outcome has those that differ.
func (p *Projection) RebuildStatus(ctx context.Context, compare, states bool) (ProjectionRebuild, error) {
	var r ProjectionRebuild
	query := url.Values{"compare": {strconv.FormatBool(compare)}, "states": {strconv.FormatBool(states)}}
	err := p.c.Call(ctx, http.MethodGet, p.path("/rebuild?"+query.Encode()), nil, &r)
	return r, err
}

// ProjectionRebuild is the second version of a projection.
type ProjectionRebuild struct {
	Name string `json:"name"`
	// Status is Running, Ready, Faulted, Stopped where the node lets it not run, or Swapped.
	Status      string  `json:"status"`
	Fault       string  `json:"reason"` // why it is faulted
	Script      string  `json:"query"`
	EmitEnabled bool    `json:"emitEnabled"`
	Position    string  `json:"position"`
	Mark        string  `json:"mark"`     // where the projection has its last checkpoint
	Progress    float64 `json:"progress"` // percent of the way to there
	Processed   int64   `json:"eventsProcessedAfterRestart"`
	// Comparison is the last one, nil if there was none.
	Comparison *RebuildComparison `json:"comparison"`
}

// RebuildComparison tells how the states of two versions of a projection differ at one position.
type RebuildComparison struct {
	Position   string `json:"position"`
	Compared   int64  `json:"compared"`  // partitions, the root among them
	Differing  int64  `json:"differing"` // of these
	Moved      int64  `json:"moved"`     // not compared: the projection had gone too far
	Complete   bool   `json:"complete"`  // all were looked at
	Partitions []struct {
		Partition string          `json:"partition"`
		Running   *RebuildContent `json:"running"` // nil unless it was asked for
		Rebuilt   *RebuildContent `json:"rebuilt"`
	} `json:"partitions"` // the first 100 that differ
}

// RebuildContent is a state and its result, null where there is none.
type RebuildContent struct {
	State  json.RawMessage `json:"state"`
	Result json.RawMessage `json:"result"`
}

// State returns the state of a partition as JSON, nil if it has none yet. A projection that is not
// partitioned has one, whose name is empty.
func (p *Projection) State(ctx context.Context, partition string) (json.RawMessage, error) {
	return p.get(ctx, "/state?partition="+url.QueryEscape(partition))
}

// Result returns the result of a partition as JSON, nil if it has none yet: the state after the
// transformations of the script.
func (p *Projection) Result(ctx context.Context, partition string) (json.RawMessage, error) {
	return p.get(ctx, "/result?partition="+url.QueryEscape(partition))
}

func (p *Projection) get(ctx context.Context, below string) (json.RawMessage, error) {
	a, err := p.c.Repeat(ctx, Request{Path: p.path(below), Header: map[string]string{"Accept": MediaJSON}})
	if err != nil || len(a.Body) == 0 {
		return nil, err
	}
	return a.Body, nil
}

// Script returns the script of the projection.
func (p *Projection) Script(ctx context.Context) (string, error) {
	a, err := p.c.Repeat(ctx, Request{Path: p.path("/query")})
	return string(a.Body), err
}

// Statistics returns how the projection does.
func (p *Projection) Statistics(ctx context.Context) (ProjectionStatistics, error) {
	var s ProjectionStatistics
	err := p.c.Call(ctx, http.MethodGet, p.path(""), nil, &s)
	return s, err
}

// Projections returns the statistics of all projections.
func (c *Client) Projections(ctx context.Context) ([]ProjectionStatistics, error) {
	var list struct {
		Projections []ProjectionStatistics `json:"projections"`
	}
	err := c.Call(ctx, http.MethodGet, "/projections/any", nil, &list)
	return list.Projections, err
}

func (p *Projection) path(below string) string {
	return "/projection/" + url.PathEscape(p.name) + below
}

// ProjectionStatistics say how a projection does.
type ProjectionStatistics struct {
	Name string `json:"name"`
	Mode Mode   `json:"mode"`
	// Status is Running, Stopped, Completed/Stopped/Writing results, Faulted (Enabled), and others.
	Status string `json:"status"`
	// Fault says why the projection is faulted.
	Fault    string  `json:"stateReason"`
	Progress float64 `json:"progress"` // percent of its events; -1 before the first
	// Position and Checkpoint are where it is, and where it would start again.
	Position   string `json:"position"`
	Checkpoint string `json:"lastCheckpoint"`

	Processed  int64 `json:"eventsProcessedAfterRestart"`
	Buffered   int   `json:"bufferedEvents"`
	Partitions int   `json:"partitionsCached"`
	Reads      int   `json:"readsInProgress"`
	Writes     int   `json:"writesInProgress"`
	// Milliseconds is the time that the script took.
	Milliseconds float64 `json:"coreProcessingTime"`
	Version      int64   `json:"version"`
	Epoch        int64   `json:"epoch"`
	// Rebuild is the status of the second version, empty if there is none.
	Rebuild string `json:"rebuild"`
}

// Time is the time that the script took.
func (s *ProjectionStatistics) Time() time.Duration {
	return time.Duration(s.Milliseconds * float64(time.Millisecond))
}
