// Package testkit starts and ends built binaries of the product for tests that see it from outside:
// processes in their own process group, waits that end by what a process says and never by guessing
// times, a small HTTP client that knows events, and an object store that can be made to fail. Every
// error fails the test, with the output of the process at hand.
package testkit
