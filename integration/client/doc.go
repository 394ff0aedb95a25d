// Package client tests the client for Go programs against a node: the client is a module of its
// own, which cannot import one.
package client
