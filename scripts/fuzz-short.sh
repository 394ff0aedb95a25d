#!/usr/bin/env bash
# Runs every fuzz target of the module for FUZZTIME (10000x, that many inputs,
# by default), one after the other: they cannot share one go test. A target that
# fails writes its input below testdata/fuzz of its package and fails the script
# at the end.
#
# The budget is a count and not a time: before Go 1.27 a run that ends by time
# can report "context deadline exceeded" as a failure without having found
# anything, on a loaded machine above all (golang/go#75804). The effort for minimizing
# an input is a count for the same reason.
set -euo pipefail
cd "$(dirname "$0")/.."

go=${GO:-go}
budget=${FUZZTIME:-10000x}
failed=0
ran=0

dir=$(mktemp -d)
trap 'rm -rf "$dir"' EXIT

# Each package is built and linked once, not for each of its targets.
for package in $(grep -rlE --include='*_test.go' '^func Fuzz[A-Z]' . | xargs -r -n1 dirname | sort -u); do
	# In its folder: the client is a module of its own.
	if ! (cd "$package" && "$go" test -c -fuzz=. -o "$dir/fuzz.test" .) || ! targets=$(cd "$package" && "$dir/fuzz.test" -test.list '^Fuzz'); then
		failed=1
		continue
	fi
	for target in $targets; do
		echo "== $package $target"
		ran=$((ran + 1))
		(cd "$package" && "$dir/fuzz.test" -test.run '^$' -test.fuzz "^$target\$" -test.fuzztime "$budget" \
			-test.fuzzminimizetime 500x -test.fuzzcachedir "$dir/cache") || failed=1
	done
done
echo "fuzz targets run: $ran"
exit "$failed"
