//go:build tools

package replication

// The versions of raft, raft-boltdb and serf that build together are few, so
// that serf is pinned next to the others before membership uses it.
import _ "github.com/hashicorp/serf/serf"
