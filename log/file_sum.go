package eventlog

import (
	"encoding/hex"
	"fmt"
	"hash/crc32"
	"strings"

	"github.com/zeebo/xxh3"

	"github.com/annalsdb/annals/event"
	"github.com/annalsdb/annals/log/chunkfile"
	"github.com/annalsdb/annals/log/index"
)

// FileSum computes the checksum of a file of the database while its bytes pass by. Complete chunks
// and most files of the index end with the checksum of what was written. FileSum compares it and
// takes it as the file's, so that a file need not be read to know it, and damage is never taken for
// what was written. That checksum covers all bytes before it; what follows is checked by other
// checksums in the file. The checksum of any other file is the XXH3-128 of all bytes.
type FileSum struct {
	name    string // relative to the data folder
	size    int64
	at      int64
	covered int64 // bytes from the start that are hashed
	hash    *xxh3.Hasher
	chunk   bool
	foot    []byte // of the file, as far as it passed by
	footAt  int64
}

// NewFileSum begins a checksum. The name is relative to the data folder, with slashes. Of a chunk
// it matters whether it is complete.
func NewFileSum(name string, size int64, complete bool) *FileSum {
	s := &FileSum{name: name, size: size, covered: size, footAt: size, hash: xxh3.New()}
	if _, _, chunk := chunkfile.ParseFileName(name); chunk && complete {
		s.chunk = true
		s.footAt = size - chunkfile.FooterSize
		s.covered = s.footAt + chunkfile.FooterChecksumAt
	} else if inIndex, ok := strings.CutPrefix(name, indexFolder+"/"); ok {
		s.footAt = size - int64(index.Foot(strings.TrimPrefix(inIndex, postingsFolder+"/")))
		s.covered = s.footAt
	}
	return s
}

// indexFolder is how a copy of the database names the folder of the index, wherever that lies.
const indexFolder = "index"

// Write takes the next bytes. More than the file has are an error.
func (s *FileSum) Write(b []byte) (int, error) {
	if s.at+int64(len(b)) > s.size {
		return 0, fmt.Errorf("%s has more than %d bytes", s.name, s.size)
	}
	if left := min(s.covered-s.at, int64(len(b))); left > 0 {
		if _, err := s.hash.Write(b[:left]); err != nil {
			return 0, err
		}
	}
	if s.footAt >= 0 && s.at+int64(len(b)) > s.footAt {
		s.foot = append(s.foot, b[max(0, s.footAt-s.at):]...)
	}
	s.at += int64(len(b))
	return len(b), nil
}

// Sum returns the checksum of the file, in hexadecimal, once all of its bytes went by. An
// event.Corruption says that the file is not what was written under the checksum that it carries.
func (s *FileSum) Sum() (string, error) {
	if s.at != s.size {
		return "", fmt.Errorf("%s has %d bytes instead of %d", s.name, s.at, s.size)
	}
	if s.footAt < 0 {
		return "", &event.Corruption{File: s.name, Offset: 0, Detail: fmt.Sprintf("%d bytes are too few", s.size)}
	}
	switch {
	case s.chunk:
		sum := s.hash.Sum128().Bytes()
		if [16]byte(s.foot[chunkfile.FooterChecksumAt:]) != sum || crc32.Checksum(s.foot[:chunkfile.FooterSize-4], chunkfile.Castagnoli) != chunkfile.Order.Uint32(s.foot[chunkfile.FooterSize-4:]) {
			return "", &event.Corruption{File: s.name, Offset: -1, Detail: "checksum of the whole file does not match"}
		}
		return hex.EncodeToString(sum[:]), nil
	case len(s.foot) > 0:
		return index.CheckFoot(s.name, s.hash.Sum64(), s.foot)
	}
	sum := s.hash.Sum128().Bytes()
	return hex.EncodeToString(sum[:]), nil
}
