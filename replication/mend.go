package replication

import (
	"bufio"
	"context"
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"slices"
	"strings"
	"time"

	"github.com/annalsdb/annals/event"
	"github.com/annalsdb/annals/internal/logkey"
)

// Span is a range of positions in the log, its end not included.
type Span struct {
	From int64 `json:"from"`
	To   int64 `json:"to"`
}

// Anchor is the end of a frame and the chain there.
type Anchor struct {
	End   int64       `json:"end"`
	Chain event.Chain `json:"chain"`
}

// Wanted is what a node with a damaged file asks another for. Its anchors show whether both have
// the same history.
type Wanted struct {
	Ranges  []Span   `json:"ranges"`
	Anchors []Anchor `json:"anchors"`
}

// Mending is a damaged chunk file that is being put together again from its whole parts and those
// of other nodes.
type Mending interface {
	// Holes are the positions without a whole item so far, rising.
	Holes() []Span
	// Anchors are what others must have in common with this log.
	Anchors() []Anchor
	// Fill takes what another node has within a span: these items and no others. It verifies them.
	Fill(s Span, raw []byte) error
	// Finish puts the file in use. There must be no hole any more.
	Finish() error
	Close() error
}

// The stream of items for a damaged file. All numbers are little-endian. Do not change without
// changing dataFormat:
//
//	span       from (8) · to (8) · length (4) · the items there, as they lie in a chunk
//	last       -1 (8) · 0 (8) · 0 (4)
const spanHead = 20

// maxWanted bounds how many holes are asked for at once.
const maxWanted = 10_000

// mend heals a damaged file that no node has whole: each gives its whole parts. What remains is
// named by its positions.
func (h *healer) mend(ctx context.Context, m *Dependencies, d DamagedChunk, sources []source) (err error) {
	begun := time.Now()
	one, err := m.Healer.Mend(d)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, one.Close()) }()
	var from []string
	var failed error
	for _, s := range sources {
		holes := one.Holes()
		if len(holes) == 0 {
			break
		}
		if err := h.fill(ctx, s.address, one, Wanted{holes[:min(len(holes), maxWanted)], one.Anchors()}); err != nil {
			failed = errors.Join(failed, fmt.Errorf("node at %s: %w", s.address, err))
		}
		if !slices.Equal(holes, one.Holes()) {
			from = append(from, s.address)
		}
	}
	if holes := one.Holes(); len(holes) > 0 {
		return errors.Join(fmt.Errorf("no node that was asked has the positions %s whole", spansText(holes)), failed)
	}
	if err := one.Finish(); err != nil {
		return err
	}
	h.pull.metrics.healed.Inc()
	h.self.logger.Info("a damaged chunk was put together of what is whole here and elsewhere",
		logkey.File, d.File, logkey.From, strings.Join(from, ","), logkey.Took, time.Since(begun).Round(time.Millisecond))
	return nil
}

// fill asks one node for the wanted positions and takes the items that it sends.
func (h *healer) fill(ctx context.Context, address string, one Mending, wanted Wanted) (err error) {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	stall := time.AfterFunc(healVerify, cancel)
	defer stall.Stop()
	p := h.pull
	resp, err := p.peers.caller.request(ctx, address, http.MethodPost, "/chunk-items", wanted)
	if err != nil {
		return err
	}
	defer func() { p.self.warnDebug(resp.Body.Close()) }()
	in := bufio.NewReaderSize(resp.Body, 64<<10)
	var head [spanHead]byte
	var raw []byte
	for {
		if _, err := io.ReadFull(in, head[:]); err != nil {
			return fmt.Errorf("items end too early: %w", err)
		}
		s := Span{int64(binary.LittleEndian.Uint64(head[:])), int64(binary.LittleEndian.Uint64(head[8:]))}
		n := binary.LittleEndian.Uint32(head[16:])
		if s.From == -1 {
			return nil
		}
		if n > maxBlock {
			return fmt.Errorf("items of %d bytes at once", n)
		}
		raw = slices.Grow(raw[:0], int(n))[:n]
		if _, err := io.ReadFull(in, raw); err != nil {
			return fmt.Errorf("items end too early: %w", err)
		}
		stall.Reset(healVerify) // It may have to read long between two holes.
		if err := one.Fill(s, raw); err != nil {
			return err
		}
		p.fetched(len(raw))
		if err := p.throttle(ctx, len(raw)); err != nil {
			return err
		}
	}
}

// chunkItems sends the items of this log in ranges of positions, as far as they are whole.
func (s *sender) chunkItems(w http.ResponseWriter, r *http.Request) {
	m := s.self.deps.Load()
	var wanted Wanted
	err := json.NewDecoder(http.MaxBytesReader(w, r.Body, 1<<20)).Decode(&wanted)
	if err != nil || m == nil || m.Healer == nil || len(wanted.Ranges) > maxWanted {
		http.Error(w, fmt.Sprintf("no data, or a wrong request: %v", err), http.StatusBadRequest)
		return
	}
	out := bufio.NewWriterSize(w, 64<<10)
	begun := false
	send := func(span Span, raw []byte) error {
		begun = true
		var head [spanHead]byte
		binary.LittleEndian.PutUint64(head[:], uint64(span.From))
		binary.LittleEndian.PutUint64(head[8:], uint64(span.To))
		binary.LittleEndian.PutUint32(head[16:], uint32(len(raw)))
		if _, err := out.Write(head[:]); err != nil {
			return err
		}
		_, err := out.Write(raw)
		s.metrics.shipped.Add(uint64(len(raw)))
		return err
	}
	err = m.Healer.Salvage(wanted, send)
	switch {
	case err == nil:
		if err := send(Span{From: -1}, nil); err == nil {
			s.self.warnDebug(out.Flush())
		}
	case begun:
		s.self.warnDebug(err)
		s.self.warnDebug(out.Flush()) // The stream lacks its end; what came before it is good.
	case errors.Is(err, event.ErrOtherHistory):
		http.Error(w, err.Error(), http.StatusConflict)
	case errors.Is(err, event.ErrBeyondEnd):
		http.Error(w, err.Error(), http.StatusRequestedRangeNotSatisfiable)
	default:
		http.Error(w, err.Error(), http.StatusInternalServerError)
	}
}

// spansText names ranges of positions in one line.
func spansText(spans []Span) string {
	const most = 20
	var names []string
	for _, s := range spans[:min(len(spans), most)] {
		names = append(names, fmt.Sprintf("%d to %d", s.From, s.To))
	}
	text := strings.Join(names, ", ")
	if n := len(spans) - most; n > 0 {
		text += fmt.Sprintf(" and %d more", n)
	}
	return text
}
