//go:build !linux

package node

import "github.com/annalsdb/annals/admin/doctor"

// systemLimits are not known elsewhere.
func systemLimits() *doctor.Limits { return nil }
