//go:build !linux

package eventlog

func yieldProcessor() {}
