package wire

import (
	"bytes"
	"context"
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"sync"
	"time"

	"github.com/hashicorp/raft"

	"github.com/annalsdb/annals/internal/logkey"
)

// maxFrame is the most a frame may hold: a raft configuration is the largest part of it.
const maxFrame = 1 << 20

var (
	errSuperseded = errors.New("a newer snapshot came while this one was prepared")
	errOlderTerm  = errors.New("a snapshot of a newer term is being prepared")
	errPrepare    = errors.New("preparing the snapshot took too long")
)

// installAnswer is what the acceptor of a snapshot says.
type installAnswer struct {
	Error    string                        `json:"error,omitempty"`
	Response *raft.InstallSnapshotResponse `json:"response,omitempty"`
}

func writeFrame(w io.Writer, v any) error {
	text, err := json.Marshal(v)
	if err != nil {
		return err
	}
	if len(text) > maxFrame {
		return fmt.Errorf("frame of %d bytes, more than %d", len(text), maxFrame)
	}
	frame := binary.BigEndian.AppendUint32(make([]byte, 0, 4+len(text)), uint32(len(text)))
	_, err = w.Write(append(frame, text...))
	return err
}

func readFrame(r io.Reader, v any) error {
	var head [4]byte
	if _, err := io.ReadFull(r, head[:]); err != nil {
		return unexpected(err)
	}
	length := binary.BigEndian.Uint32(head[:])
	if length > maxFrame {
		return fmt.Errorf("frame of %d bytes, more than %d", length, maxFrame)
	}
	text := make([]byte, length)
	if _, err := io.ReadFull(r, text); err != nil {
		return unexpected(err)
	}
	return json.Unmarshal(text, v)
}

// scaled is the time for a message of a size: as raft.NetworkTransport has it.
func (r *Raft) scaled(size int64) time.Duration {
	return r.opts.Timeout * time.Duration(max(1, size/raft.DefaultTimeoutScale))
}

// InstallSnapshot sends a snapshot to a node.
func (r *Raft) InstallSnapshot(id raft.ServerID, target raft.ServerAddress, args *raft.InstallSnapshotRequest, resp *raft.InstallSnapshotResponse, data io.Reader) error {
	if err := r.opts.Silent(); err != nil {
		return err
	}
	c, err := r.dial(kindInstall, r.target(id, target), r.opts.Timeout)
	if err != nil {
		r.reach.wait(id)
		return err
	}
	defer func() { _ = c.Close() }()
	if err := c.SetDeadline(time.Now().Add(r.opts.Timeout)); err != nil {
		return err
	}
	if err := writeFrame(c, args); err != nil {
		return fmt.Errorf("announce snapshot: %w", err)
	}
	if err := readInstallAnswer(c, nil); err != nil {
		return err
	}
	if err := c.SetDeadline(time.Now().Add(r.scaled(args.Size))); err != nil {
		return err
	}
	_, sendErr := io.Copy(c, data)
	// The other node may have refused the snapshot while it was sent, which says
	// more than the connection that broke off. It prepares, then raft takes over.
	wait := r.opts.PrepareTimeout + r.opts.Timeout
	if sendErr != nil {
		wait = lingerTime
	}
	if err := c.SetDeadline(time.Now().Add(wait)); err != nil {
		return err
	}
	err = readInstallAnswer(c, resp)
	if sendErr != nil && (err == nil || !errors.As(err, new(*installError))) {
		return fmt.Errorf("send snapshot: %w", sendErr)
	}
	return err
}

// installError is what the other node has against a snapshot.
type installError struct{ text string }

func (e *installError) Error() string { return e.text }

// readInstallAnswer reads an answer; with a response, that must be in it.
func readInstallAnswer(r io.Reader, resp *raft.InstallSnapshotResponse) error {
	var a installAnswer
	if err := readFrame(r, &a); err != nil {
		return fmt.Errorf("answer to a snapshot: %w", err)
	}
	if a.Error != "" {
		return &installError{printable(a.Error)}
	}
	if resp == nil {
		return nil
	}
	if a.Response == nil {
		return errors.New("answer to a snapshot: it is empty")
	}
	*resp = *a.Response
	return nil
}

// installs lets one snapshot at a time be prepared.
type installs struct {
	preparing sync.Mutex // held while Prepare runs

	mu      sync.Mutex // guards what follows; nests no other lock
	current *install
}

// install is a snapshot that has been announced and not yet handed to raft.
type install struct {
	term   uint64
	cancel context.CancelCauseFunc
}

// begin makes an announced snapshot the current one, unless it comes from the leader of an
// older term than that which is. The one before it is given up.
func (s *installs) begin(term uint64, cancel context.CancelCauseFunc) (*install, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.current != nil {
		if term < s.current.term {
			return nil, errOlderTerm
		}
		s.current.cancel(errSuperseded)
	}
	s.current = &install{term, cancel}
	return s.current, nil
}

// end says that a snapshot was handed to raft or given up.
func (s *installs) end(i *install) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.current == i {
		s.current = nil
	}
}

// acceptInstalls takes connections for snapshots.
func (r *Raft) acceptInstalls(l *listener) {
	stop := context.AfterFunc(r.ctx, func() { _ = l.Close() })
	defer stop()
	for {
		c, err := l.accept()
		if err != nil {
			return
		}
		if r.track(c, nil) != nil {
			return
		}
		r.tasks.Go(func() { r.serveInstall(c) })
	}
}

// serveInstall takes one snapshot and answers.
func (r *Raft) serveInstall(c *conn) {
	defer func() { _ = c.Close() }()
	resp, err := r.receiveInstall(c)
	if r.ctx.Err() != nil {
		return
	}
	a := installAnswer{Response: resp}
	if err != nil {
		a = installAnswer{Error: err.Error()}
		r.logger.Info("did not take a snapshot", logkey.Node, c.peer.Node.String(), logkey.Reason, err)
	}
	if c.SetDeadline(time.Now().Add(r.opts.Timeout)) != nil {
		return
	}
	// The other side tries again if it does not get to know the outcome.
	if writeFrame(c, a) == nil && err != nil {
		linger(c)
	}
}

// receiveInstall reads a snapshot, has it prepared and hands it to raft.
func (r *Raft) receiveInstall(c *conn) (*raft.InstallSnapshotResponse, error) {
	if err := c.SetDeadline(time.Now().Add(r.opts.Timeout)); err != nil {
		return nil, err
	}
	var req raft.InstallSnapshotRequest
	if err := readFrame(c, &req); err != nil {
		return nil, fmt.Errorf("announcement of a snapshot: %w", err)
	}
	if req.Size < 0 || req.Size > r.opts.MaxSnapshot {
		return nil, fmt.Errorf("snapshot of %d bytes: at most %d are taken", req.Size, r.opts.MaxSnapshot)
	}
	// A deposed leader may send a snapshot that a successor installed on it meanwhile. Raft would
	// take it and stay in the old term, and the next start would find that term below that of its
	// own snapshot.
	if req.LastLogTerm > req.Term {
		return nil, fmt.Errorf("snapshot of term %d from the leader of term %d, which was replaced", req.LastLogTerm, req.Term)
	}
	ctx, cancel := context.WithCancelCause(r.ctx)
	defer cancel(nil)
	current, err := r.installs.begin(req.Term, cancel)
	if err != nil {
		return nil, err
	}
	defer r.installs.end(current)

	content, err := r.readSnapshot(ctx, c, req.Size)
	if err != nil {
		return nil, err
	}
	if err := r.prepare(ctx, &req, content); err != nil {
		return nil, err
	}
	byID(&req)
	return r.handOver(ctx, current, &req, content)
}

// readSnapshot reads the bytes of a snapshot. Memory grows with what arrives.
func (r *Raft) readSnapshot(ctx context.Context, c *conn, size int64) ([]byte, error) {
	if err := writeFrame(c, installAnswer{}); err != nil {
		return nil, fmt.Errorf("ask for the snapshot: %w", err)
	}
	if err := c.SetDeadline(time.Now().Add(r.scaled(size))); err != nil {
		return nil, err
	}
	// Past the deadline reading ends at once; the deadline is set again before the answer.
	interrupted := make(chan struct{})
	stop := context.AfterFunc(ctx, func() {
		defer close(interrupted)
		_ = c.SetReadDeadline(time.Unix(1, 0))
	})
	var b bytes.Buffer
	n, err := io.Copy(&b, io.LimitReader(c, size))
	if !stop() {
		<-interrupted
		return nil, context.Cause(ctx)
	}
	if err == nil && n < size {
		err = io.ErrUnexpectedEOF
	}
	if err != nil {
		return nil, fmt.Errorf("read the snapshot: %d of %d bytes: %w", n, size, err)
	}
	return b.Bytes(), nil
}

// prepare calls Prepare, with a time limit, and stops it when the result does not matter any more.
func (r *Raft) prepare(ctx context.Context, req *raft.InstallSnapshotRequest, content []byte) error {
	r.installs.preparing.Lock() // The one before was called off.
	defer r.installs.preparing.Unlock()
	ctx, stop := context.WithTimeoutCause(ctx, r.opts.PrepareTimeout, errPrepare)
	defer stop()
	err := r.opts.Prepare(ctx, req.LastLogIndex, req.LastLogTerm, content)
	if err != nil && ctx.Err() != nil {
		err = context.Cause(ctx)
	}
	return err
}

// handOver gives a snapshot to raft and waits for what raft says.
func (r *Raft) handOver(ctx context.Context, current *install, req *raft.InstallSnapshotRequest, content []byte) (*raft.InstallSnapshotResponse, error) {
	if err := r.opts.Silent(); err != nil {
		return nil, err
	}
	outcome := make(chan raft.RPCResponse, 1)
	rpc := raft.RPC{Command: req, Reader: bytes.NewReader(content), RespChan: outcome}
	select {
	case r.consumer <- rpc:
	case <-time.After(r.opts.Timeout):
		return nil, errors.New("raft is too busy for a snapshot")
	case <-ctx.Done():
		return nil, context.Cause(ctx)
	}
	// From here on it cannot be called off any more.
	r.installs.end(current)
	r.logger.Info("handed a snapshot to raft", logkey.Index, req.LastLogIndex, logkey.Term, req.LastLogTerm, logkey.Bytes, len(content))
	select {
	case o := <-outcome:
		if o.Error != nil && r.opts.Holds(req.LastLogIndex, req.LastLogTerm) {
			r.logger.Info("a snapshot is not needed, the Raft log has all that it covers", logkey.Index, req.LastLogIndex, logkey.Term, req.LastLogTerm)
			return &raft.InstallSnapshotResponse{Term: req.Term, Success: true}, nil
		}
		if o.Error != nil {
			return nil, o.Error
		}
		resp, ok := o.Response.(*raft.InstallSnapshotResponse)
		if !ok {
			return nil, fmt.Errorf("raft answered a snapshot with %T", o.Response)
		}
		return resp, nil
	case <-r.ctx.Done():
		return nil, context.Cause(r.ctx)
	}
}
