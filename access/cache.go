package access

import (
	"bytes"
	"crypto/sha256"
	"crypto/subtle"
	"encoding/base64"
	"fmt"
	"maps"
	"strings"
	"sync"
	"sync/atomic"

	"github.com/annalsdb/annals/event"
	"github.com/annalsdb/annals/stats"
)

// cacheSize is how many principals are remembered.
const cacheSize = 1000

// digest is an HMAC of credentials under the cache's key.
type digest [sha256.Size]byte

// version says which state of a user's stream was looked at. It changes with
// every event of the stream and of its metadata, deletion included.
type version struct {
	last, metaLast int64
	deleted        bool
}

func versionOf(i *event.StreamInfo) version {
	return version{last: i.Last, metaLast: i.MetaLast, deleted: i.HardDeleted}
}

// cache remembers successful logins. Reading takes no lock and no allocation:
// the map is immutable and replaced as a whole on every change. A change copies
// it, and looks for the entry to evict among all, which takes a few thousandths of
// the hashing that goes before. What is remembered holds as long as the
// version of the user's stream is the same; that is for the caller to see.
type cache struct {
	entries atomic.Pointer[map[string]*cached]
	clock   atomic.Uint64 // counts uses
	size    *stats.Gauge
	mu      sync.Mutex // serialises changes of entries
}

// cached is one login. All but the atomics is immutable.
type cached struct {
	principal Principal // its login is this
	digest    digest
	secret    digest // of the stored hash that the password fits
	stream    string // of the user, so that its name is not made for each request
	version   version
	used      atomic.Uint64 // the cache's clock when it was last used
	// secret of a stronger hash of the same password; nil: none was made
	renewed atomic.Pointer[digest]
}

// newCached returns a login that fits the credentials of the digest.
func newCached(s *stored, d *digest) *cached {
	e := &cached{principal: s.user.Principal(), digest: *d, secret: secretOf(s.user.Password()), stream: s.stream, version: s.version}
	e.principal.login = e
	return e
}

// secretOf is what tells one stored hash from another.
func secretOf(h PasswordHash) (d digest) {
	sum := sha256.New()
	fmt.Fprintf(sum, "%s:%d:%d:", h.Algorithm, h.Iterations, len(h.Salt))
	sum.Write(h.Salt)
	sum.Write(h.Hash)
	sum.Sum(d[:0])
	return d
}

// get returns what is remembered of these credentials, nil when there is nothing.
func (c *cache) get(login []byte, d *digest) *cached {
	entries := c.entries.Load()
	if entries == nil {
		return nil
	}
	e := (*entries)[string(login)]
	if e == nil || subtle.ConstantTimeCompare(e.digest[:], d[:]) != 1 {
		return nil
	}
	// The latest user of the cache need not be stamped again: one busy client does not fight over
	// the clock.
	if e.used.Load() != c.clock.Load() {
		e.used.Store(c.clock.Add(1))
	}
	return e
}

// put remembers a login, and forgets the one used longest ago if that is one too many.
func (c *cache) put(login string, e *cached) {
	c.mu.Lock()
	defer c.mu.Unlock()
	next := make(map[string]*cached)
	if entries := c.entries.Load(); entries != nil {
		next = maps.Clone(*entries)
	}
	if _, ok := next[login]; !ok && len(next) >= cacheSize {
		delete(next, leastUsed(next))
	}
	e.used.Store(c.clock.Add(1))
	next[login] = e
	c.entries.Store(&next)
	c.size.Set(int64(len(next)))
}

func leastUsed(entries map[string]*cached) (login string) {
	lowest := ^uint64(0)
	for l, e := range entries {
		if u := e.used.Load(); u <= lowest {
			login, lowest = l, u
		}
	}
	return login
}

const (
	basicScheme = "Basic"
	blanks      = " \t"
)

// basicToken returns what follows the scheme of a Basic header, and whether it is one.
func basicToken(header string) (token string, ok bool) {
	header = strings.Trim(header, blanks)
	if len(header) < len(basicScheme) || !strings.EqualFold(header[:len(basicScheme)], basicScheme) {
		return "", false
	}
	token = header[len(basicScheme):]
	if token != "" && token[0] != ' ' && token[0] != '\t' {
		return "", false // Another scheme whose name begins alike.
	}
	return strings.Trim(token, blanks), true
}

// decodeCredentials decodes a token into dst, or into new memory when dst is too small. It finds
// the colon after the login.
func decodeCredentials(dst []byte, token string) (login, whole []byte, ok bool) {
	if need := base64.StdEncoding.DecodedLen(len(token)); need > len(dst) {
		dst = make([]byte, need)
	}
	n, err := base64.StdEncoding.Decode(dst, []byte(token))
	if err != nil {
		return nil, nil, false
	}
	whole = dst[:n]
	colon := bytes.IndexByte(whole, ':')
	if colon < 0 {
		return nil, nil, false
	}
	return whole[:colon], whole, colon > 0
}

// ParseTrusted reads the value of an ES-TrustedAuth header, "login; group, group".
// Its caller has made sure that the header can be believed. No groups need
// follow; no login, or a second semicolon, is event.ErrNotAuthorized.
func ParseTrusted(header string) (Principal, error) {
	login, list, _ := strings.Cut(header, ";")
	login = strings.TrimSpace(login)
	if login == "" || strings.Contains(list, ";") {
		return Principal{}, event.ErrNotAuthorized
	}
	p := Principal{Login: login, Groups: []string{}}
	for list != "" {
		var group string
		group, list, _ = strings.Cut(list, ",")
		if group = strings.TrimSpace(group); group != "" {
			p.Groups = append(p.Groups, group)
		}
	}
	return p, nil
}
