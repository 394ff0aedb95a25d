#!/usr/bin/env bash
# Fills a database with ten million events of 256 bytes in 100,000 streams and
# measures how long a node takes from its launch to the first event that it
# reads for a client: after an orderly end, after kill -9 with a tail of the log
# that no index table covers, and with the index removed. With each time it prints
# the memory of the process and the number of index tables.
#
#   scripts/fill-10m.sh FOLDER
#
# FOLDER gets the database (about 4 GB) and the output of the node. If an earlier run
# filled it in part, only the missing events are written. Everything is on loopback.
#
#   EVENTS STREAMS SIZE   what to fill (10000000, 100000, 256)
#   TAIL                  events appended before kill -9 (500000)
#   BATCH WORKERS         of annals bench fill (100, 32)
#   ANNALS                a binary to use; it is built when unset
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
events=${EVENTS:-10000000}
streams=${STREAMS:-100000}
size=${SIZE:-256}
tail=${TAIL:-500000}
batch=${BATCH:-100}
workers=${WORKERS:-32}
limit=${LIMIT:-7200}
read -r -a options <<<"${OPTIONS:-}"
annals=${ANNALS:-}
if [ -z "$annals" ]; then
	annals=$folder/annals
	(cd "$root" && CGO_ENABLED=0 "${GO:-go}" build -trimpath -o "$annals" ./cmd/annals)
fi
db=$folder/db
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

now() { printf '%s' "${EPOCHREALTIME/[.,]/}"; } # microseconds
seconds() { awk -v us="$1" 'BEGIN { printf "%.3f", us / 1e6 }'; }
fail() {
	echo "fill-10m: $*; the node's log is $folder/node.log" >&2
	exit 1
}

# start launches the node and waits until a client has read an event from it, or
# the answer that there is none yet.
start() {
	local begun line deadline=$((SECONDS + limit))
	begun=$(now)
	"$annals" node --db "$db" --node-port 0 "${options[@]}" >&3 2>>"$folder/node.log" 3>&- &
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
	read -r -t 5 line <&3 || true # the hint for the first event
	curl -s -o "$folder/answer" --max-time 60 -H 'Accept: application/json' "$base/streams/bench-000001/0" || fail "no answer from $base"
	took=$(seconds $(($(now) - begun)))
}

# gone waits for the end of the node and gives its exit code to the caller.
gone() {
	local code=0
	wait "$pid" || code=$?
	pid=
	return "$code"
}

stop() {
	local begun
	begun=$(now)
	kill -TERM "$pid"
	gone || fail "the node did not end in order"
	took=$(seconds $(($(now) - begun)))
}

memory() { awk -v want="$1:" '$1 == want { printf "%d", $2 / 1024 }' "/proc/$pid/status"; }
tables() { find "$db/index" -maxdepth 1 -type f ! -name indexmap ! -name '*.bloomfilter' ! -name '*.tmp' | wc -l; }

report=
row() { # what
	local line
	line=$(printf '%-34s %9s %9s %9s %9s %7s' "$1" "$took" "$(memory VmRSS)" "$(memory RssAnon)" "$(memory RssFile)" "$(tables)")
	echo "$line"
	report+="$line"$'\n'
}

fill() { # events, streams, prefix
	timeout "$limit" "$annals" bench fill --node "$base" --events "$1" --streams "$2" --prefix "$3" \
		--size "$size" --batch "$batch" --workers "$workers" --quiet || fail "filling did not succeed"
}

echo "== fill: $events events of $size bytes in $streams streams"
: >"$folder/node.log"
start
fill "$events" "$streams" bench
row "filled"
stop
echo "stopped in $took s"

echo "== start after an orderly end"
start
row "orderly end"

echo "== start after kill -9 with a tail of $tail events"
fill "$tail" "$((streams < tail ? streams : tail))" tail
row "tail written"
kill -KILL "$pid"
gone 2>/dev/null || true
start
row "kill -9"
stop

echo "== start without index"
rm -rf "$db/index"
start
row "index rebuilt"
stop

echo "== start after that"
start
row "orderly end again"
stop

printf '\n%-34s %9s %9s %9s %9s %7s\n%s' "state" "seconds" "RSS MiB" "anon MiB" "file MiB" "tables" "$report"
printf '\ndatabase %s, of it index %s\n' "$(du -sh "$db" | cut -f1)" "$(du -sh "$db/index" | cut -f1)"
echo "seconds: from the launch of the process to the first event read by a client (of rows without a start: of the one before)"
