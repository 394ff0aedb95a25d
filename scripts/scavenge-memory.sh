#!/usr/bin/env bash
# Fills a database with ten million streams and samples the memory that a node
# uses of its own (RssAnon) while it scavenges: first without any metadata, then
# with $maxCount of a part of the streams, and with ALL=1 of all of them. Before
# each scavenge the node is started again and left idle; its memory then is the
# idle memory. The script prints the peak of each phase, and fails when one is
# more than MOST above idle.
#
#   scripts/scavenge-memory.sh FOLDER
#
# FOLDER gets the database (about 2 GB, with ALL=1 about 4 GB) and the output of the
# node. If an earlier run filled it in part, only the missing events are written.
# Everything is on loopback.
#
#   STREAMS LIMITED       streams, and those with metadata in the second run (10000000, 2000000)
#   ALL                   1 for a third run with metadata of all streams
#   MOST                  MiB above idle that a scavenge may use (200)
#   THREADS               of the scavenge (1)
#   WORKERS               of annals bench fill and limit (256)
#   IDLE                  seconds that the node is left alone (10)
#   ANNALS                a binary to use; it is built when unset
#   ANNALS_PASSWORD       of the user admin (changeit)
#   OPTIONS               more options of the node, separated by blanks
#   LIMIT                 seconds that one step may take at most (7200)
set -euo pipefail

if [ $# -ne 1 ] || [ "${1#-}" != "$1" ]; then
	sed -n '2,/^set /{/^set /d;s/^# \{0,1\}//;p}' "$0" >&2
	exit 2
fi
mkdir -p "$1"
folder=$(cd "$1" && pwd)
root=$(cd "$(dirname "$0")/.." && pwd)
streams=${STREAMS:-10000000}
limited=${LIMITED:-2000000}
most=${MOST:-200}
threads=${THREADS:-1}
workers=${WORKERS:-256}
idle=${IDLE:-10}
limit=${LIMIT:-7200}
export ANNALS_PASSWORD=${ANNALS_PASSWORD:-changeit}
read -r -a options <<<"${OPTIONS:-}"
annals=${ANNALS:-}
if [ -z "$annals" ]; then
	annals=$folder/annals
	(cd "$root" && CGO_ENABLED=0 "${GO:-go}" build -trimpath -o "$annals" ./cmd/annals)
fi
db=$folder/db
log=$folder/node.log
said=$folder/node.out # a pipe: reading a line of it is how the script waits
rm -f "$said"
mkfifo "$said"
exec 3<>"$said"

pid=
finish() {
	[ -z "$pid" ] || kill -KILL "$pid" 2>/dev/null || true
	rm -f "$said"
}
trap finish EXIT

fail() {
	echo "scavenge-memory: $*; the node's log is $log" >&2
	exit 1
}

# start launches the node and waits until it listens.
start() {
	local line deadline=$((SECONDS + limit))
	"$annals" node --db "$db" --node-port 0 "${options[@]}" >&3 2>>"$log" 3>&- &
	pid=$!
	base=
	while [ -z "$base" ]; do
		kill -0 "$pid" 2>/dev/null || fail "the node ended while it started"
		[ "$SECONDS" -lt "$deadline" ] || fail "the node did not start within $limit s"
		# A node that dies prints nothing more: so the wait is in short parts.
		if read -r -t 1 line <&3; then
			base=$(sed -n 's/^annals listens on //p' <<<"$line")
		fi
	done
}

stop() {
	kill -TERM "$pid"
	local code=0
	wait "$pid" || code=$?
	pid=
	[ "$code" = 0 ] || fail "the node did not end in order"
}

pause() { read -r -t "$1" _ <&3 || true; }
memory() { awk '$1 == "RssAnon:" { print int($2 / 1024) }' "/proc/$pid/status"; }

fill() { # command and further flags of annals bench
	timeout "$limit" "$annals" bench "$@" --node "$base" --events "$streams" --streams "$streams" --workers "$workers" --quiet |
		tee -a "$folder/fill.txt" >/dev/null || fail "filling did not succeed"
}

# measure scavenges and samples the memory until it is over.
failed=0
report=
measure() { # what
	local line from before began now phase run code=0
	stop
	start
	pause "$idle"
	before=$(memory)
	from=$(($(wc -l <"$log") + 1))
	began=$SECONDS
	"$annals" scavenge start --node "$base" --threads "$threads" >"$folder/scavenge.txt" 2>&1 3>&- &
	run=$!
	declare -A peak=()
	peak[all]=$before
	while kill -0 "$run" 2>/dev/null; do
		now=$(memory)
		phase=$(tail -n "+$from" "$log" | sed -n 's/.*scavenge phase started:.*phase="\{0,1\}\([^"]*\) Phase.*/\1/p' | tail -n 1)
		phase=${phase:-Starting}
		[ "$now" -le "${peak[$phase]:-0}" ] || peak[$phase]=$now
		[ "$now" -le "${peak[all]}" ] || peak[all]=$now
		[ $((SECONDS - began)) -lt "$limit" ] || fail "the scavenge took more than $limit s"
		pause 0.1
	done
	wait "$run" || code=$?
	[ "$code" = 0 ] || fail "the scavenge did not succeed: $(tail -n 1 "$folder/scavenge.txt")"
	line="$1: idle $before MiB, peak ${peak[all]} MiB, $((peak[all] - before)) above idle, in $((SECONDS - began)) s;"
	for phase in Starting Accumulation Calculation "Chunk execution" "Chunk merging" "Index execution" Cleaning; do
		[ -z "${peak[$phase]:-}" ] || line+=" $phase +$((peak[$phase] - before))"
	done
	if [ $((peak[all] - before)) -gt "$most" ]; then
		failed=1
		line+=" TOO MUCH"
	fi
	echo "$line"
	report+="$line"$'\n'
}

: >"$log"
start
echo "== fill: $streams streams with an event each"
if [ ! -e "$folder/filled-$streams" ]; then # Asking for each stream again takes as long as filling.
	fill fill --size 16 --batch 1
	: >"$folder/filled-$streams"
fi
echo "== scavenge without metadata"
measure "no metadata"
if [ "$limited" -gt 0 ]; then
	echo "== scavenge with metadata of $limited streams"
	fill limit --limited-streams "$limited" --deleted 2
	measure "metadata of $limited"
fi
if [ "${ALL:-0}" = 1 ]; then
	echo "== scavenge with metadata of all streams"
	fill limit --deleted 2
	measure "metadata of all"
fi
stop

printf '\n%sallowed: %s MiB above idle; database %s\n' "$report" "$most" "$(du -sh "$db" | cut -f1)"
exit "$failed"
