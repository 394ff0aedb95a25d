package projection

import (
	"fmt"
	"slices"
	"strings"

	"github.com/annalsdb/annals/projection/standard"
)

// Names of stored data. Other versions read and write them: do not change.
const (
	listStream = "$projections-$all"
	listName   = "$all" // whose definitions would be in listStream

	typeInitialized = "$ProjectionsInitialized"
	typeCreated     = "$ProjectionCreated"
	typeDeleted     = "$ProjectionDeleted"
	typeUpdated     = "$ProjectionUpdated"

	streamPrefix = "$projections-"
	typeScript   = "JS"
)

// definitionStream returns the stream of a projection's definitions. The names
// of its other streams begin with that.
func definitionStream(name string) string { return streamPrefix + name }

// suffixes end the names of the streams of a projection, apart from those of its partitions.
var suffixes = []string{"-checkpoint", "-result", "-partitions", "-order", "-emittedstreams", longestSuffix, "-checkpointedpartitions"}

const longestSuffix = "-emittedstreams-checkpoint"

// overlaps says that one of two projections would have its definitions in a
// stream that the other one writes.
func overlaps(a, b string) error {
	if len(a) > len(b) {
		a, b = b, a
	}
	if rest, ok := strings.CutPrefix(b, a); !ok || !slices.Contains(suffixes, rest) {
		return nil
	}
	return &BadInput{fmt.Sprintf("The stream of projection %s is one of those that projection %s writes : %s", b, a, definitionStream(b))}
}

// isStandard reports whether a name is that of a system projection, which is always there.
func isStandard(name string) bool {
	return slices.ContainsFunc(standard.All, func(p standard.Projection) bool { return p.Name == name })
}

// isResultStream reports whether results of a projection go to a stream unless its script names
// another.
func isResultStream(name, stream string) bool {
	rest, ok := strings.CutPrefix(stream, definitionStream(name)+"-")
	return ok && (rest == "result" || rest == "partitions" || strings.HasSuffix(rest, "-result"))
}
