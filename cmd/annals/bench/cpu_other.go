//go:build !linux

package bench

import (
	"errors"
	"time"
)

var errNoCPU = errors.New("processor time is only known on linux")

func ownCPU() (time.Duration, error)            { return 0, errNoCPU }
func processCPU(pid int) (time.Duration, error) { return 0, errNoCPU }
