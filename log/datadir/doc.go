// Package datadir has the small files of a data directory: the format file with the
// directory's id, the name of the lock, and the five checkpoint files, which say how far the log is
// durable, applied, and where it is to be cut.
package datadir
