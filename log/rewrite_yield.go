package eventlog

import "runtime"

// GiveWay lets everything else that is ready go first. Who works through
// millions of records calls it every some ten microseconds of work: else a request
// that becomes ready meanwhile waits for the end of a time slice, of the runtime
// or of the operating system, which is many times as long as it takes itself.
//
// When nothing else is ready it costs about a microsecond.
func GiveWay() {
	runtime.Gosched()
	yieldProcessor()
}
