package index

import (
	"bytes"
	"crypto/md5"
	"encoding/hex"
	"fmt"
	"path/filepath"
	"strconv"
	"strings"

	"github.com/annalsdb/annals/event"
	"github.com/annalsdb/annals/internal/vfs"
)

// mapVersion is the format version of indexmap and of the set it names: do not change.
const mapVersion = 2

// indexMap is the content of the file that names the live tables.
type indexMap struct {
	checkpoint int64
	cluster    event.ID    // of the log
	chain      event.Chain // of the log, at the checkpoint
	maxLevel   int         // of automatic merges when the map was written; of no effect
	tables     []mapLine
}

// mapLine is one table. Lines are ordered from the newest table to the oldest;
// levels never fall along them.
type mapLine struct {
	level int
	file  string
}

// encode writes the map as text: a checksum line, then what it covers.
func (m *indexMap) encode() []byte {
	body := fmt.Appendf(nil, "%d\n%d/%d/%s/%x\n%d\n", mapVersion, m.checkpoint, m.checkpoint, m.cluster, m.chain[:], m.maxLevel)
	position := 0
	for i, t := range m.tables {
		if i > 0 && m.tables[i-1].level == t.level {
			position++
		} else {
			position = 0
		}
		body = fmt.Appendf(body, "%d,%d,%s\n", t.level, position, t.file)
	}
	return append(append(mapSum(body), '\n'), body...)
}

// mapSum is the checksum line of a map. MD5 guards against damage here, not against forgers.
func mapSum(body []byte) []byte {
	sum := md5.Sum(body)
	return hex.AppendEncode(nil, sum[:])
}

// parseMap reads what encode wrote. It accepts nothing else: whatever it reads
// would be written again byte by byte.
func parseMap(name string, data []byte) (*indexMap, error) {
	first, body, _ := bytes.Cut(data, []byte{'\n'})
	if !bytes.Equal(mapSum(body), first) {
		return nil, corrupt(name, 0, "wrong checksum")
	}
	lines := bytes.Split(body, []byte{'\n'})
	if len(lines) < 4 {
		return nil, corrupt(name, -1, "%d lines are too few", len(lines))
	}
	m := &indexMap{}
	var err error
	if string(lines[0]) != strconv.Itoa(mapVersion) {
		return nil, corrupt(name, -1, "unknown version %q", lines[0])
	}
	if err := m.parseCheckpoint(string(lines[1])); err != nil {
		return nil, corrupt(name, -1, "checkpoints %q: %v", lines[1], err)
	}
	if m.maxLevel, err = strconv.Atoi(string(lines[2])); err != nil {
		return nil, corrupt(name, -1, "merge level %q", lines[2])
	}
	seen := make(map[string]bool)
	for _, line := range lines[3 : len(lines)-1] {
		level, rest, _ := bytes.Cut(line, []byte{','})
		_, file, _ := bytes.Cut(rest, []byte{','})
		t := mapLine{file: string(file)}
		t.level, err = strconv.Atoi(string(level))
		if err != nil || t.level < 0 || !isTableName(t.file) || seen[t.file] ||
			len(m.tables) > 0 && m.tables[len(m.tables)-1].level > t.level {
			return nil, corrupt(name, -1, "line %q", line)
		}
		seen[t.file] = true
		m.tables = append(m.tables, t)
	}
	if !bytes.Equal(m.encode(), data) {
		return nil, corrupt(name, -1, "not in the form it is written in")
	}
	return m, nil
}

// parseCheckpoint reads the line with the checkpoint and the log that it is one of.
// What it passes over shows when the map is compared with what would be written.
func (m *indexMap) parseCheckpoint(line string) (err error) {
	parts := strings.Split(line, "/")
	if m.checkpoint, err = strconv.ParseInt(parts[0], 10, 64); err != nil || m.checkpoint < 0 {
		return fmt.Errorf("no position: %w", err)
	}
	if len(parts) != 4 {
		return fmt.Errorf("%d parts", len(parts))
	}
	if m.cluster, err = event.ParseID(parts[2]); err != nil {
		return err
	}
	chain, err := hex.DecodeString(parts[3])
	if err != nil || len(chain) != len(m.chain) {
		return fmt.Errorf("no chain: %w", err)
	}
	m.chain = event.Chain(chain)
	return nil
}

func readMap(fsys vfs.FS, dir string) (*indexMap, error) {
	name := filepath.Join(dir, mapName)
	data, err := vfs.ReadFile(fsys, name)
	if err != nil {
		return nil, err
	}
	return parseMap(name, data)
}

func writeMap(fsys vfs.FS, dir string, m *indexMap) error {
	return vfs.WriteFileAtomic(fsys, filepath.Join(dir, mapName), m.encode())
}
