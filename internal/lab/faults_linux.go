package lab

import (
	"errors"
	"fmt"
	"time"
)

// CanCut says whether links can be changed.
func (l *Lab) CanCut() bool { return l.network != nil }

// NoLinks says why links cannot be changed. It is nil if they can.
func (l *Lab) NoLinks() error {
	if l.network != nil {
		return nil
	}
	return fmt.Errorf("%w: %w", ErrNoLinks, l.noLinks)
}

// SetRule replaces all of the rule of one directed link. Here and below a host
// that is nil is the client, which is this process.
func (l *Lab) SetRule(from, to *Host, r Rule) error {
	return l.change(from, to, func(old *Rule) { *old = r })
}

// Rule returns the rule of one directed link.
func (l *Lab) Rule(from, to *Host) (Rule, error) {
	var r Rule
	err := l.change(from, to, func(now *Rule) { r = *now })
	return r, err
}

// Cut lets nothing pass from one host to another, and loses what is on the way. Nobody is told:
// connections stall as they do when a cable is pulled.
func (l *Lab) Cut(from, to *Host) error {
	return l.change(from, to, func(r *Rule) { r.Cut = true })
}

// Heal makes one directed link whole: nothing is cut, lost, delayed or limited.
// What a connection lost it sends again in its own time: after a long cut that
// may take as long as the cut did, or two minutes.
func (l *Lab) Heal(from, to *Host) error { return l.SetRule(from, to, Rule{}) }

// Delay lets packets from one host to another take a time, and at random up to
// the jitter more. With jitter they overtake each other. Both 0 end it.
func (l *Lab) Delay(from, to *Host, delay, jitter time.Duration) error {
	return l.change(from, to, func(r *Rule) { r.Delay, r.Jitter = delay, jitter })
}

// Drop loses packets from one host to another with a probability from 0 to 1.
func (l *Lab) Drop(from, to *Host, probability float64) error {
	return l.change(from, to, func(r *Rule) { r.Drop = probability })
}

// Bandwidth limits what passes from one host to another in a second; 0 has no limit.
func (l *Lab) Bandwidth(from, to *Host, bytesPerSecond int64) error {
	return l.change(from, to, func(r *Rule) { r.BytesPerSecond = bytesPerSecond })
}

// HealAll makes all links whole.
func (l *Lab) HealAll() error {
	ends := append(l.Hosts(), nil)
	return each(ends, ends, l.Heal)
}

// Isolate cuts a host off from all others and from the client, in both directions.
func (l *Lab) Isolate(h *Host) error {
	return l.Partition([]*Host{h}, append(l.Hosts(), nil))
}

// Partition cuts all links between hosts of different groups, in both
// directions. It heals nothing. A host that is in several groups stays in the
// first of them, and one in no group keeps all its links. The client keeps its links unless a
// nil stands for it in one of the groups.
func (l *Lab) Partition(groups ...[]*Host) error {
	group := map[*Host]int{}
	var ends []*Host
	for i, g := range groups {
		for _, h := range g {
			if _, ok := group[h]; !ok {
				group[h] = i
				ends = append(ends, h)
			}
		}
	}
	return each(ends, ends, func(from, to *Host) error {
		if group[from] == group[to] {
			return nil
		}
		return l.Cut(from, to)
	})
}

// Traffic counts what passed from one host to another since both exist.
func (l *Lab) Traffic(from, to *Host) (Traffic, error) {
	f, t, err := l.ends(from, to)
	if err != nil {
		return Traffic{}, err
	}
	l.network.mu.Lock()
	defer l.network.mu.Unlock()
	lk, err := l.network.link(f, t)
	if err != nil {
		return Traffic{}, err
	}
	return lk.traffic(), nil
}

// each calls the function for all pairs of different hosts, and stops at nothing.
func each(from, to []*Host, f func(from, to *Host) error) error {
	var errs []error
	for _, a := range from {
		for _, b := range to {
			if a != b {
				errs = append(errs, f(a, b))
			}
		}
	}
	return errors.Join(errs...)
}

func (l *Lab) change(from, to *Host, change func(*Rule)) error {
	f, t, err := l.ends(from, to)
	if err != nil {
		return err
	}
	return l.network.change(f, t, change)
}

// ends are the numbers of the devices of two hosts.
func (l *Lab) ends(from, to *Host) (f, t byte, err error) {
	if err := l.NoLinks(); err != nil {
		return 0, 0, err
	}
	l.mu.Lock()
	closed := l.closed
	l.mu.Unlock()
	if closed {
		return 0, 0, ErrClosed
	}
	for _, end := range []struct {
		host   *Host
		number *byte
	}{{from, &f}, {to, &t}} {
		switch {
		case end.host == nil:
			*end.number = clientNumber
		case end.host.lab != l:
			return 0, 0, fmt.Errorf("host %s is one of another lab", end.host.Addr())
		default:
			*end.number = end.host.number
		}
	}
	return f, t, nil
}
