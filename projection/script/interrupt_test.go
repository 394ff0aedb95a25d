package script_test

import (
	"testing"
	"time"

	"github.com/annalsdb/annals/internal/check"
	"github.com/annalsdb/annals/projection/handler"
)

// TestInterrupt: the running call ends, and so do those that follow.
func TestInterrupt(t *testing.T) {
	begun := make(chan struct{}, 10)
	o := options()
	o.ExecutionTimeout = time.Hour
	o.Log = func(string) { begun <- struct{}{} }
	for _, body := range []string{`for (;;) {}`, `for (;;) { try { for (;;) {} } catch (x) {} finally { for (;;) {} } }`, `const r = /x/g; r.exec = Object; 'abc'.match(r)`, `[...{[Symbol.iterator]: () => ({next: Object})}]`} {
		h := compileWith(t, `fromAll().when({T(s, e) { log('begun'); `+body+` }})`, o)
		go func() {
			<-begun
			h.Interrupt()
		}()
		for range 3 {
			check.MustBe(t, check.Err(h.Process(jsonEvent(`{}`))), handler.ErrInterrupted, body)
		}
		h.Close()
	}
}
