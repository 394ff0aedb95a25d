#!/usr/bin/env bash
# Fills a throwaway node, makes half of its events removable, and measures appends
# alone and during a scavenge: operations a second, p99, and how long the scavenge took.
#
#   scripts/bench-scavenge.sh
#
#   EVENTS STREAMS   what to fill (2000000, 100000)
#   WORKERS          of annals bench append (32)
#   DURATION         how long to append alone (10s)
#   THREADS          of the scavenge (1)
#   ANNALS           a binary to use; it is built when unset
#   OPTIONS          more options of the node, separated by blanks
set -euo pipefail

if [ $# -ne 0 ]; then
	sed -n '2,/^set /{/^set /d;s/^# \{0,1\}//;p}' "$0" >&2
	exit 2
fi
root=$(cd "$(dirname "$0")/.." && pwd)
half=$((${EVENTS:-2000000} / ${STREAMS:-100000} / 2))
what=(--events "${EVENTS:-2000000}" --streams "${STREAMS:-100000}" --user admin --password changeit --quiet)
export ANNALS_PASSWORD=changeit
read -r -a options <<<"${OPTIONS:-}"
folder=$(mktemp -d)
pids=()
finish() {
	[ ${#pids[@]} = 0 ] || { kill -KILL "${pids[@]}" && wait "${pids[@]}"; } 2>/dev/null || true
	rm -rf "$folder"
}
trap finish EXIT
annals=${ANNALS:-}
if [ -z "$annals" ]; then
	annals=$folder/annals
	(cd "$root" && CGO_ENABLED=0 "${GO:-go}" build -trimpath -o "$annals" ./cmd/annals)
fi

mkfifo "$folder/said"
exec 3<>"$folder/said"
"$annals" node --db "$folder/db" --node-port 0 "${options[@]}" >&3 2>"$folder/node.log" 3>&- &
pids+=($!)
read -r -t 60 line <&3 || {
	cat "$folder/node.log" >&2
	exit 1
}
base=${line#annals listens on }
"$annals" bench fill --node "$base" "${what[@]}" --max-count "$half" >"$folder/fill.txt"

append() { exec "$annals" bench append --node "$base" --workers "${WORKERS:-32}" --quiet "$@"; }
row() { awk -v what="$1" '$1 == "append" && $2 + 0 > 0 { printf "%s: %s appends a second, p99 %s ms, %s errors\n", what, $3, $8, $11 }' "$2"; }

(append --duration "${DURATION:-10s}" >"$folder/alone.txt")
(append --duration 24h --warmup 0 >"$folder/during.txt") &
pids+=($!)
"$annals" scavenge start --node "$base" --threads "${THREADS:-1}" --progress none >"$folder/scavenge.txt"
kill -INT "${pids[1]}"
wait "${pids[1]}"
row alone "$folder/alone.txt"
row during "$folder/during.txt"
grep -E '^(result|time taken|removed|chunk files)' "$folder/scavenge.txt"
