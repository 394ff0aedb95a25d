#!/usr/bin/env bash
# Measures on this machine where the processor time of an operation goes, and writes it into
# docs/performance.md. It takes a minute; nothing else should run meanwhile.
set -euo pipefail
cd "$(dirname "$0")/.."
drawings=$(mktemp)
trap 'rm -f "$drawings"' EXIT
ANNALS_PROFILE=$drawings CGO_ENABLED=0 ${GO:-go} test ./cmd/annals -run '^$' -bench Profile -benchtime 1x >&2
machine="$(nproc) processors, $(sed -n 's/^model name[^:]*: //p' /proc/cpuinfo | head -1), $(date +%Y-%m-%d)"
awk -v drawings="$drawings" -v machine="$machine" '
  /^<!-- profile -->$/ { print; print ""; print machine; print ""; print "```"; while ((getline line < drawings) > 0) text = text line "\n"; sub(/\n+$/, "\n", text); printf "%s", text; print "```"; print ""; skip = 1; next }
  /^<!-- end -->$/ { skip = 0 }
  !skip { print }
' docs/performance.md > "$drawings.md"
mv "$drawings.md" docs/performance.md
