//go:build !invariants

package main

// passwordIterations is the cost of hashing a password: 0 stands for that of package access.
const passwordIterations = 0
