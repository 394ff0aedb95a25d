#!/usr/bin/env bash
# Runs every fuzz target of the module for FUZZTIME (5s by default), one after
# the other: they cannot share one go test. A target that fails writes its input
# below testdata/fuzz of its package and fails the script at the end.
set -euo pipefail
cd "$(dirname "$0")/.."

go=${GO:-go}
time=${FUZZTIME:-5s}
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
		"$go" test -run '^$' -fuzz "^$target\$" -fuzztime "$time" "$package" || failed=1
	done
done
echo "fuzz targets run: $ran"
exit "$failed"
