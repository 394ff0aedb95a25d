#!/usr/bin/env bash
# Runs every fuzz target of the module for FUZZTIME (10000x, that many inputs,
# by default), one after the other: they cannot share one go test. A target that
# fails writes its input below testdata/fuzz of its package and fails the script
# at the end.
#
# The budget is a count and not a time: before Go 1.27 a run that ends by time
# can report "context deadline exceeded" as a failure without having found
# anything, on a loaded machine above all (golang/go#75804). What minimizing an
# input may take is counted for the same reason.
set -euo pipefail
cd "$(dirname "$0")/.."

go=${GO:-go}
budget=${FUZZTIME:-10000x}
failed=0
ran=0

# Only packages whose tests mention a fuzz target are compiled for the listing.
packages=$(grep -rlE --include='*_test.go' '^func Fuzz[A-Z]' . | xargs -r -n1 dirname | sort -u)
for package in $packages; do
	if ! targets=$("$go" test -list '^Fuzz' "$package"); then
		printf '%s\n' "$targets"
		failed=1
		continue
	fi
	for target in $(printf '%s\n' "$targets" | grep '^Fuzz' || true); do
		echo "== $package $target"
		ran=$((ran + 1))
		"$go" test -run '^$' -fuzz "^$target\$" -fuzztime "$budget" -fuzzminimizetime 500x "$package" || failed=1
	done
done
echo "fuzz targets run: $ran"
exit "$failed"
