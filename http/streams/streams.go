// Package streams answers requests about streams and the log: appends, deletions, metadata, single
// events, pages of the log, places in time, and live tails.
package streams

import (
	"sync/atomic"

	"github.com/annalsdb/annals/api"
	"github.com/annalsdb/annals/http/leader"
)

// Handlers answer requests about streams and the log.
type Handlers struct {
	Store         api.Store
	Subscriptions api.Subscriptions // nil: there are no groups
	Way           *leader.Way
	Finder        *Finder

	tails atomic.Int64 // live ones
}
