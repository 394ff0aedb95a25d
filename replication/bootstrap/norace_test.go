//go:build !race

package bootstrap

const underRace = false
