#!/usr/bin/env bash
# Shows that annals torture notices broken promises: builds a binary that breaks one
# promise of the product at a time, and fails unless every run of it ends with a violation.
# All of them show after kills; in a short run other faults would leave less time for kills.
#   SECONDS_EACH  how long each run is tortured (default 20)
#   RUNS          runs for each promise (default 1)
set -euo pipefail
cd "$(dirname "$0")/.."

dir=$(mktemp -d)
trap 'rm -rf "$dir"' EXIT
${GO:-go} build -tags sabotage -o "$dir/annals" ./cmd/annals

missed=0
for promise in fence early drop; do
	for run in $(seq "${RUNS:-1}"); do
		code=0
		ANNALS_SABOTAGE=$promise "$dir/annals" torture --scavenges=false --projections=false --backups=false --redactions=false --seconds "${SECONDS_EACH:-20}" --seed "$((run * 2))" \
			--heal 20s --fail-fast --faults kill --keep "$dir/keep" >"$dir/out" 2>&1 || code=$?
		rm -rf "$dir/keep"
		if [ "$code" = 1 ]; then
			echo "$promise broken, run $run: noticed: $(tail -n 1 "$dir/out")"
		else
			echo "$promise broken, run $run: NOT noticed, exit code $code"
			tail -n 40 "$dir/out"
			missed=1
		fi
	done
done
exit $missed
