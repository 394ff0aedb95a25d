package projection_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"pgregory.net/rapid"

	"github.com/annalsdb/annals/event"
	"github.com/annalsdb/annals/projection"
)

// model is what the tables of the contract say of some projections, without anything that runs.
type model struct {
	*bench
	all    map[string]*modelled
	mu     sync.Mutex // of faults
	faults []bool     // of the next writes: true loses the answer, false the write
}

// modelled is one projection of the model.
type modelled struct {
	mode           projection.Mode
	text           string
	enabled        bool
	version, epoch int64

	// as in the tables: the status is one of "Running", "Stopped", "Completed", "Aborted",
	// "Faulted"
	status, runner string
	n              int64 // what it counted, as far as its state says
	zero           bool  // nothing stands for its position
	ran            int64 // version that runs, or ran

	// The checkpoint, of a version.
	saved, by int64
	isSaved   bool
}

// checkpoint is the number that it resumes from.
func (p *modelled) checkpoint() (n int64, ok bool) {
	if p.mode != projection.Continuous || !p.isSaved || p.by < p.epoch {
		return 0, false
	}
	return p.saved, true
}

func (p *modelled) save() {
	if p.mode == projection.Continuous {
		p.saved, p.by, p.isSaved = p.n, p.ran, true
	}
}

// prepare is what comes of a text, by what is wished.
func (p *modelled) prepare() {
	n, ok := p.checkpoint()
	p.n, p.zero, p.ran = n, !ok && !p.enabled, p.version
	switch {
	case strings.Contains(p.text, "bad"):
		p.status, p.runner = "Faulted", ""
	case !p.enabled:
		p.status, p.runner = "Stopped", "Stopped"
	case strings.Contains(p.text, "faults"):
		p.status, p.runner = "Faulted", "Faulted"
		p.save()
	default:
		p.status, p.runner = "Running", "Running"
	}
}

// shown is the status as it is shown.
func (p *modelled) shown() string {
	text := p.status
	switch {
	case p.runner == "":
		return text
	case strings.HasPrefix(p.runner, p.status):
		text = p.runner
	default:
		text += "/" + p.runner
	}
	if p.enabled && (p.status == "Stopped" || p.status == "Faulted") {
		text += " (Enabled)"
	}
	return text
}

// state is the state as it is shown, with its position.
func (p *modelled) state() string {
	text := ""
	if p.n > 0 && p.runner != "" {
		text = fmt.Sprintf(`{"n":%d}`, p.n)
	}
	switch {
	case p.status == "Completed", p.runner == "":
		return text + " at nowhere"
	case p.zero:
		return text + " at C:0/P:-1"
	}
	return fmt.Sprintf("%s at C:%d/P:%d", text, p.n, p.n)
}

func (p *modelled) command(c projection.Command) {
	was := p.enabled
	wish := func(enabled bool) {
		if p.enabled = enabled; was != enabled {
			p.version++
		}
	}
	switch c {
	case projection.Enable:
		if wish(true); !was || p.status != "Running" {
			p.prepare()
		}
	case projection.Disable:
		wish(false)
		switch {
		case p.status == "Running":
			p.save()
			p.status, p.runner = "Stopped", "Stopped"
		case p.runner != "":
			p.status = "Stopped"
		}
	case projection.Abort:
		if wish(false); p.status == "Running" {
			p.status, p.runner = "Aborted", "Stopped"
		}
	case projection.Reset:
		p.version++
		p.epoch = p.version
		p.prepare()
	}
}

func (p *modelled) update(text string) {
	p.version++
	switch p.status {
	case "Completed":
		p.epoch = p.version
	case "Running":
		p.save()
	}
	p.text = text
	p.prepare()
}

func (p *modelled) feed(n int64) {
	switch {
	case n < 0 && p.mode != projection.Continuous:
		p.status, p.runner = "Completed", "Stopped/Writing results"
	case strings.Contains(p.text, "dies"):
		p.status, p.runner = "Faulted", "Faulted"
		p.save()
	default:
		p.n += max(n, 0)
	}
}

func (p *modelled) idle() bool {
	return p.status == "Stopped" || p.status == "Faulted" || p.mode == projection.Transient
}

// TestModel prints the seed of a failure.
func TestModel(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		// rapid asks a *testing.T for its deadline, which a bubble forbids.
		rapid.Check(struct{ testing.TB }{t}, func(t *rapid.T) { runModel(t) })
	})
}

func runModel(t *rapid.T) {
	m := &model{bench: newBench(t), all: map[string]*modelled{}}
	m.opts.QueryExpiry = 1000 * time.Hour
	m.begin()
	defer func() { m.Stop() }()
	m.store.BeforeWrite.Set(func(context.Context, *event.Write) error { return m.fault(false) })
	m.store.AfterWrite.Set(func(context.Context, *event.Write) error { return m.fault(true) })
	texts := rapid.SampledFrom([]string{"", "", "dies", "faults", "bad"})
	commands := rapid.SampledFrom([]projection.Command{projection.Enable, projection.Disable, projection.Reset, projection.Abort})
	one := func(t *rapid.T) (string, *modelled) {
		name := rapid.SampledFrom([]string{"a", "b", "c"}).Draw(t, "name")
		return name, m.all[name]
	}
	existing := func(t *rapid.T) (string, *modelled) {
		name, p := one(t)
		if p == nil {
			t.Skip("there is none")
		}
		return name, p
	}
	t.Repeat(map[string]func(*rapid.T){
		"": func(*rapid.T) { m.check() },
		"create": func(t *rapid.T) {
			name, p := one(t)
			c := projection.Creation{Name: name, Query: texts.Draw(t, "text"), Enabled: rapid.Bool().Draw(t, "enabled"), By: admin,
				Mode: rapid.SampledFrom([]projection.Mode{projection.Continuous, projection.OneTime, projection.Transient}).Draw(t, "mode")}
			_, err := m.Create(m.ctx, c)
			if p != nil {
				m.refused(err, "Duplicate projection names : "+name)
				return
			}
			m.must(err)
			p = &modelled{mode: c.Mode, text: c.Query, enabled: c.Enabled, epoch: -1}
			if c.Mode != projection.Transient {
				p.version, _ = m.definition(name)
			}
			p.prepare()
			m.all[name] = p
		},
		"command": func(t *rapid.T) {
			name, p := existing(t)
			c := commands.Draw(t, "command")
			m.must(m.Command(m.ctx, name, c, admin))
			p.command(c)
		},
		"query": func(t *rapid.T) {
			name, p := existing(t)
			text := texts.Draw(t, "text")
			m.must(m.UpdateQuery(m.ctx, name, projection.Update{Query: text}, admin))
			p.update(text)
		},
		"config": func(t *rapid.T) {
			name, p := existing(t)
			err := m.SetConfig(m.ctx, name, projection.DefaultConfig(), admin)
			if !p.idle() {
				m.refused(err, "Cannot update the config of a projection that hasn't been stopped or faulted.")
				return
			}
			m.must(err)
			p.version++
		},
		"delete": func(t *rapid.T) {
			name, p := existing(t)
			err := m.Delete(m.ctx, name, projection.DeleteOptions{CheckpointStream: true}, admin)
			if !p.idle() {
				m.refused(err, "Cannot delete a projection that hasn't been stopped or faulted.")
				return
			}
			m.must(err)
			delete(m.all, name)
		},
		"feed": func(t *rapid.T) {
			name, p := existing(t)
			if p.status == "Running" {
				n := rapid.SampledFrom([]int64{1, 2, 3, -1}).Draw(t, "n")
				m.feed(name, n)
				p.feed(n)
			}
		},
		"lead":    func(*rapid.T) { m.lead(); m.reload() },
		"restart": func(*rapid.T) { m.must(m.Restart(m.ctx)); m.reload() },
		"faults": func(t *rapid.T) {
			m.mu.Lock()
			defer m.mu.Unlock()
			m.faults = rapid.SliceOfN(rapid.Bool(), 1, 6).Draw(t, "after")
		},
		"burst": func(t *rapid.T) {
			name, _ := existing(t)
			m.burst(t, name, rapid.SliceOfN(commands, 2, 5).Draw(t, "commands"))
		},
	})
}

func (m *model) fault(after bool) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	if len(m.faults) == 0 || m.faults[0] != after {
		return nil
	}
	m.faults = m.faults[1:]
	return errInjected
}

// reload is what another leader finds.
func (m *model) reload() {
	time.Sleep(time.Minute) // All that is tried again has been.
	synctest.Wait()
	for name, p := range m.all {
		if p.mode == projection.Transient {
			delete(m.all, name)
			continue
		}
		p.prepare()
	}
}

func (m *model) check() {
	synctest.Wait()
	list, err := m.List(projection.AllKinds)
	m.must(err)
	m.is("how many", len(list), 5+len(m.all))
	for name, p := range m.all {
		m.expect(name, p.shown())
		m.is("state of "+name, m.state(name), p.state())
		s, err := m.Statistics(name)
		m.must(err)
		version, epoch := p.version, p.epoch
		if p.runner == "" {
			version, epoch = -1, -1
		}
		m.is("version of "+name, row(s.Version, s.Epoch), row(version, epoch))
		if p.mode == projection.Transient {
			continue
		}
		number, d := m.definition(name)
		m.is("definition of "+name, row(number, d["version"], d["epoch"], d["enabled"], d["query"]), row(p.version, p.version, p.epoch, p.enabled, p.text))
	}
}

// id returns the number of the creation of a projection.
func (m *model) id(name string) (id int64) {
	for _, r := range m.store.All("$projections-$all") {
		if r.Type == "$ProjectionCreated" && string(r.Data) == name {
			id = r.Number
		}
	}
	return id
}

// burst gives commands one after the other, and does not wait for any. All must be
// answered, and what comes of them must be what is stored.
func (m *model) burst(t *rapid.T, name string, commands []projection.Command) {
	results := make([]func() error, len(commands))
	for i, c := range commands {
		done := make(chan error, 1)
		go func() { done <- m.Command(m.ctx, name, c, admin) }()
		results[i] = func() error { return <-done }
		if rapid.Bool().Draw(t, "wait") {
			synctest.Wait()
		}
	}
	for _, result := range results {
		if err := result(); err != nil && !errors.Is(err, projection.ErrAborted) {
			m.Fatalf("answer %v", err)
		}
	}
	synctest.Wait()
	p := m.all[name]
	s, err := m.Statistics(name)
	m.must(err)
	if p.mode == projection.Transient {
		m.must(m.Delete(m.ctx, name, projection.DeleteOptions{}, admin))
		delete(m.all, name)
		return
	}
	number, d := m.definition(name)
	p.version, p.epoch, p.enabled = number, int64(d["epoch"].(float64)), d["enabled"] == true
	runs := strings.HasPrefix(s.Status, "Running") || strings.HasPrefix(s.Status, "Completed") || strings.HasPrefix(s.Status, "Faulted")
	// Also a completed or faulted one that was disabled.
	rests := !strings.HasPrefix(s.Status, "Running")
	if p.enabled && !runs || !p.enabled && !rests {
		m.Fatalf("%s is %s, and enabled is %t", name, s.Status, p.enabled)
	}
	m.lead()
	if c, ok := m.runner.checkpoints[name]; ok && c.version.Projection == m.id(name) {
		p.saved, p.by, p.isSaved = c.n, c.version.Version, true
	}
	m.reload()
}
