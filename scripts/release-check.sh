#!/usr/bin/env bash
# Builds a release of this commit in two folders and compares all sums.
set -euo pipefail
cd "$(dirname "$0")/.."
version=$1
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
for place in one another/folder/further/down; do
	git clone --quiet --shared . "$work/$place"
	(cd "$work/$place" && scripts/release.sh "$version" bin/release >/dev/null)
	cp "$work/$place/bin/release/SHA256SUMS" "$work/${place%%/*}.sums"
done
diff "$work/one.sums" "$work/another.sums"
echo "both folders gave the same $(wc -l <"$work/one.sums") files of $version"
