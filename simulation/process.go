package simulation

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/annalsdb/annals/internal/network/memory"
	"github.com/annalsdb/annals/internal/vfs"
	"github.com/annalsdb/annals/node"
	"github.com/annalsdb/annals/torture"
)

// stopLimit bounds how long a node may take to end.
const stopLimit = 60 * time.Second

// process is one run of a node.
type process struct {
	gate     *gate
	endpoint *memory.Endpoint
	cancel   context.CancelFunc // of Open
	opened   chan struct{}      // closed when Open has returned
	node     *node.Node         // valid after opened, nil when that failed
	err      error              // as node
	gone     chan struct{}      // closed when nothing of it runs any more
	buried   sync.Once
}

// run opens a node on a disk. failed is called when the node ends by itself, also before it is
// open.
func run(ctx context.Context, o node.Options, disk *vfs.Mem, g *gate, e *memory.Endpoint, failed func(*process, error)) *process {
	p := &process{gate: g, endpoint: e, opened: make(chan struct{}), gone: make(chan struct{})}
	ctx, p.cancel = context.WithCancel(context.WithoutCancel(ctx))
	o.FS, o.Network = p.gate.files(disk), e
	o.OnFatal = func(err error) {
		p.gate.failed.Store(true)
		if p.cut() {
			failed(p, err)
		}
		p.gate.lose("setCurrentTerm", "processLogs")
	}
	p.gate.fatal = o.OnFatal
	o.Reload = func() {
		<-p.opened
		if p.node != nil {
			p.node.ReloadCertificates(o.Config)
		}
	}
	go func() {
		defer close(p.opened)
		if p.node, p.err = node.Open(ctx, o); p.err != nil && ctx.Err() == nil && p.cut() {
			failed(p, p.err)
		}
	}()
	return p
}

// cut ends everything that the process could still do to others. It reports false if it had ended
// before.
func (p *process) cut() bool {
	select {
	case <-p.gate.ended:
		return false
	default:
	}
	p.gate.shut()
	_ = p.endpoint.Close() // It never fails.
	p.cancel()
	return true
}

// bury waits for the goroutines of a process that was cut off.
func (p *process) bury() {
	<-p.opened
	closed := make(chan struct{})
	go func() {
		defer close(closed)
		if p.node != nil {
			_ = p.node.Close() // Whatever it says, no one hears of it.
		}
	}()
	select {
	case <-closed:
	case <-p.gate.lost:
	}
	p.buried.Do(func() { close(p.gone) })
}

// stop asks the node to end and waits.
func (p *process) stop() error {
	p.cancel()
	done := make(chan error, 1)
	go func() {
		<-p.opened
		var err error
		if p.node != nil {
			err = p.node.Close()
		}
		if !p.cut() {
			err = errors.Join(errors.New("it ended by itself meanwhile"), err)
		}
		p.buried.Do(func() { close(p.gone) })
		done <- err
	}()
	late := time.NewTimer(stopLimit)
	defer late.Stop()
	select {
	case err := <-done:
		if err != nil {
			err = fmt.Errorf("%w: %w", torture.ErrStop, err)
		}
		return err
	case <-late.C:
		return fmt.Errorf("%w: it still runs after %s", torture.ErrStop, stopLimit)
	}
}

// awaitGone waits for the end of a process that was cut off.
func (p *process) awaitGone() error {
	late := time.NewTimer(stopLimit)
	defer late.Stop()
	select {
	case <-p.gone:
		return nil
	case <-late.C:
		return errors.New("goroutines of a node that was killed still run after " + stopLimit.String())
	}
}
