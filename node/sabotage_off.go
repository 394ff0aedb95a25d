//go:build !sabotage

package node

import (
	"github.com/annalsdb/annals/api"
	"github.com/annalsdb/annals/replication"
)

// Switches that a build with the tag sabotage breaks.

func sabotaged(m replication.Dependencies) replication.Dependencies { return m }

func sabotagedStore(s *store) api.Store { return s }
