// Package testkit starts and ends built binaries of the product for tests that see it from outside:
// processes in their own process group, waits that end by what a process says and never by guessing
// times, and a small HTTP client that knows events; an object store that can be told to fail.
// Everything fails the test it is used by, with the output of the process at hand.
package testkit
