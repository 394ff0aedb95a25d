// Package stats is where packages declare and keep their metrics: counters, gauges and histograms
// in a registry that exporters read later. It knows no exporter.
//
// Every update is a few atomic operations without a lock or an allocation, so metrics may sit on
// the hottest paths. Labels are fixed when a metric is registered; a package that needs one number
// per value of a label registers one metric per value and keeps them.
//
// A nil *Registry is valid: it hands out working metrics that are never shown, so a package need
// not ask whether it is measured.
package stats

import (
	"fmt"
	"slices"
	"strings"
	"sync"
	"time"
)

// Kind tells what a metric measures and how it may be summed up.
type Kind string

// The kinds of metrics.
const (
	CounterKind   Kind = "counter"   // only grows while the process lives
	GaugeKind     Kind = "gauge"     // goes up and down
	MaxKind       Kind = "max"       // the greatest value of the last 16 to 20 seconds
	HistogramKind Kind = "histogram" // a distribution
)

// Label is one dimension of a metric.
type Label struct{ Name, Value string }

// Sample is a metric as it stood when it was visited.
type Sample struct {
	Name   string
	Help   string
	Kind   Kind
	Labels []Label // sorted by name; must not be changed

	Value     float64       // all kinds but HistogramKind
	Histogram *Distribution // HistogramKind only
}

// Registry holds the metrics of one node. The zero value is ready for use.
type Registry struct {
	mu    sync.Mutex // guards what follows; never held while a metric is read
	byKey map[string]*metric
	kinds map[string]Kind // of every name: all metrics of a name are of one kind
	// by name, then labels; replaced as a whole, so that Each can walk it unlocked
	ordered []*metric

	queueMu sync.Mutex // guards queues; mu nests in it
	queues  []*Queue   // only appended to
}

// metric is one registered metric: its description and where its numbers are.
type metric struct {
	name, help, key string
	kind            Kind
	labels          []Label
	// *Counter, *Gauge, *Max, *Histogram, or nil when read is a caller's function
	held any
	// guarded by Registry.mu, functions can be replaced
	read func() (float64, *Distribution)
}

// Counter registers a counter. Registering the same name and labels again returns the same counter.
func (r *Registry) Counter(name, help string, labels ...Label) *Counter {
	return register(r, name, help, CounterKind, labels, func() (*Counter, readFunc) {
		c := new(Counter)
		return c, func() (float64, *Distribution) { return float64(c.Value()), nil }
	})
}

// Gauge registers a gauge. Registering the same name and labels again returns the same gauge.
func (r *Registry) Gauge(name, help string, labels ...Label) *Gauge {
	return register(r, name, help, GaugeKind, labels, func() (*Gauge, readFunc) {
		g := new(Gauge)
		return g, func() (float64, *Distribution) { return float64(g.Value()), nil }
	})
}

// Max registers a recent maximum. Registering the same name and labels again returns the same one.
func (r *Registry) Max(name, help string, labels ...Label) *Max {
	return register(r, name, help, MaxKind, labels, func() (*Max, readFunc) {
		m := new(Max)
		return m, func() (float64, *Distribution) { return m.Value(), nil }
	})
}

// Histogram registers a histogram whose buckets end at the given bounds,
// included, in rising order; values above the last bound count as well.
// Registering the same name and labels again returns the same histogram.
func (r *Registry) Histogram(name, help string, bounds []float64, labels ...Label) *Histogram {
	return register(r, name, help, HistogramKind, labels, func() (*Histogram, readFunc) {
		h := newHistogram(name, bounds)
		return h, func() (float64, *Distribution) { return 0, h.Snapshot() }
	})
}

// GaugeFunc registers a gauge that is read by calling f, from any goroutine.
// Registering the same name and labels again replaces the function, as a
// component that is closed and opened again does.
func (r *Registry) GaugeFunc(name, help string, f func() float64, labels ...Label) {
	r.function(name, help, GaugeKind, f, labels)
}

// CounterFunc is GaugeFunc for a number that only grows.
func (r *Registry) CounterFunc(name, help string, f func() float64, labels ...Label) {
	r.function(name, help, CounterKind, f, labels)
}

// MaxFunc is GaugeFunc for the greatest value of the last 16 to 20 seconds.
func (r *Registry) MaxFunc(name, help string, f func() float64, labels ...Label) {
	r.function(name, help, MaxKind, f, labels)
}

func (r *Registry) function(name, help string, kind Kind, f func() float64, labels []Label) {
	if r == nil {
		return
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	m, fresh := r.lookup(name, help, kind, labels)
	if !fresh && m.held != nil {
		panic(fmt.Sprintf("stats: metric %s is registered as a value and as a function", m.key))
	}
	m.read = func() (float64, *Distribution) { return f(), nil }
}

// Remove removes the metric of that name and labels, as for a component that is gone for good. Its
// counter or gauge can still be updated, but is not shown any more. A metric that is not there is
// not a mistake.
func (r *Registry) Remove(name string, labels ...Label) {
	if r == nil {
		return
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	_, key := identify(name, labels)
	gone, ok := r.byKey[key]
	if !ok {
		return
	}
	delete(r.byKey, key)
	r.ordered = slices.DeleteFunc(slices.Clone(r.ordered), func(m *metric) bool { return m == gone })
}

// Each calls visit for every metric, in the order of names and labels. It may
// run concurrently with updates and registrations; visit may use the registry.
func (r *Registry) Each(visit func(Sample)) {
	r.Select(func(string) bool { return true }, visit)
}

// Select is Each for the metrics whose names are wanted. The others are not read: some
// take longer than a counter does.
func (r *Registry) Select(wanted func(name string) bool, visit func(Sample)) {
	if r == nil {
		return
	}
	r.mu.Lock()
	var ordered []*metric
	var reads []readFunc
	for _, m := range r.ordered {
		if wanted(m.name) {
			ordered, reads = append(ordered, m), append(reads, m.read)
		}
	}
	r.mu.Unlock()
	for i, m := range ordered {
		s := Sample{Name: m.name, Help: m.help, Kind: m.kind, Labels: m.labels}
		s.Value, s.Histogram = reads[i]()
		visit(s)
	}
}

type readFunc = func() (float64, *Distribution)

// register returns the metric of that name and labels, made by build when there is none yet.
func register[M any](r *Registry, name, help string, kind Kind, labels []Label, build func() (*M, readFunc)) *M {
	if r == nil {
		made, _ := build()
		return made
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	m, fresh := r.lookup(name, help, kind, labels)
	if fresh {
		m.held, m.read = build()
	}
	held, ok := m.held.(*M)
	if !ok {
		panic(fmt.Sprintf("stats: metric %s is registered as a value and as a function", m.key))
	}
	return held
}

// lookup finds or adds a description. Wrong names and one name for two kinds are
// mistakes in the program. The caller holds mu and fills in a fresh one before it lets go.
func (r *Registry) lookup(name, help string, kind Kind, labels []Label) (m *metric, fresh bool) {
	labels, key := identify(name, labels)
	if have, ok := r.kinds[name]; ok && have != kind {
		panic(fmt.Sprintf("stats: metric %s is registered as %v and as %v", name, have, kind))
	}
	if m, ok := r.byKey[key]; ok {
		return m, false
	}
	if r.byKey == nil {
		r.byKey, r.kinds = make(map[string]*metric), make(map[string]Kind)
	}
	m = &metric{name: name, help: help, key: key, kind: kind, labels: labels}
	r.byKey[key], r.kinds[name] = m, kind
	at, _ := slices.BinarySearchFunc(r.ordered, m, func(a, b *metric) int {
		if c := strings.Compare(a.name, b.name); c != 0 {
			return c
		}
		return strings.Compare(a.key, b.key)
	})
	r.ordered = slices.Insert(slices.Clone(r.ordered), at, m)
	return m, true
}

// identify returns the labels of a metric, sorted, and its key: the name with them.
func identify(name string, labels []Label) (sorted []Label, key string) {
	labels = slices.Clone(labels)
	slices.SortFunc(labels, func(a, b Label) int { return strings.Compare(a.Name, b.Name) })
	if !validName(name) {
		panic(fmt.Sprintf("stats: bad metric name %q", name))
	}
	var b strings.Builder
	b.WriteString(name)
	for i, l := range labels {
		if !validName(l.Name) || i > 0 && l.Name == labels[i-1].Name {
			panic(fmt.Sprintf("stats: bad or repeated label %q of metric %s", l.Name, name))
		}
		fmt.Fprintf(&b, ",%s=%q", l.Name, l.Value)
	}
	return labels, b.String()
}

// validName reports whether every exporter can use the name: letters, digits and underscores, no
// digit first.
func validName(name string) bool {
	for i := range len(name) {
		switch c := name[i]; {
		case c == '_', 'a' <= c && c <= 'z', 'A' <= c && c <= 'Z':
		case '0' <= c && c <= '9' && i > 0:
		default:
			return false
		}
	}
	return name != ""
}

// Status registers the states that something can be in, each as the metric
// eventstore_statuses with the labels name and status, and the Unix time in
// seconds at which that state was last the current one: 0 for never, now for the
// one that is. The greatest value marks the current state.
//
// Which one is current is asked whenever the metrics are read, from any goroutine,
// so that a state that came and went in between does not show; an empty answer
// means none. A state that was not given is added when it is first seen, and
// shows when metrics are next read. Registering the same name again replaces the
// function and forgets the times.
func (r *Registry) Status(name string, statuses []string, current func() string) {
	s := &status{registry: r, name: name, current: current, last: make(map[string]time.Time)}
	for _, given := range statuses {
		s.add(given)
	}
}

type status struct {
	registry *Registry
	name     string
	current  func() string

	mu   sync.Mutex // guards last; not held while functions are called
	last map[string]time.Time
}

func (s *status) add(one string) {
	s.mu.Lock()
	_, have := s.last[one]
	if !have {
		s.last[one] = time.Time{}
	}
	s.mu.Unlock()
	if have {
		return
	}
	s.registry.GaugeFunc("eventstore_statuses", "Unix time in seconds at which a status was last the current one.",
		func() float64 { return s.read(one) }, Label{"name", s.name}, Label{"status", one})
}

// read looks which status is current and returns the time of one.
func (s *status) read(one string) float64 {
	if now := s.current(); now != "" {
		s.add(now)
		s.mu.Lock()
		s.last[now] = time.Now()
		s.mu.Unlock()
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.last[one].IsZero() {
		return 0
	}
	return float64(s.last[one].UnixMicro()) / 1e6
}
