package output

import (
	"strings"

	"github.com/annalsdb/annals/internal/jsontext"
	"github.com/annalsdb/annals/projection/handler"
)

// Types of events that hold results, checkpoints and lists. They are part of the contract: do not
// change.
const (
	TypeResult              = "Result"
	TypeResultRemoved       = "ResultRemoved"
	TypeEOF                 = "$Eof"
	TypePartition           = "$partition"
	TypeCheckpoint          = "$ProjectionCheckpoint"
	TypePartitionCheckpoint = "$Checkpoint"
	TypeStreamTracked       = "$StreamTracked"
)

// Streams names the streams of one projection.
type Streams struct {
	Projection string // its name
	Named      string // the result stream, if the script names it
	// of partition result streams, with {0} for the partition, if the script names them
	Pattern string
}

// StreamsOf returns the names of a projection's streams.
func StreamsOf(projection string, o *handler.Options) Streams {
	return Streams{Projection: projection, Named: string(o.ResultStream), Pattern: string(o.PartitionResultPattern)}
}

func (s *Streams) of(what string) string { return "$projections-" + s.Projection + what }

// Checkpoint holds checkpoints of the root.
func (s *Streams) Checkpoint() string { return s.of("-checkpoint") }

// PartitionCheckpoint holds checkpoints of a partition.
func (s *Streams) PartitionCheckpoint(partition string) string {
	return s.of("-" + partition + "-checkpoint")
}

// CheckpointedPartitions lists the partitions that have a checkpoint stream.
func (s *Streams) CheckpointedPartitions() string { return s.of("-checkpointedpartitions") }

// Result holds the results of the root, and links to those of partitions.
func (s *Streams) Result() string {
	if s.Named != "" {
		return s.Named
	}
	return s.of("-result")
}

// PartitionResult holds the results of a partition.
func (s *Streams) PartitionResult(partition string) string {
	if s.Pattern != "" {
		return strings.ReplaceAll(s.Pattern, "{0}", partition)
	}
	return s.of("-" + partition + "-result")
}

// Partitions lists the partitions that have results.
func (s *Streams) Partitions() string { return s.of("-partitions") }

// Order holds the order in which several streams were merged.
func (s *Streams) Order() string { return s.of("-order") }

// Emitted lists the streams emitted to.
func (s *Streams) Emitted() string { return s.of("-emittedstreams") }

// EmittedProgress tells how far their deletion came.
func (s *Streams) EmittedProgress() string { return s.of("-emittedstreams-checkpoint") }

// QueryResult is the event that a query writes for a state: at the end, or for each event if it has
// no when.
func (s *Streams) QueryResult(result []byte) handler.Emission {
	return handler.Emission{Stream: s.Result(), Type: TypeResult, JSON: jsontext.Valid(result), Data: result}
}

// QueryEnd is the event that a query writes after its results.
func (s *Streams) QueryEnd() handler.Emission {
	return handler.Emission{Stream: s.Result(), Type: TypeEOF, JSON: true}
}
