#!/usr/bin/env bash
# Shows a bug of docs/bugs.md: runs a test on the code before the commit that fixed the bug.
#   scripts/bug.sh COMMIT PACKAGE TEST
# The test files of the package are those of COMMIT, all else is that of the commit before it.
# Exit code 0: the test fails or hangs, so the bug is shown. 1: the test passes. 2: the test does
# not build there, or could not be run.
set -euo pipefail

if [ $# != 3 ]; then
	echo "usage: scripts/bug.sh COMMIT PACKAGE TEST" >&2
	exit 2
fi
commit=$1 package=${2#./} name=$3
cd "$(dirname "$0")/.."

if ! git rev-parse --quiet --verify "$commit^^{commit}" >/dev/null; then
	if [ "$(git rev-parse --is-shallow-repository)" = true ]; then
		echo "the history is shallow: run git fetch --unshallow" >&2
	else
		echo "there is no commit $commit with one before it" >&2
	fi
	exit 2
fi

dir=$(mktemp -d)
trap 'git worktree remove --force "$dir/tree" >/dev/null 2>&1 || true; rm -rf "$dir"' EXIT
tree=$dir/tree
git worktree add --quiet --detach "$tree" "$commit^" || exit 2
rm -f "$tree/$package"/*_test.go
if ! git -C "$tree" checkout --quiet "$commit" -- ":(glob)$package/*_test.go"; then
	echo "no test files in $package at $commit"
	exit 2
fi
if ! (cd "$tree/$package" && ${GO:-go} test -trimpath -tags invariants -c -o "$dir/test" .); then
	echo "does not build"
	exit 2
fi
first=${name%%/*}
if [ "$(cd "$tree/$package" && "$dir/test" -test.list "^$first\$" | grep -cx "$first")" = 0 ]; then
	echo "no test $name in $package at $commit"
	exit 2
fi
if (cd "$tree/$package" && "$dir/test" -test.run "^$name\$" -test.count 1 -test.timeout 5m); then
	echo "not shown: the test passes"
	exit 1
fi
echo shown
