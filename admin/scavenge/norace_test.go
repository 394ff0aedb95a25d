//go:build !race

package scavenge_test

const raced = false
