//go:build !invariants

package testkit

const invariants = false
