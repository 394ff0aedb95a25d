#!/usr/bin/env bash
# Rewrites the golden files of every package whose tests have the flag -update.
set -euo pipefail
cd "$(dirname "$0")/.."

packages=$(grep -rlE --include='*_test.go' 'flag\.Bool\("update"' . | xargs -r -n1 dirname | sort -u)
for package in $packages; do
	"${GO:-go}" test -count=1 "$package" -update
done
