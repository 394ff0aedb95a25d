#!/usr/bin/env bash
# Shows that tests notice defects: builds each change of scripts/mutants/ into the tests that
# it names, and fails unless they fail with it. The tree is not touched.
#   scripts/mutants.sh [NAME...]   only these
#   MUTANTS=K/N                    without names: every Nth, from the Kth on, K from 0
#   MUTANTS_TORTURE="FLAGS"        annals torture with these flags in place of the tests; one that
#                                  does not notice is no failure, as it cannot notice them all
#
# A mutant is a patch. Its first lines are "# test: PACKAGE [FLAGS]", the arguments for go test,
# one line for each test. A patch that no longer applies has to be made again. The seconds printed
# include the building, but for those of torture.
set -euo pipefail
export ANNALS_SWEEP=1 # Tests that take samples try all.
cd "$(dirname "$0")/.."
root=$PWD

dir=$(mktemp -d)
trap 'rm -rf "$dir"' EXIT

# All of them: two at once, as most of the tests wait more than they compute.
if [ $# = 0 ]; then
	part=${MUTANTS:-0/1}
	for patch in scripts/mutants/*.patch; do basename "$patch" .patch; done |
		awk -v k="${part%/*}" -v n="${part#*/}" '(NR - 1) % n == k' | xargs -n 1 -P 2 scripts/mutants.sh
	exit
fi

# torture says whether torture notices the change, and after how long.
torture() {
	if ! GOFLAGS="${GOFLAGS:-} -overlay=$dir/$1.json" make -s build BIN="$dir/bin"; then
		echo "$1: could not be built"
		return 1
	fi
	local code=0
	SECONDS=0
	# shellcheck disable=SC2086 # several flags
	TMPDIR=$dir "$dir/bin/annals" torture --fail-fast $MUTANTS_TORTURE >"$dir/out" 2>"$dir/err" || code=$?
	case $code in
	0) echo "$1: NOT noticed by torture $MUTANTS_TORTURE, within $SECONDS s" ;;
	1) echo "$1: noticed by torture $MUTANTS_TORTURE, within $SECONDS s: $(grep -h -m 1 '^violation: ' "$dir/out" "$dir/err" | cut -c 12-100)" ;;
	*)
		echo "$1: torture could not be run"
		tail -n 20 "$dir/err"
		;;
	esac
	rm -rf "$dir/annals-torture"
	[ "$code" -le 1 ]
}

missed=0
for name in "$@"; do
	patch=$root/scripts/mutants/$name.patch
	files=$(sed -n 's|^+++ b/||p' "$patch")
	for f in $files; do
		mkdir -p "$dir/$name/$(dirname "$f")"
		cp "$f" "$dir/$name/$f"
	done
	if ! (cd "$dir/$name" && git apply "$patch"); then
		echo "$name: the patch does not apply"
		missed=1
		continue
	fi
	{
		printf '{"Replace":{'
		comma=
		for f in $files; do
			printf '%s"%s":"%s"' "$comma" "$root/$f" "$dir/$name/$f"
			comma=,
		done
		printf '}}'
	} >"$dir/$name.json"
	if [ -n "${MUTANTS_TORTURE:-}" ]; then
		torture "$name" || missed=1
		continue
	fi
	while read -r test; do
		SECONDS=0
		# Tests that build a binary build it with the change, too.
		# shellcheck disable=SC2086 # the line holds several arguments
		if GOFLAGS="${GOFLAGS:-} -overlay=$dir/$name.json" ${GO:-go} test -vet=off -tags invariants -count=1 -failfast -timeout 3m $test >"$dir/out" 2>&1; then
			echo "$name: NOT noticed by $test"
			missed=1
		elif grep -qE '^ *--- FAIL|^panic: |^fatal error: ' "$dir/out"; then
			echo "$name: noticed by $test, within $SECONDS s"
		else
			echo "$name: could not be tested with $test"
			tail -n 40 "$dir/out"
			missed=1
		fi
	done < <(sed -n 's/^# test: //p' "$patch")
done
exit $missed
