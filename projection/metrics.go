package projection

import (
	"sync"

	"github.com/annalsdb/annals/projection/run"
	"github.com/annalsdb/annals/stats"
)

// series is for how many projections there are metrics of their own.
const series = 200

// metrics are the series of single projections, and the counters over all of them.
type metrics struct {
	registry *stats.Registry
	service  *Service
	changes  *stats.Queue // what users ask for
	change   *stats.Work

	mu     sync.Mutex // guards series
	series map[string]bool
}

func newMetrics(r *stats.Registry, s *Service) *metrics {
	m := &metrics{registry: r, service: s, series: map[string]bool{}}
	m.changes = r.Queue("Projections Leader", "", 1)
	m.change = m.changes.Work("ManageProjection")
	count := func(which func(s status) bool) func() float64 {
		return func() float64 {
			n := 0
			if t, err := s.running(); err == nil {
				for _, p := range t.projections() {
					p.mu.Lock()
					if which(p.m.status) {
						n++
					}
					p.mu.Unlock()
				}
			}
			return float64(n)
		}
	}
	r.GaugeFunc("annals_projections", "Projections that this node leads.", count(func(status) bool { return true }))
	r.GaugeFunc("annals_projections_running", "Projections that run on this node.", count(func(s status) bool { return s == running }))
	r.GaugeFunc("annals_projections_faulted", "Projections on this node that are faulted.", count(func(s status) bool { return s == faulted }))
	return m
}

// changing counts a change until done is called.
func (m *metrics) changing() (done func()) {
	m.changes.Enter(1)
	begun := m.change.Begin(0)
	return func() { m.change.End(begun, 1) }
}

// perProjection are the metrics of one projection. Counters start at 0 again when the projection is
// started.
var perProjection = []struct {
	name, help string
	counts     bool
	read       func(v *view, f *run.Statistics) float64
}{
	{"annals_projection_progress", "How much of its input a projection has read, from 0 to 1; -1 before it read anything.", false,
		func(_ *view, f *run.Statistics) float64 { return max(f.Progress/100, min(f.Progress, 0)) }},
	{"annals_projection_behind", "Events, or bytes of the log, that a projection has not read yet.", false,
		func(_ *view, f *run.Statistics) float64 { return float64(f.Behind) }},
	{"annals_projection_handled_events_total", "Events that a projection handled since it was started.", true,
		func(_ *view, f *run.Statistics) float64 { return float64(f.Processed) }},
	{"annals_projection_emitted_events_total", "Events that a projection emitted since it was started.", true,
		func(_ *view, f *run.Statistics) float64 { return float64(f.Emitted) }},
	{"annals_projection_handler_seconds_total", "Time spent in the handlers of a projection since it was started.", true,
		func(_ *view, f *run.Statistics) float64 { return f.ProcessingTime.Seconds() }},
	{"annals_projection_state_bytes", "Size of the states of a projection that are in memory.", false,
		func(_ *view, f *run.Statistics) float64 { return float64(f.StateBytes) }},
	{"annals_projection_faults_total", "How often a projection faulted since it was loaded.", true,
		func(v *view, _ *run.Statistics) float64 { return float64(v.faults) }},
	{"annals_projection_running", "1 while a projection runs.", false,
		func(v *view, _ *run.Statistics) float64 {
			if v.m.status == running {
				return 1
			}
			return 0
		}},
}

// added registers the metrics of a projection, if there are not too many already.
func (m *metrics) added(name string) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.series[name] || len(m.series) >= series {
		return
	}
	m.series[name] = true
	for _, one := range perProjection {
		read := func() float64 {
			p, err := m.service.find(name)
			if err != nil {
				return 0
			}
			v := p.view()
			f := v.ofRun()
			return one.read(&v, &f)
		}
		label := stats.Label{Name: "projection", Value: name}
		if one.counts {
			m.registry.CounterFunc(one.name, one.help, read, label)
		} else {
			m.registry.GaugeFunc(one.name, one.help, read, label)
		}
	}
}

// removed takes the metrics of a projection away.
func (m *metrics) removed(name string) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if !m.series[name] {
		return
	}
	delete(m.series, name)
	for _, one := range perProjection {
		m.registry.Remove(one.name, stats.Label{Name: "projection", Value: name})
	}
}
