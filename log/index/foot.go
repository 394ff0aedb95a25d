package index

import (
	"encoding/hex"
	"path"
	"strings"

	"github.com/zeebo/xxh3"
)

// Foot returns how many bytes at the end of a file of the index carry the checksum of all before
// them, 0 for one that carries none. The name is relative to the folder of the index, with slashes.
func Foot(name string) int {
	switch {
	case isTableName(name):
		return tableFooterSize
	case isTableName(strings.TrimSuffix(name, bloomSuffix)), name == path.Join(existenceFolder, existenceName):
		return bloomSumSize
	}
	return 0
}

// CheckFoot compares the foot of a file with the XXH3 of all bytes before it and
// returns the checksum that it carries, in hexadecimal.
func CheckFoot(name string, sum uint64, foot []byte) (string, error) {
	carried := carriedSum(foot)
	ok := le.Uint64(foot) == sum
	if len(foot) == tableFooterSize {
		ok = le.Uint64(carried) == sum && le.Uint64(carried[8:]) == xxh3.Hash(foot[:tableFooterSize-8])
	}
	if !ok {
		return "", corrupt(name, -1, "checksum of the whole file does not match")
	}
	return hex.EncodeToString(carried), nil
}

// carriedSum is the checksum in a foot: of a table that of the entries and that of the footer.
func carriedSum(foot []byte) []byte {
	if len(foot) == tableFooterSize {
		return foot[tableFooterSize-16:]
	}
	return foot
}
