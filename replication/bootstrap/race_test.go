//go:build race

package bootstrap

const underRace = true
