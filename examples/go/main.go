// Package main is an example of a program that keeps orders in Annals. It decides by what a stream
// says, appends with an expected version, follows all orders, and lets a group of readers do work.
//
//	go run ./examples/go --nodes http://127.0.0.1:2113
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"net/url"
	"os"
	"strings"

	"github.com/annalsdb/annals/client"
)

func main() {
	nodes := flag.String("nodes", "http://127.0.0.1:2113", "addresses of nodes, separated by commas")
	user := flag.String("user", "admin", "user; the password is in ANNALS_PASSWORD")
	flag.Parse()
	password := os.Getenv("ANNALS_PASSWORD")
	if password == "" {
		password = "changeit"
	}
	if err := run(context.Background(), strings.Split(*nodes, ","), url.UserPassword(*user, password)); err != nil {
		fmt.Fprintln(os.Stderr, "orders:", err)
		os.Exit(1)
	}
}

func run(ctx context.Context, nodes []string, login *url.Userinfo) error {
	c, err := client.New(client.Options{Nodes: nodes, Login: login})
	if err != nil {
		return err
	}
	defer c.Close()

	order := "order-" + client.NewID() // A new one in each run.
	if err := change(ctx, c, order, place(30)); err != nil {
		return err
	}
	for _, amount := range []int{12, 18} {
		if err := change(ctx, c, order, pay(amount)); err != nil {
			return err
		}
	}
	if err := change(ctx, c, order, pay(1)); !errors.Is(err, errPaid) {
		return fmt.Errorf("the order was paid twice: %w", err)
	}
	fmt.Println("a second payment is refused")
	if err := follow(ctx, c, order); err != nil {
		return err
	}
	return pack(ctx, c, order)
}

// state is what the events of an order say.
type state struct {
	Total, Paid int
	isPlaced    bool
}

// apply takes an event into account.
func (s *state) apply(e client.Recorded) error {
	var data struct{ Total, Amount int }
	if err := e.Decode(&data); err != nil {
		return err
	}
	switch e.Type {
	case "OrderPlaced":
		s.isPlaced, s.Total = true, data.Total
	case "OrderPaid":
		s.Paid += data.Amount
	}
	return nil
}

// decision makes an event of what an order is now, or refuses.
type decision func(s state) (client.Event, error)

var errPaid = errors.New("the order is paid")

func place(total int) decision {
	return func(s state) (client.Event, error) {
		if s.isPlaced {
			return client.Event{}, errors.New("there is such an order")
		}
		return client.Event{Type: "OrderPlaced", Data: fmt.Appendf(nil, `{"total": %d}`, total)}, nil
	}
}

func pay(amount int) decision {
	return func(s state) (client.Event, error) {
		if s.Paid >= s.Total {
			return client.Event{}, errPaid
		}
		return client.Event{Type: "OrderPaid", Data: fmt.Appendf(nil, `{"amount": %d}`, amount)}, nil
	}
}

// change reads an order, decides, and appends. When another writer was faster, it decides again.
func change(ctx context.Context, c *client.Client, order string, decide decision) error {
	for {
		var now state
		version := client.NoStream
		for e, err := range c.Events(ctx, order, client.Reading{Leader: true}) {
			if errors.Is(err, client.ErrNotFound) {
				break // It is a new order.
			}
			if err == nil {
				err = now.apply(e)
			}
			if err != nil {
				return err
			}
			version = e.Number
		}
		e, err := decide(now)
		if err != nil {
			return err
		}
		number, err := c.Append(ctx, order, version, e)
		if errors.Is(err, client.ErrWrongVersion) {
			continue
		}
		if err == nil {
			fmt.Println("appended", number, e.Type)
		}
		return err
	}
}

// follow subscribes to all orders until this one is paid. A real program keeps e.Place with what it
// made of the events, and begins After it next time.
func follow(ctx context.Context, c *client.Client, order string) error {
	var now state
	for e, err := range c.Subscribe(ctx, client.AllStream, client.TailOptions{Streams: []string{"order-"}}) {
		if err != nil {
			return err
		}
		if e.Stream != order {
			continue
		}
		if err := now.apply(e); err != nil {
			return err
		}
		fmt.Printf("followed %s: %d of %d is paid\n", e.Type, now.Paid, now.Total)
		if now.Paid == now.Total {
			break
		}
	}
	return nil
}

// pack has readers that share the events of an order. Here it is one.
func pack(ctx context.Context, c *client.Client, order string) error {
	group := c.Group(order, "packers")
	if err := group.Create(ctx, client.GroupSettings{MaxRetryCount: 3}); err != nil {
		return err
	}
	for done := 0; done < 3; {
		messages, err := group.Read(ctx, 10)
		if err != nil {
			return err
		}
		for _, m := range messages {
			fmt.Println("worked on", m.Number, m.Type)
			if err := group.Ack(ctx, m); err != nil {
				return err
			}
			done++
		}
	}
	return group.Delete(ctx)
}
