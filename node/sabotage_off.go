//go:build !sabotage

package node

import (
	httpapi "github.com/annalsdb/annals/http"
	"github.com/annalsdb/annals/replication"
)

// Switches that a build with the tag sabotage breaks.

func sabotaged(m replication.Materials) replication.Materials { return m }

func sabotagedStore(s *store) httpapi.Store { return s }
