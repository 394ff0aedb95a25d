package testkit

import (
	"flag"
	"runtime"
	"strconv"
)

// Crowd has at least so many parallel tests of a package run at once, unless -parallel says how
// many. It is for tests that wait more than they compute: without it as many run as there are
// processors. It belongs in TestMain, before the tests run.
func Crowd(tests int) error {
	flag.Parse()
	given := false
	flag.Visit(func(f *flag.Flag) { given = given || f.Name == "test.parallel" })
	if given {
		return nil
	}
	return flag.Set("test.parallel", strconv.Itoa(max(tests, runtime.GOMAXPROCS(0))))
}
