package request

import (
	"context"

	"github.com/annalsdb/annals/api"
	"github.com/annalsdb/annals/http/address"
	"github.com/annalsdb/annals/internal/http1"
)

// Node is what the requests to one node share.
type Node struct {
	*api.Node

	Address *address.Names
	Fields  *http1.Fields // what every answer carries

	Draining context.Context // ends when the node prepares for its end

	DisableCaching       bool
	ReferenceStatusCodes bool
}
