package index

import (
	"bytes"
	"crypto/md5"
	"encoding/hex"
	"path/filepath"
	"strconv"

	"github.com/annalsdb/annals/internal/vfs"
)

// mapVersion is the format version of indexmap and of the set it names: do not change.
const mapVersion = 1

// indexMap is the content of the file that names the live tables.
type indexMap struct {
	checkpoint int64
	maxLevel   int // of automatic merges when the map was written; of no effect
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
	body := strconv.AppendInt(nil, mapVersion, 10)
	body = append(body, '\n')
	body = strconv.AppendInt(body, m.checkpoint, 10)
	body = append(body, '/')
	body = strconv.AppendInt(body, m.checkpoint, 10)
	body = append(body, '\n')
	body = strconv.AppendInt(body, int64(m.maxLevel), 10)
	body = append(body, '\n')
	position := 0
	for i, t := range m.tables {
		if i > 0 && m.tables[i-1].level == t.level {
			position++
		} else {
			position = 0
		}
		body = strconv.AppendInt(body, int64(t.level), 10)
		body = append(body, ',')
		body = strconv.AppendInt(body, int64(position), 10)
		body = append(body, ',')
		body = append(body, t.file...)
		body = append(body, '\n')
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
	if v := string(lines[0]); v != strconv.Itoa(mapVersion) {
		return nil, corrupt(name, -1, "unknown version %q", v)
	}
	m := &indexMap{}
	var err error
	prepare, _, _ := bytes.Cut(lines[1], []byte{'/'})
	if m.checkpoint, err = strconv.ParseInt(string(prepare), 10, 64); err != nil || m.checkpoint < 0 {
		return nil, corrupt(name, -1, "checkpoints %q", lines[1])
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
