package inspect

import (
	"errors"
	"io/fs"
	"path/filepath"
	"slices"
	"strings"

	"github.com/annalsdb/annals/event"
	"github.com/annalsdb/annals/internal/vfs"
	"github.com/annalsdb/annals/log/chunkfile"
	"github.com/annalsdb/annals/log/datadir"
)

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
