package lab

import (
	"errors"
	"fmt"
)

// NoLinks says why links cannot be changed. It is nil if they can.
func (l *Lab) NoLinks() error {
	if l.network != nil {
		return nil
	}
	return fmt.Errorf("%w: %w", ErrNoLinks, l.noLinks)
}

// Link is the way of packets from one host to another. A host that is nil is the
// client, which is this process.
type Link struct {
	lab      *Lab
	from, to *Host
}

// Link returns the link from one host to another. What is asked of one that there
// cannot be is an error.
func (l *Lab) Link(from, to *Host) Link { return Link{l, from, to} }

// HealAll makes all links whole.
func (l *Lab) HealAll() error {
	var errs []error
	ends := append(l.Hosts(), nil)
	for _, from := range ends {
		for _, to := range ends {
			if from != to {
				errs = append(errs, l.Link(from, to).Set(Rule{}))
			}
		}
	}
	return errors.Join(errs...)
}

// Set replaces all of the rule. The zero rule makes the link whole. What a connection
// lost it sends again in its own time: after a long cut that may take as long as the
// cut did, or two minutes.
func (l Link) Set(r Rule) error { return l.change(func(old *Rule) { *old = r }) }

// Rule returns the rule.
func (l Link) Rule() (Rule, error) {
	var r Rule
	err := l.change(func(now *Rule) { r = *now })
	return r, err
}

// Cut lets nothing pass, and loses what is on the way. Neither end learns of it:
// connections stall as they do when a cable is pulled.
func (l Link) Cut() error { return l.change(func(r *Rule) { r.Cut = true }) }

// Traffic counts what passed since both hosts exist.
func (l Link) Traffic() (Traffic, error) {
	from, to, err := l.ends()
	if err != nil {
		return Traffic{}, err
	}
	n := l.lab.network
	n.mu.Lock()
	defer n.mu.Unlock()
	lk, err := n.link(from, to)
	if err != nil {
		return Traffic{}, err
	}
	return lk.traffic(), nil
}

func (l Link) change(change func(*Rule)) error {
	from, to, err := l.ends()
	if err != nil {
		return err
	}
	return l.lab.network.change(from, to, change)
}

// ends are the numbers of the devices of the two hosts.
func (l Link) ends() (from, to byte, err error) {
	if err := l.lab.NoLinks(); err != nil {
		return 0, 0, err
	}
	l.lab.mu.Lock()
	closed := l.lab.closed
	l.lab.mu.Unlock()
	if closed {
		return 0, 0, ErrClosed
	}
	if from, err = l.number(l.from); err == nil {
		to, err = l.number(l.to)
	}
	return from, to, err
}

func (l Link) number(end *Host) (byte, error) {
	switch {
	case end == nil:
		return clientNumber, nil
	case end.lab != l.lab:
		return 0, fmt.Errorf("host %s is one of another lab", end.Addr())
	}
	return end.number, nil
}
