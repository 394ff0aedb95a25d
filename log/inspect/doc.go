// Package inspect checks a data directory that nobody has open: the chunk files against their
// checksums, their frames and each other, the checkpoint files, and the index against the log. It
// reports all it finds and changes nothing. It knows the formats, not the log that writes them, so
// that one does not repeat the mistakes of the other.
package inspect
