package subscription

import (
	"encoding/binary"
	"math/bits"
)

// The primes of the hash. Where messages are pinned to depends on them: do not change.
const (
	prime1 uint32 = 0x9E3779B1
	prime2 uint32 = 0x85EBCA77
	prime3 uint32 = 0xC2B2AE3D
	prime4 uint32 = 0x27D4EB2F
	prime5 uint32 = 0x165667B1
)

// hash32 is XXH32 with seed 0.
func hash32(b []byte) uint32 {
	n := uint32(len(b))
	h := prime5
	if len(b) >= 16 {
		lanes := [4]uint32{prime1, prime2, 0, 0}
		lanes[0] += prime2
		lanes[3] -= prime1
		for ; len(b) >= 16; b = b[16:] {
			for i := range lanes {
				lane := lanes[i] + binary.LittleEndian.Uint32(b[4*i:])*prime2
				lanes[i] = bits.RotateLeft32(lane, 13) * prime1
			}
		}
		h = bits.RotateLeft32(lanes[0], 1) + bits.RotateLeft32(lanes[1], 7) +
			bits.RotateLeft32(lanes[2], 12) + bits.RotateLeft32(lanes[3], 18)
	}
	h += n
	for ; len(b) >= 4; b = b[4:] {
		h = bits.RotateLeft32(h+binary.LittleEndian.Uint32(b)*prime3, 17) * prime4
	}
	for _, c := range b {
		h = bits.RotateLeft32(h+uint32(c)*prime5, 11) * prime1
	}
	h = (h ^ h>>15) * prime2
	h = (h ^ h>>13) * prime3
	return h ^ h>>16
}
