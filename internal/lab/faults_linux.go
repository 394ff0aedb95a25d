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
func (l Link) Set(r Rule) error {
	if err := r.Validate(); err != nil {
		return err
	}
	found, err := l.find()
	if err == nil {
		found.set(r)
	}
	return err
}

// Cut lets nothing pass, and loses what is on the way. Neither end learns of it:
// connections stall as they do when a cable is pulled.
func (l Link) Cut() error { return l.Set(Rule{Cut: true}) }

// Rule returns the rule.
func (l Link) Rule() (Rule, error) {
	found, err := l.find()
	if err != nil {
		return Rule{}, err
	}
	return found.current(), nil
}

// Traffic counts what passed since both hosts exist.
func (l Link) Traffic() (Traffic, error) {
	found, err := l.find()
	if err != nil {
		return Traffic{}, err
	}
	return found.traffic(), nil
}

func (l Link) find() (*link, error) {
	if err := l.lab.NoLinks(); err != nil {
		return nil, err
	}
	if l.lab.closed.Load() {
		return nil, ErrClosed
	}
	numbers := [2]byte{clientNumber, clientNumber}
	for i, end := range []*Host{l.from, l.to} {
		switch {
		case end == nil:
		case end.lab != l.lab:
			return nil, fmt.Errorf("host %s is one of another lab", end.Addr())
		default:
			numbers[i] = end.number
		}
	}
	return l.lab.network.link(numbers[0], numbers[1])
}
