package output

import (
	"github.com/annalsdb/annals/internal/jsontext"
	"github.com/annalsdb/annals/projection/handler"
)

// QueryResult is the event that a query writes for a state: at the end, or for each event if it has no when.
func (s *Streams) QueryResult(result []byte) handler.Emission {
	return handler.Emission{Stream: s.Result(), Type: TypeResult, JSON: jsontext.Valid(result), Data: result}
}

// QueryEnd is the event that a query writes behind its results.
func (s *Streams) QueryEnd() handler.Emission {
	return handler.Emission{Stream: s.Result(), Type: TypeEOF, JSON: true}
}
