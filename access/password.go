package access

import (
	"cmp"
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

// Hasher makes and checks password hashes, a bounded number at a time and in a
// fair order: one is shared by everything on a node that handles passwords. Each
// takes a tenth of a second or so of one processor.
type Hasher struct {
	iterations int
	turns      *turns
	metrics    *metrics

	checking, managing, renewing *stats.Work
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
	m := newMetrics(o.Stats)
	queue := o.Stats.Queue("Worker #1", "Workers", o.Parallel)
	return &Hasher{
		iterations: min(o.Iterations, maxIterations), metrics: m, turns: newTurns(o.Parallel, queue, m),
		checking: queue.Work("CheckPassword"), managing: queue.Work("ManagePassword"), renewing: queue.Work("RenewPasswordHash"),
	}
}

// Hash makes a hash of a user's password with a new salt. It waits for its turn
// with others that manage users: it fails with event.ErrBusy when there is no
// room, and when ctx ends.
func (h *Hasher) Hash(ctx context.Context, login, password string) (p PasswordHash, err error) {
	err = h.manage(ctx, login, func(r *result) { p, r.err = h.make(password) })
	return p, err
}

// Verify reports whether a user's password is the one that was hashed. It waits
// and fails as Hash does; when it was wrong, the next one for that user waits longer.
func (h *Hasher) Verify(ctx context.Context, login, password string, p PasswordHash) (right bool, err error) {
	err = h.manage(ctx, login, func(r *result) {
		if right, r.err = h.matches(password, p); r.err == nil && !right {
			r.outcome = wasWrong
		}
	})
	return right, err
}

// Test reports whether a password is the one that was hashed, as Verify does, but for the node
// itself: a wrong password does not count as an attempt, and delays no one.
func (h *Hasher) Test(ctx context.Context, login, password string, p PasswordHash) (right bool, err error) {
	err = h.manage(ctx, login, func(r *result) { right, r.err = h.matches(password, p) })
	return right, err
}

// manage works when the turn of those who manage a user comes.
func (h *Hasher) manage(ctx context.Context, login string, work func(*result)) error {
	v, err := h.turns.do(ctx, h.turns.place(management, login), nil, h.managing, func() (r result) {
		work(&r)
		return r
	})
	return cmp.Or(err, v.err)
}

// management is the origin of those who change users, on any connection.
var management = origin{management: true}

// make makes a hash. The caller holds a slot.
func (h *Hasher) make(password string) (PasswordHash, error) {
	p := PasswordHash{Salt: make([]byte, saltSize), Algorithm: algSHA256, Iterations: h.iterations}
	_, _ = rand.Read(p.Salt) // It never fails.
	var err error
	p.Hash, err = h.derive(password, p.Salt, algSHA256, h.iterations)
	return p, err
}

// outdated reports whether new hashes are stronger.
func (h *Hasher) outdated(p PasswordHash) bool {
	return p.Algorithm != algSHA256 || p.Iterations < h.iterations
}

// matches compares in constant time. A refusal takes as long as hashing with
// today's parameters does, with any stored hash, so that its time does not tell
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
		if !h.outdated(p) {
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
