package gossip

import (
	"crypto/aes"
	"crypto/cipher"
	"crypto/rand"
	"encoding/binary"
	"errors"
	"fmt"
	"sync/atomic"

	"github.com/annalsdb/annals/event"
)

// Formats on the wire, described in the package comment. Do not change.
const (
	packetPlain  = 0xE0
	packetSealed = 0xE1

	plainOverhead  = 1
	headerSize     = 1 + keyIDSize + 8
	tagSize        = 16
	sealedOverhead = headerSize + tagSize

	keyIDSize  = 8
	secretSize = 32
)

// maxSealed is how many packets one key may seal. A key is replaced because of
// its age long before; reaching this stops sending until then, so that no counter
// is used twice.
const maxSealed = 1 << 40

// Reasons for which a packet is not opened.
var (
	errUnknownKey = errors.New("the key of the packet is not known")
	errForged     = errors.New("the packet is not authentic")
	errReplayed   = errors.New("the packet came before")
)

type (
	keyID  [keyIDSize]byte
	secret [secretSize]byte
)

// sendingKey seals the packets of this node.
type sendingKey struct {
	id      keyID
	secret  secret
	aead    cipher.AEAD
	counter atomic.Uint64 // last one used
}

func newSendingKey() (*sendingKey, error) {
	k := &sendingKey{}
	// Neither call returns an error: without randomness the process ends.
	_, _ = rand.Read(k.id[:])
	_, _ = rand.Read(k.secret[:])
	var err error
	k.aead, err = newAEAD(k.secret)
	return k, err
}

func newAEAD(s secret) (cipher.AEAD, error) {
	block, err := aes.NewCipher(s[:])
	if err != nil {
		return nil, fmt.Errorf("make a packet key: %w", err)
	}
	aead, err := cipher.NewGCM(block)
	if err != nil {
		return nil, fmt.Errorf("make a packet key: %w", err)
	}
	return aead, nil
}

// seal returns the packet for one receiver, or false if the key is used up.
func (k *sendingKey) seal(packet []byte, to event.ID) ([]byte, bool) {
	counter := k.counter.Add(1)
	if counter > maxSealed {
		return nil, false
	}
	sealed := make([]byte, headerSize, sealedOverhead+len(packet))
	sealed[0] = packetSealed
	copy(sealed[1:], k.id[:])
	binary.BigEndian.PutUint64(sealed[1+keyIDSize:], counter)
	return k.aead.Seal(sealed, nonce(counter), packet, associated(sealed, to)), true
}

func nonce(counter uint64) []byte { return binary.BigEndian.AppendUint64(make([]byte, 4, 12), counter) }

// associated is what is authenticated beside the packet: its header and who it is for.
func associated(sealed []byte, to event.ID) []byte {
	data := make([]byte, 0, headerSize+len(to))
	return append(append(data, sealed[:headerSize]...), to[:]...)
}

// receivingKey opens the packets of another node.
type receivingKey struct {
	aead cipher.AEAD
	seen window
}

// open returns what a sealed packet holds. The header's length has been checked.
func (k *receivingKey) open(sealed []byte, self event.ID) ([]byte, error) {
	counter := binary.BigEndian.Uint64(sealed[1+keyIDSize:])
	packet, err := k.aead.Open(nil, nonce(counter), sealed[headerSize:], associated(sealed, self))
	if err != nil {
		return nil, errForged
	}
	// Only now: a forged counter must not move the window.
	if !k.seen.add(counter) {
		return nil, errReplayed
	}
	return packet, nil
}

// windowSize is how far behind the newest packet another one may come.
const windowSize = 512

// window knows which of the last counters came. It is a ring of bits; the bit of a
// counter is reused windowSize counters later.
type window struct {
	newest uint64
	bits   [windowSize / 64]uint64
}

// add marks a counter and reports whether it had not come before. What is older
// than the window counts as having come.
func (w *window) add(counter uint64) bool {
	if counter == 0 || counter+windowSize <= w.newest {
		return false
	}
	if counter > w.newest {
		// The bits between belong to counters that have left the window.
		if counter-w.newest >= windowSize {
			w.bits = [windowSize / 64]uint64{}
		} else {
			for c := w.newest + 1; c < counter; c++ {
				*w.word(c) &^= 1 << (c % 64)
			}
		}
		w.newest = counter
		*w.word(counter) |= 1 << (counter % 64)
		return true
	}
	word, bit := w.word(counter), uint64(1)<<(counter%64)
	if *word&bit != 0 {
		return false
	}
	*word |= bit
	return true
}

func (w *window) word(counter uint64) *uint64 { return &w.bits[counter%windowSize/64] }
