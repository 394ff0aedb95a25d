//go:build invariants

package main

// passwordIterations makes logins cheap for tests, which start hundreds of nodes.
const passwordIterations = 1000
