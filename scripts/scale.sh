#!/usr/bin/env bash
# Fills a throwaway node on loopback, and prints what its events cost: memory, bytes of
# the log and of each index, and the time of a start, a backup, the catching up of an
# empty follower, an index made again, and a scavenge. docs/scale.md explains the table.
#
#   scripts/scale.sh EVENTS [STREAMS [TAGS]]
#
# STREAMS and TAGS are one for each 1,000 events by default. The data lie in $TMPDIR, 500
# bytes for each event of 100 bytes, and are removed in the end.
#
#   SIZE      bytes of data of an event (100)
#   COPIES    false: no backup and no follower, which need half of that disk (true)
#   ANNALS    a binary to use; it is built when unset
set -euo pipefail

if [ $# -lt 1 ] || [ $# -gt 3 ] || [ "${1#-}" != "$1" ]; then
	sed -n '2,/^set /{/^set /d;s/^# \{0,1\}//;p}' "$0" >&2
	exit 2
fi
cd "$(dirname "$0")/.."
export ANNALS_BINARY=${ANNALS:-}
exec "${GO:-go}" test -count 1 -timeout 12h ./integration -run '^TestLongScale$' \
	-scale-events "$1" -scale-streams "${2:-0}" -scale-tags "${3:-0}" -scale-size "${SIZE:-100}" -scale-copies="${COPIES:-true}" -v
