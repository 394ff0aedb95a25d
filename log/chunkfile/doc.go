// Package chunkfile is the format of the log's chunk files: what is in them, and how one of them is
// read, checked and written. It knows files, not the log that they make up.
//
// A position is an offset in one endless sequence. Chunk n covers the 256 MiB from position n × 256
// MiB on; a merged file covers several. All numbers are little-endian.
//
//	as written      +--------+---------------------------------------+--------+
//	(version 0)     | header | frame | frame | frame | …             | footer |
//	                +--------+---------------------------------------+--------+
//	                   128     as long as it grows no footer follows     128
//
//	rewritten       +--------+---------------------------------+-----+--------+
//	(scavenged,     | header | items that are left             | map | footer |
//	merged, blank)  +--------+---------------------------------+-----+--------+
//	                           12 bytes for each item: position, offset in the file
//
//	a frame         +--------+--------+-----+---------+
//	(a Raft entry)  | record | record | …   | trailer |   all of it is there, or nothing counts
//	                +--------+--------+-----+---------+
//
//	record          +--------+------+---+-------+----------+--------+------+----+---------+
//	                | length |  1   | 0 | flags | position | number | time | id | lengths |
//	                |    4   |  1   | 1 |   2   |    8     |    8   |   8  | 16 |    8    |
//	                +--------+---+--+---+-------+----------+---+----+------+----+---------+
//	                | stream | type | data | metadata | CRC-32C 4 | length 4 |
//	                +--------+------+------+----------+-----------+----------+
//
//	trailer         +--------+------+---+-------+----------+-------+------+------+-------+-------+---------+--------+
//	                | length |  2   | 0 | flags | position | index | term | time | chain | bytes | CRC-32C | length |
//	                |    4   |  1   | 1 |   2   |    8     |   8   |  8   |  8   |  16   |   4   |    4    |   4    |
//	                +--------+------+---+-------+----------+-------+------+------+-------+-------+---------+--------+
//
//	stub            +--------+------+---+-------+----------+--------+------+----+--------+---------+--------+
//	(of a removed   | length |  3   | 0 | flags | position | number | time | id | hash   | CRC-32C | length |
//	record whose    |    4   |  1   | 1 |   2   |    8     |    8   |   8  | 16 |   8    |    4    |   4    |
//	id counts)      +--------+------+---+-------+----------+--------+------+----+--------+---------+--------+
//
// The rules of frames are in one place, Frames.Next and Trailer.Faults: every item in its position,
// each frame in its place after the one before (Place), Raft indexes rising, terms and times not
// falling, and the chain, a running XXH3-128 over everything written so far. A reader of frames
// uses them: recovery, catching up, the check of a fetched file, and the inspection.
package chunkfile
