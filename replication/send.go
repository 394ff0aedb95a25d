package replication

import (
	"bufio"
	"context"
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"net/http"
	"strconv"
	"time"

	"github.com/annalsdb/annals/event"
	"github.com/annalsdb/annals/internal/logkey"
)

// sender sends this node's status to other nodes, and the parts of the event log that they lack.
type sender struct {
	self    *self
	metrics *clusterMetrics
	own     func() Status
	confirm func(context.Context) error
}

// queryConfirmed asks for the status of a leader after a majority has confirmed that it leads. One
// of an earlier version does not know it.
const queryConfirmed = "confirmed=1"

// The stream of frames that a node sends to one that lacks them. All numbers are
// little-endian. Do not change without changing dataFormat:
//
//	block      position (8) · length (4) · whole frames as they lie in a chunk
//	last       -1 (8) · length (4) · JSON of framesEnd
const (
	blockHead  = 12
	blockBytes = 1 << 20
	maxBlock   = 17 << 20 // one frame of the greatest size
)

// framesEnd is what the sender says last.
type framesEnd struct {
	Tail event.Tail `json:"tail"`           // of the sender's log
	File *ChunkFile `json:"file,omitempty"` // what comes next is to be fetched as a file
}

// frames sends what follows a log that ends at a position with a chain.
func (s *sender) frames(w http.ResponseWriter, r *http.Request) {
	next, m, ok := s.continuation(w, r)
	if !ok {
		return
	}
	defer func() { s.self.warnDebug(next.Close()) }()
	w.Header().Set("Content-Type", "application/octet-stream")
	out := bufio.NewWriterSize(w, 64<<10)
	send := func(position int64, data []byte) error {
		var head [blockHead]byte
		binary.LittleEndian.PutUint64(head[:], uint64(position))
		binary.LittleEndian.PutUint32(head[8:], uint32(len(data)))
		if _, err := out.Write(head[:]); err != nil {
			return err
		}
		_, err := out.Write(data)
		return err
	}
	end := framesEnd{}
	if file, isFile := next.File(); isFile {
		end.File = &file
	} else {
		for {
			first, raw, err := next.Next(blockBytes)
			if errors.Is(err, io.EOF) {
				break
			}
			if err != nil {
				s.self.logger.Error("log could not be read for another node", logkey.Error, err)
				return // The stream lacks its last block.
			}
			if err := send(first, raw); err != nil {
				return // The other node has gone, and asks again.
			}
			s.metrics.shipped.Add(uint64(len(raw)))
		}
	}
	end.Tail = m.Log.Tail()
	data, err := json.Marshal(end)
	if err != nil {
		s.self.logger.Error("describe the log's end", logkey.Error, err)
		return
	}
	if err := send(-1, data); err == nil {
		s.self.warnDebug(out.Flush())
	}
}

// continuation finds what the request asks for, or answers why not.
func (s *sender) continuation(w http.ResponseWriter, r *http.Request) (Continuation, *Dependencies, bool) {
	m := s.self.deps.Load()
	query := r.URL.Query()
	end, err := strconv.ParseInt(query.Get("end"), 10, 64)
	chain, chainErr := event.ParseChain(query.Get("chain"))
	if err = errors.Join(err, chainErr); err != nil || m == nil {
		http.Error(w, fmt.Sprintf("no data, or a wrong request: %v", err), http.StatusBadRequest)
		return nil, nil, false
	}
	next, err := m.Data.Continue(end, chain)
	switch {
	case errors.Is(err, event.ErrOtherHistory):
		http.Error(w, err.Error(), http.StatusConflict)
	case errors.Is(err, event.ErrBeyondEnd):
		http.Error(w, err.Error(), http.StatusRequestedRangeNotSatisfiable)
	case err != nil:
		http.Error(w, err.Error(), http.StatusInternalServerError)
	default:
		return next, m, true
	}
	return nil, nil, false
}

// chunk sends a chunk file from an offset on.
func (s *sender) chunk(w http.ResponseWriter, r *http.Request) {
	next, _, ok := s.continuation(w, r)
	if !ok {
		return
	}
	defer func() { s.self.warnDebug(next.Close()) }()
	file, isFile := next.File()
	offset, err := strconv.ParseInt(r.URL.Query().Get("offset"), 10, 64)
	if !isFile || err != nil || offset < 0 || offset > file.Size || file.Checksum != r.URL.Query().Get("checksum") {
		http.Error(w, "there is no such chunk file any more", http.StatusGone)
		return
	}
	s.copy(w, io.NewSectionReader(next, offset, file.Size-offset))
}

// chunkFiles lists the complete files that cover a range of chunks.
func (s *sender) chunkFiles(w http.ResponseWriter, r *http.Request) {
	m := s.self.deps.Load()
	first, err := strconv.Atoi(r.URL.Query().Get("first"))
	last, lastErr := strconv.Atoi(r.URL.Query().Get("last"))
	if err = errors.Join(err, lastErr); err != nil || m == nil || m.Healer == nil {
		http.Error(w, fmt.Sprintf("no data, or a wrong request: %v", err), http.StatusBadRequest)
		return
	}
	files, err := m.Healer.ChunkFiles(first, last)
	if err != nil {
		http.Error(w, err.Error(), http.StatusInternalServerError)
		return
	}
	reply(w, files)
}

// chunkFile sends one of them, once it has been verified: that takes as long as reading it.
func (s *sender) chunkFile(w http.ResponseWriter, r *http.Request) {
	m := s.self.deps.Load()
	first, err := strconv.Atoi(r.URL.Query().Get("first"))
	if err != nil || m == nil || m.Healer == nil {
		http.Error(w, fmt.Sprintf("no data, or a wrong request: %v", err), http.StatusBadRequest)
		return
	}
	file, err := m.Healer.OpenChunkFile(first, r.URL.Query().Get("checksum"))
	if err != nil {
		status := http.StatusInternalServerError
		if errors.Is(err, fs.ErrNotExist) {
			status = http.StatusGone
		}
		http.Error(w, err.Error(), status)
		return
	}
	defer func() { s.self.warnDebug(file.Close()) }()
	s.copy(w, io.NewSectionReader(file, 0, file.Size()))
}

// copy sends a chunk file, or the rest of it.
func (s *sender) copy(w http.ResponseWriter, from *io.SectionReader) {
	w.Header().Set("Content-Length", strconv.FormatInt(from.Size(), 10))
	n, err := io.Copy(w, from)
	s.metrics.shipped.Add(uint64(n))
	if err != nil {
		s.self.logger.Debug("chunk file was not sent whole", logkey.Error, err)
	}
}

// status answers what this node is, and the chain at a position if one is asked for.
func (s *sender) status(w http.ResponseWriter, r *http.Request) {
	if r.URL.RawQuery == queryConfirmed {
		if err := s.confirm(r.Context()); err != nil {
			http.Error(w, err.Error(), http.StatusServiceUnavailable)
			return
		}
	}
	begun, took := time.Now(), s.metrics.unserved
	defer func() { took.ObserveSince(begun) }()
	own := s.own()
	if at := r.URL.Query().Get("at"); at != "" && own.HasLog {
		position, err := strconv.ParseInt(at, 10, 64)
		if err != nil {
			http.Error(w, "at must be a position", http.StatusBadRequest)
			return
		}
		if position <= own.Tail.End {
			chain, _, err := s.self.deps.Load().Log.ChainAt(position)
			if err != nil {
				http.Error(w, err.Error(), http.StatusInternalServerError)
				return
			}
			own.At = &ChainAt{Position: position, Chain: chain}
		}
	}
	took = s.metrics.answered
	reply(w, own)
}
