package access

import (
	"context"
	"crypto/pbkdf2"
	"crypto/rand"
	"crypto/sha1"
	"crypto/sha256"
	"crypto/subtle"
	"fmt"
	"runtime"
	"time"

	"github.com/annalsdb/annals/stats"
)

// Parameters of password hashes. The legacy ones are those of documents that
// name no algorithm: do not change. DefaultIterations may be raised; stored
// hashes say how they were made.
const (
	DefaultIterations = 600_000

	saltSize         = 16
	sha256HashSize   = 32
	legacyIterations = 1000
	legacyHashSize   = 20

	// maxIterations bounds what a stored document can make a login cost.
	maxIterations = 20_000_000
)

// PasswordHash is what is stored instead of a password.
type PasswordHash struct {
	Salt, Hash []byte
	Algorithm  string // empty: legacy
	Iterations int
}

// Hasher makes and checks password hashes, a bounded number at a time: one is
// shared by everything on a node that handles passwords. Each takes a tenth of a
// second or so of one processor.
type Hasher struct {
	iterations int
	slots      chan struct{} // holds one element per computation under way; first come, first served
	metrics    *metrics
}

// HasherOptions are the options of a Hasher. The zero value works.
type HasherOptions struct {
	Iterations int             // of new hashes; DefaultIterations when 0
	Parallel   int             // computations at a time; half of the processors when 0
	Stats      *stats.Registry // may be nil
}

// NewHasher returns a Hasher.
func NewHasher(o HasherOptions) *Hasher {
	if o.Iterations <= 0 {
		o.Iterations = DefaultIterations
	}
	if o.Parallel <= 0 {
		o.Parallel = max(1, runtime.GOMAXPROCS(0)/2)
	}
	return &Hasher{
		iterations: min(o.Iterations, maxIterations),
		slots:      make(chan struct{}, o.Parallel),
		metrics:    newMetrics(o.Stats),
	}
}

// Hash makes a hash of the password with a new salt. It fails when ctx ends while it waits for its turn.
func (h *Hasher) Hash(ctx context.Context, password string) (PasswordHash, error) {
	if err := h.acquire(ctx); err != nil {
		return PasswordHash{}, err
	}
	defer h.release()
	p := PasswordHash{Salt: make([]byte, saltSize), Algorithm: algSHA256, Iterations: h.iterations}
	if _, err := rand.Read(p.Salt); err != nil {
		return PasswordHash{}, fmt.Errorf("make a salt: %w", err)
	}
	var err error
	p.Hash, err = h.derive(password, p.Salt, algSHA256, h.iterations)
	return p, err
}

// Verify reports whether the password is the one that was hashed. It fails when
// ctx ends while it waits for its turn.
func (h *Hasher) Verify(ctx context.Context, password string, p PasswordHash) (bool, error) {
	if err := h.acquire(ctx); err != nil {
		return false, err
	}
	defer h.release()
	return h.matches(password, p)
}

// acquire waits for a slot.
func (h *Hasher) acquire(ctx context.Context) error {
	select {
	case h.slots <- struct{}{}:
		return nil
	default:
	}
	h.metrics.waiting.Add(1)
	defer h.metrics.waiting.Add(-1)
	select {
	case h.slots <- struct{}{}:
		return nil
	case <-ctx.Done():
		return fmt.Errorf("wait for a password to be checked: %w", ctx.Err())
	}
}

func (h *Hasher) release() { <-h.slots }

// matches compares in constant time. A refusal takes as long as hashing with
// today's parameters does, whatever is stored, so that its time does not tell
// whether there is such a user. The caller holds a slot.
func (h *Hasher) matches(password string, p PasswordHash) (bool, error) {
	algorithm, iterations, size := p.Algorithm, p.Iterations, sha256HashSize
	switch algorithm {
	case "":
		algorithm, iterations, size = algSHA1, legacyIterations, legacyHashSize
	case algSHA1:
		size = legacyHashSize
	}
	known := (algorithm == algSHA1 || algorithm == algSHA256) && iterations > 0 && iterations <= maxIterations && len(p.Hash) == size
	if known {
		got, err := h.derive(password, p.Salt, algorithm, iterations)
		if err != nil {
			return false, err
		}
		if subtle.ConstantTimeCompare(got, p.Hash) == 1 {
			return true, nil
		}
		if algorithm == algSHA256 && iterations >= h.iterations {
			return false, nil
		}
	}
	return false, h.waste(password)
}

// waste computes a hash for nothing. The caller holds a slot.
func (h *Hasher) waste(password string) error {
	var salt [saltSize]byte
	_, err := h.derive(password, salt[:], algSHA256, h.iterations)
	return err
}

// derive computes a hash. The caller holds a slot.
func (h *Hasher) derive(password string, salt []byte, algorithm string, iterations int) (key []byte, err error) {
	defer h.metrics.hashing.ObserveSince(time.Now())
	if algorithm == algSHA1 {
		key, err = pbkdf2.Key(sha1.New, password, salt, iterations, legacyHashSize)
	} else {
		key, err = pbkdf2.Key(sha256.New, password, salt, iterations, sha256HashSize)
	}
	if err != nil {
		return nil, fmt.Errorf("hash a password with %s: %w", algorithm, err)
	}
	return key, nil
}
