// Package inspect checks a data directory that is not open: the chunk files against their
// checksums, their frames and each other, the checkpoint files, and the index against the log. It
// reports all it finds and changes nothing. It knows the formats, but shares no code with the log
// that writes them, so that it does not repeat the log's mistakes.
package inspect

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"path/filepath"
	"slices"
	"strings"

	"github.com/annalsdb/annals/event"
	"github.com/annalsdb/annals/internal/vfs"
	"github.com/annalsdb/annals/log/chunkfile"
	"github.com/annalsdb/annals/log/datadir"
)

// Severity says what a finding means.
type Severity string

// Severities of findings.
const (
	Problem Severity = "error"  // something is not what was written, or contradicts something else
	Notice  Severity = "notice" // the next start takes care of it, and nothing acknowledged is lost
)

// FindingKind names what a finding is about. The names are part of what tools print.
type FindingKind string

// Kinds of findings.
const (
	FindChecksum   FindingKind = "checksum"   // bytes that do not fit their checksum
	FindUnreadable FindingKind = "unreadable" // a file that cannot be opened, read or understood
	FindMissing    FindingKind = "missing"    // a file that should be there
	FindLeftover   FindingKind = "leftover"   // a file that is no longer in use
	FindCheckpoint FindingKind = "checkpoint" // checkpoint files
	FindCluster    FindingKind = "cluster"    // a chunk of another cluster
	FindItem       FindingKind = "item"       // a record or trailer that is damaged or out of place
	FindFrame      FindingKind = "frame"      // the order of frames
	FindChain      FindingKind = "chain"      // the running hash of the log
	FindFooter     FindingKind = "footer"     // a footer that contradicts the data before it
	FindMap        FindingKind = "map"        // the position map of a scavenged chunk
	FindTorn       FindingKind = "torn"       // what lies after the last valid frame
	FindStream     FindingKind = "stream"     // the event numbers of a stream
	FindIndex      FindingKind = "index"      // the index against the log
)

// Finding is one thing that Inspect has to say.
type Finding struct {
	Severity Severity    `json:"severity"`
	Kind     FindingKind `json:"kind"`
	File     string      `json:"file"`
	Offset   int64       `json:"offset"`   // in the file, -1: none
	Position int64       `json:"position"` // in the log, -1: none
	Detail   string      `json:"detail"`
}

// Summary counts what Inspect has seen.
type Summary struct {
	End          int64 `json:"end"`    // of the valid log
	Chunks       int64 `json:"chunks"` // files in use that could be opened
	Scavenged    int64 `json:"scavengedChunks"`
	Frames       int64 `json:"frames"`
	Records      int64 `json:"records"`
	Stubs        int64 `json:"stubs"` // what is left of removed records whose ids still count
	Redacted     int64 `json:"redactedRecords"`
	Streams      int64 `json:"streams"` // those with at least one record
	IndexTables  int64 `json:"indexTables"`
	IndexEntries int64 `json:"indexEntries"`
	Bytes        int64 `json:"bytes"` // of the chunk files and index tables read
}

// Progress says how far an inspection is.
type Progress struct {
	Phase   string `json:"phase"` // "log" or "index"
	Done    int64  `json:"done"`  // bytes of the log, or entries of the index
	Total   int64  `json:"total"`
	Records int64  `json:"records"`
}

// Options say what to inspect. Dir is needed; the zero value of everything else works.
type Options struct {
	FS       vfs.FS // default: the real file system
	Dir      string
	IndexDir string // default: Dir/index

	// Quick leaves it at saying that log and index differ, without finding out where.
	Quick bool

	// Progress, if not nil, gets the progress, several times for each GiB.
	Progress func(Progress)
}

// ErrNoDataFolder says that a folder holds no log at all.
var ErrNoDataFolder = errors.New("not a data folder")

// Run reads the log and the index in a folder that is not open, checks them against themselves and
// each other, and reports all it finds, in the order of the log. It changes nothing: it only opens
// files for reading, lists and asks for sizes. It does not look at the folder raft.
//
// Memory is bounded by the number of streams, at 32 to 64 bytes each (43 to 86 after a scavenge),
// not by the number of events. An error means that the folder cannot be judged at all, or that ctx
// ended the work.
func Run(ctx context.Context, o Options, report func(Finding)) (_ Summary, err error) {
	o.FS = cmp.Or(o.FS, vfs.OS)
	o.IndexDir = cmp.Or(o.IndexDir, filepath.Join(o.Dir, "index"))
	if o.Progress == nil {
		o.Progress = func(Progress) {}
	}
	n := &inspector{ctx: ctx, o: o, report: report, blurred: -1}
	g := &names{n: n}
	g.streams.init()
	r := &indexCheck{n: n, names: g, checkpoint: -1}
	p := &postingsCheck{streams: r, checkpoint: -1}
	defer func() { err = errors.Join(err, n.close(), r.close(), p.close()) }()
	k := &walker{n: n, names: g, index: r, postings: p, whole: true}
	if err := k.run(); err != nil {
		return n.sum, fmt.Errorf("inspect %s: %w", o.Dir, err)
	}
	return n.sum, nil
}

// inspector is what was found out about a data folder so far.
type inspector struct {
	ctx    context.Context // of this one call
	o      Options
	report func(Finding)
	sum    Summary

	chk     map[string]int64   // the checkpoints that could be read
	files   []string           // chunk files in use, by number
	chunks  []*chunkfile.Chunk // those that could be opened, kept open to look records up
	cluster event.ID
	bytes   int64 // of the files in use

	tail event.Tail // the last known
	// blurred is the end of the newest part of the log in which records may be
	// missing: by scavenging, or because they cannot be read. -1: there is none.
	blurred int64
	damaged []span // where records cannot be read
	unsure  bool   // what a position map says of the records that are there is wrong
}

// walker goes through the chunks. Where frames are damaged or missing, whole is false until a
// footer or trailer after the damage gives the end and the chain again.
type walker struct {
	n        *inspector
	names    *names
	index    *indexCheck
	postings *postingsCheck

	whole   bool
	time    int64 // of the newest record
	next    int   // first logical chunk number of the next file
	ended   bool  // the valid log ends before what is left
	records []int // offsets of the records of the current frame
	hashes  []uint64
	buf     []byte // of files that cannot be mapped
}

// span is a part of the log.
type span struct{ from, to int64 }

func (k *walker) run() error {
	if err := k.n.openFolder(); err != nil {
		return err
	}
	k.index.openIndex()
	k.postings.open()
	for i, name := range k.n.files {
		if k.ended {
			k.behindEnd(name)
			continue
		}
		if err := k.inspectChunk(name, i == len(k.n.files)-1); err != nil {
			return err
		}
	}
	k.n.sum.End = k.n.tail.End
	k.n.sum.Streams = k.names.streams.count
	k.n.checkEnd()
	if err := k.index.inspectIndex(); err != nil {
		return err
	}
	return k.postings.inspect()
}

func (n *inspector) close() error {
	var err error
	for _, c := range n.chunks {
		err = errors.Join(err, c.Close())
	}
	return err
}

func (n *inspector) find(s Severity, kind FindingKind, file string, offset, position int64, format string, args ...any) {
	n.report(Finding{Severity: s, Kind: kind, File: file, Offset: offset, Position: position, Detail: fmt.Sprintf(format, args...)})
}

// durable is the end of the log that must be there. Without its checkpoint everything must.
func (n *inspector) durable() int64 {
	if v, ok := n.chk[datadir.WriterCheckpoint]; ok {
		return v
	}
	return 1<<63 - 1
}

// optional says that the log may end at a position without having lost anything.
func (n *inspector) optional(position int64) bool { return position >= n.durable() }

// damage notes that records between two positions cannot be read.
func (k *walker) damage(from, to int64) {
	k.n.blurred = max(k.n.blurred, to)
	k.whole = false
	const most = 10_000 // more than that become one
	if last := len(k.n.damaged) - 1; last >= 0 && (k.n.damaged[last].to >= from || last == most) {
		k.n.damaged[last].to = max(k.n.damaged[last].to, to)
		return
	}
	k.n.damaged = append(k.n.damaged, span{from, to})
}

func (n *inspector) checkEnd() {
	writer, ok := n.chk[datadir.WriterCheckpoint]
	if !ok || n.tail.End >= writer {
		return
	}
	// Between the last frame of a complete chunk and the next chunk there is nothing to lose.
	if last := len(n.chunks) - 1; last >= 0 && n.chunks[last].Complete && writer <= chunkfile.ChunkStart(n.chunks[last].Header.Last+1) {
		return
	}
	n.find(Problem, FindCheckpoint, filepath.Join(n.o.Dir, datadir.WriterCheckpoint), -1, n.tail.End,
		"the log ends at %d, but was durable up to %d", n.tail.End, writer)
}

// openFolder lists the folder and reads its small files. Its error means that there is nothing to
// inspect.
func (n *inspector) openFolder() error {
	names, err := n.o.FS.List(n.o.Dir)
	if err != nil {
		return err
	}
	ours := slices.Contains(names, datadir.FormatFile) || slices.Contains(names, datadir.WriterCheckpoint)
	n.chooseFiles(names)
	if !ours && len(n.files) == 0 {
		return ErrNoDataFolder
	}
	if err := n.checkFormat(); err != nil {
		return err
	}
	n.checkCheckpoints()
	return nil
}

// chooseFiles tells the chunk files in use from what the next start removes.
func (n *inspector) chooseFiles(names []string) {
	for _, name := range names {
		if strings.HasSuffix(name, vfs.TempSuffix) {
			n.find(Notice, FindLeftover, filepath.Join(n.o.Dir, name), -1, -1, "temporary file of work that did not finish")
		}
	}
	newest, older := chunkfile.Newest(names)
	for _, name := range older {
		number, _, _ := chunkfile.ParseFileName(name)
		n.find(Notice, FindLeftover, filepath.Join(n.o.Dir, name), -1, chunkfile.ChunkStart(number), "a newer version of this chunk is in use")
	}
	covered := -1
	for _, f := range newest {
		path := filepath.Join(n.o.Dir, f.Name)
		if f.Number <= covered {
			n.find(Notice, FindLeftover, path, -1, chunkfile.ChunkStart(f.Number), "a merged chunk that covers this one is in use")
			continue
		}
		covered = f.Number
		n.files = append(n.files, path)
		if h, size, err := n.peek(path); err == nil {
			n.bytes += size
			if h.First == f.Number {
				covered = h.Last
			}
		}
	}
}

// peek reads the header of a chunk file.
func (n *inspector) peek(path string) (h chunkfile.Header, size int64, err error) {
	f, err := n.o.FS.Open(path)
	if err != nil {
		return h, 0, err
	}
	defer func() { err = errors.Join(err, f.Close()) }()
	if size, err = f.Size(); err != nil {
		return h, 0, err
	}
	b := make([]byte, chunkfile.HeaderSize)
	if err := vfs.ReadFull(f, b, 0); err != nil {
		return h, size, err
	}
	h, err = chunkfile.ParseHeader(b)
	return h, size, err
}

// checkFormat reads the format file. A newer format is an error: its rules are not known here.
func (n *inspector) checkFormat() error {
	path := filepath.Join(n.o.Dir, datadir.FormatFile)
	info, err := datadir.ReadInfo(n.o.FS, n.o.Dir)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		n.find(Notice, FindMissing, path, -1, -1, "no format file: the next start makes one")
	case info.Format > datadir.NewestFormat:
		return err
	case err != nil:
		n.find(Problem, FindUnreadable, path, -1, -1, "%v", err)
	default:
		if _, err := event.ParseID(info.Directory); err != nil {
			n.find(Problem, FindUnreadable, path, -1, -1, "directory id: %v", err)
		}
	}
	return nil
}

func (n *inspector) checkCheckpoints() {
	n.chk = map[string]int64{}
	for _, name := range []string{datadir.WriterCheckpoint, datadir.ChaserCheckpoint, datadir.EpochCheckpoint, datadir.ProposalCheckpoint, datadir.TruncateCheckpoint} {
		path := filepath.Join(n.o.Dir, name)
		data, err := vfs.ReadFile(n.o.FS, path)
		switch {
		case errors.Is(err, fs.ErrNotExist):
			// They are made before the first chunk is.
			if len(n.files) > 0 {
				n.find(Problem, FindMissing, path, -1, -1, "no such checkpoint file")
			}
		case err != nil:
			n.find(Problem, FindUnreadable, path, -1, -1, "%v", err)
		case len(data) != 8:
			n.find(Problem, FindCheckpoint, path, -1, -1, "%d bytes, need 8", len(data))
		default:
			v := int64(chunkfile.Order.Uint64(data))
			n.chk[name] = v
			if v < min(datadir.InitialCheckpoints[name], 0) {
				n.find(Problem, FindCheckpoint, path, 0, -1, "impossible value %d", v)
			}
		}
	}
	writer, ok := n.chk[datadir.WriterCheckpoint]
	if v, known := n.chk[datadir.EpochCheckpoint]; known && ok && v > writer && n.chk[datadir.TruncateCheckpoint] < 0 {
		n.find(Problem, FindCheckpoint, filepath.Join(n.o.Dir, datadir.EpochCheckpoint), 0, v, "%d is above %s, %d", v, datadir.WriterCheckpoint, writer)
	}
	if cut, ok := n.chk[datadir.TruncateCheckpoint]; ok && cut >= 0 {
		n.find(Notice, FindCheckpoint, filepath.Join(n.o.Dir, datadir.TruncateCheckpoint), 0, cut, "the next start cuts the log at %d", cut)
	}
}
