// Package state keeps what a node knows for scavenging, between runs and during them. All of it
// follows from the log: losing it only costs the work of reading the log again.
//
// # The file
//
// `<index>/scavenging/scavenging.db` is an SQLite database of three tables:
//
//	chunks   number, weight, oldest, newest   a logical chunk; times in ns, NULL when unknown
//	streams  first, data                      streams, many in a row, without rowid
//	vals     key, value                       small things such as the checkpoint
//
// A row of streams has all whose names are not less than first and less than the first of the next
// row; one with an empty first may be missing. data are the streams by rising name, at most 3800
// bytes unless it is one stream alone:
//
//	length   uvarint  of the name
//	name
//	length   byte     of the rest
//	flags    uvarint  bits 0-8: which of the fields below are there; bit 9: tombstone;
//	                  bits 10-11: status, 0 active, 1 archived, 2 spent
//	fields   varints  MetaNumber, MetaPosition (absent: -1), MaxCount, MaxAge (ns),
//	                  TruncateBefore, Discard, Maybe, Cutoff (ns), MetaDiscard (absent: 0)
//
// A run touches millions of streams, nearly always in the order of their names. SQLite then reads
// and stores each row once, for all streams in it: a row for each stream cost a microsecond or two
// a call. Rows that were emptied go; those that have become small stay so.
//
// PRAGMA application_id is 0x416e5363, user_version the version of all this. Version 1 had
// a row for each stream. There is no index by status: going through the active
// streams reads all of them once, which costs less than keeping the index while they are collected.
//
// The last eight bytes of each page are its checksum (SQLite's cksumvfs). A file with a damaged
// page, of another version, or that is not such a database, is removed with a warning: by Open
// when it meets the damage, else by Close after calls have failed with an event.Corruption. An
// error of the file system removes nothing.
//
// # Transactions
//
// SQLite works through internal/vfs (see bridge), in WAL mode with exclusive
// locking: a commit appends to `scavenging.db-wal` and syncs it, once, and what
// exceeds the cache within a large transaction goes there without a sync.
// The names of the files are made durable as they are made and removed. Close
// moves everything into the file itself and removes the rest. A sync that failed
// is never repeated: the database refuses further work until it is opened again.
// Sectors are taken for 4096 bytes and no write for atomic, so that transactions
// never share a sector.
//
// # Decisions
//
// Before chunks are rewritten, what was decided is put into a structure that any
// number of goroutines can ask about each record: `decisions.tmp`, mapped into
// memory. It belongs to the process that made it, is never opened again, not synced, and
// removed by Decisions.Close or by the next Open.
//
//	header   24 bytes
//	records  sum uint32 | length uvarint | name | discard uvarint | maybe uvarint | [cutoff varint, if maybe]
//	zeroes   to a multiple of 64
//	slots    uint64 each: the lowest 24 bits of the hash, then 40 bits of where the record begins
//
// All is little-endian; sum is the low half of the XXH3 of what follows in the record.
// With n records there are 2n homes. The home of a record is hash*2n/2^64; it
// lies in the first free slot from there on, 0 is a free slot, and the search ends
// at one. A miss thus touches one line of the cache nearly always, and a hit that
// and the record, whose name is compared, so collisions cost time only. Slots in
// the order of the hashes are written without seeking: while the records are
// written, pairs of hash and place are spread over 256 parts by the first byte
// of the hash, in blocks in a second temporary file, and each part is sorted by itself.
package state
