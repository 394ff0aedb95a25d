// Package inspect checks a data directory that is not open: the chunk files against their
// checksums, their frames and each other, the checkpoint files, and the index against the log. It
// reports all it finds and changes nothing. It knows the formats, but shares no code with the log
// that writes them, so that it does not repeat the log's mistakes.
package inspect
