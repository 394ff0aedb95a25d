//go:build !linux

package doctor

// SystemLimits are not known elsewhere.
func SystemLimits() *Limits { return nil }
