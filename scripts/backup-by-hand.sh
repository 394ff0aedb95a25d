#!/usr/bin/env bash
# The documented steps of a backup, with nothing but copies of files: the node keeps
# serving and takes no part. The copy has all events acknowledged before the first step.
#
#   scripts/backup-by-hand.sh backup DATA COPY     COPY is missing or empty
#   scripts/backup-by-hand.sh restore COPY DATA    DATA is missing or empty, or of a stopped node
#
#   INDEX   the folder of the index where it is not DATA/index
#
# Backup:
# 1. The index: indexmap and the files that it names. indexmap is replaced as a whole and
#    the files never change, so the copy is of one moment. If a file was removed meanwhile,
#    this step begins again. The checkpoint of the existence filter is copied before the filter.
# 2. The checkpoints. The index is not ahead of the log that they describe.
# 3. The chunks. They only grow, so they hold everything up to the checkpoints.
# If a scavenge replaces chunks meanwhile, the new ones are copied too. If it rewrote the
# chunk that chaser.chk points into, step 2 is done again: a restore could not cut there.
#
# Restore: the old files of the folder are removed, the copy takes their place, and
# truncate.chk becomes a copy of chaser.chk: the start removes everything after it.
set -euo pipefail

usage() {
	sed -n '2,/^set /{/^set /d;s/^# \{0,1\}//;p}' "$0" >&2
	exit 2
}

chunk_bytes=$((256 << 20))
tries=100

say() { echo "$*" >&2; }

# copy FROM TO copies a file that may be gone by now.
copy() {
	cp -p "$1" "$2" 2>/dev/null || { [ ! -e "$1" ] && return 1; cp -p "$1" "$2"; }
}

copy_index() {
	local from=$1 to=$2 file try
	mkdir -p "$to"
	[ -d "$from" ] || return 0
	for ((try = 0; try < tries; try++)); do
		if [ -e "$from/stream-existence/streamExistenceFilter.chk" ]; then
			mkdir -p "$to/stream-existence"
			copy "$from/stream-existence/streamExistenceFilter.chk" "$to/stream-existence/" || continue
			copy "$from/stream-existence/streamExistenceFilter.dat" "$to/stream-existence/" || rm -f "$to/stream-existence/"*
		fi
		# Before the first table there is none.
		copy "$from/indexmap" "$to/indexmap" || return 0
		for file in $(tables "$to/indexmap"); do
			[ -e "$to/$file" ] || copy "$from/$file" "$to/$file" || continue 2
			[ -e "$to/$file.bloomfilter" ] || copy "$from/$file.bloomfilter" "$to/$file.bloomfilter" || true # The node rebuilds it.
		done
		for file in "$to"/*; do # Of tries before.
			case ${file##*/} in
			indexmap | stream-existence) ;;
			*) tables "$to/indexmap" | grep -qxF "$(basename "$file" .bloomfilter)" || rm "$file" ;;
			esac
		done
		return 0
	done
	say "the index changes faster than it can be copied"
	return 1
}

# tables lists the files that an indexmap names.
tables() { sed -n '5,$s/.*,//p' "$1"; }

# chaser prints the position in a copied chaser.chk.
chaser() { number "$1/chaser.chk" 0 8; }

# number FILE OFFSET BYTES prints a number out of a file.
number() { od -An -j "$2" -N "$3" -t "d$3" --endian=little "$1" 2>/dev/null | tr -d ' '; }

# chunks lists the chunk files in use up to a number: of each number the highest
# version, without those that a merged file covers and a reader still holds open.
chunks() {
	local dir=$1 last=$2 file first covered=-1 end
	for file in $(cd "$dir" && ls | grep -E '^chunk-[0-9]{6,}\.[0-9]{6,}$' | sort -t. -k1,1 -k2,2nr | sort -t. -k1,1 -u); do
		first=${file#chunk-} first=$((10#${first%.*}))
		[ "$first" -le "$covered" ] && continue
		[ "$first" -gt "$last" ] && break
		covered=$first
		case $file in
		*.000000) ;;
		*) end=$(number "$dir/$file" 20 4) && covered=${end:-$first} ;;
		esac
		echo "$file"
	done
}

# rewritten FILE POSITION reports whether the file is a rewritten one in which the position lies.
rewritten() {
	case $1 in *.000000) return 1 ;; esac
	[ "$(number "$1" $(($(stat -c %s "$1") - 104)) 8)" -gt "$2" ]
}

copy_chunks() {
	local from=$1 to=$2 last=$3 file before try
	for ((try = 0; try < tries; try++)); do
		before=$(chunks "$from" "$last")
		for file in $before; do
			# One that was copied when it was active has grown since.
			if [ ! -e "$to/$file" ] || [ "$(stat -c %s "$to/$file")" != "$(stat -c %s "$from/$file" 2>/dev/null)" ]; then
				copy "$from/$file" "$to/$file" || continue 2
			fi
		done
		[ "$before" = "$(chunks "$from" "$last")" ] || continue
		for file in "$to"/chunk-*; do # Replaced meanwhile: events removed from the database must not stay here.
			grep -qxF "${file##*/}" <<<"$before" || rm "$file"
		done
		return 0
	done
	say "the chunks change faster than they can be copied"
	return 1
}

backup() {
	local from=$1 to=$2 file last newest try
	[ -e "$from/writer.chk" ] || { say "$from is not a data folder"; exit 2; }
	if [ -e "$to" ] && [ -n "$(ls -A "$to")" ]; then
		say "$to is not empty"
		exit 2
	fi
	mkdir -p "$to"
	copy_index "${INDEX:-$from/index}" "$to/index"
	for ((try = 0; try < tries; try++)); do
		# They grow meanwhile: the epoch's must not be beyond the writer's, nor the writer's beyond the chaser's.
		for file in epoch proposal truncate writer chaser; do
			cp -p "$from/$file.chk" "$to/$file.chk"
		done
		last=$(($(chaser "$to") / chunk_bytes))
		copy_chunks "$from" "$to" "$last"
		newest=$(chunks "$to" "$last" | tail -n 1)
		[ -n "$newest" ] && rewritten "$to/$newest" "$(chaser "$to")" || break
		say "$newest came meanwhile, copying the checkpoints again"
	done
	if [ "$try" = "$tries" ]; then
		say "the log is rewritten faster than it can be copied"
		exit 1
	fi
	find "$to" -type f -exec sync {} +
	find "$to" -type d -exec sync {} +
	say "copied up to $(chaser "$to")"
}

restore() {
	local from=$1 to=$2
	local index=${INDEX:-$to/index}
	[ -e "$from/chaser.chk" ] || { say "$from is not a copy"; exit 2; }
	mkdir -p "$to" "$index"
	if [ -e "$to/annals.lock" ] && ! flock -n "$to/annals.lock" true; then
		say "a node uses $to"
		exit 2
	fi
	rm -rf "$to"/chunk-* "$to"/*.chk "$to"/*.tmp "${index:?}"/*
	cp -p "$from"/chunk-* "$from"/*.chk "$to/"
	cp -Rp "$from/index/." "$index/"
	cp "$to/chaser.chk" "$to/truncate.chk"
	find "$to"/chunk-* "$to"/*.chk "$index" -type f -exec sync {} +
	find "$to" "$index" -type d -exec sync {} +
	say "restored up to $(chaser "$to"): start the node"
}

[ $# -eq 3 ] || usage
case $1 in
backup) backup "$2" "$3" ;;
restore) restore "$2" "$3" ;;
*) usage ;;
esac
