package projection

import (
	"testing"

	"github.com/annalsdb/annals/internal/check"
)

func TestResultStreams(t *testing.T) {
	for stream, want := range map[string]bool{
		"$projections-p-result": true, "$projections-p-partitions": true, "$projections-p-a b-result": true,
		"$projections-p": false, "$projections-p-checkpoint": false, "$projections-p-a-checkpoint": false, "$projections-p-order": false, "$projections-pq-result": false,
		"$projections-result": false, "$projections-p-resultx": false, "$projections-p-a-partitions": false, "result": false,
	} {
		check.Equal(t, isResultStream("p", stream), want, stream)
	}
}
