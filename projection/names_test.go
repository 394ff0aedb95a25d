package projection

import "testing"

func TestResultStreams(t *testing.T) {
	for stream, want := range map[string]bool{
		"$projections-p-result": true, "$projections-p-partitions": true, "$projections-p-a b-result": true,
		"$projections-p": false, "$projections-p-checkpoint": false, "$projections-p-a-checkpoint": false, "$projections-p-order": false, "$projections-pq-result": false,
		"$projections-result": false, "$projections-p-resultx": false, "$projections-p-a-partitions": false, "result": false,
	} {
		if got := isResultStream("p", stream); got != want {
			t.Errorf("%s: %v", stream, got)
		}
	}
}
