package client_test

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/url"

	"github.com/annalsdb/annals/client"
)

func Example() {
	c, err := client.New(client.Options{
		Nodes: []string{address}, // https://node1.example.com:2113, ...
		Login: url.UserPassword("admin", "changeit"),
	})
	if err != nil {
		panic(err)
	}
	defer c.Close()
	ctx := context.Background()

	_, err = c.Append(ctx, "orders-1", client.NoStream,
		client.Event{Type: "OrderPlaced", Data: []byte(`{"total":12}`)},
		client.Event{Type: "OrderPaid", Data: []byte(`{}`)})
	if err != nil {
		panic(err)
	}
	for e, err := range c.Events(ctx, "orders-1", client.Reading{}) {
		if err != nil {
			panic(err)
		}
		fmt.Println(e.Number, e.Type, e.Data)
	}
	// Output:
	// 0 OrderPlaced {"total":12}
	// 1 OrderPaid {}
}

// A writer says which version of the stream it has seen. When another one was faster, the error has
// the version that the stream has now. The writer reads what came, and decides again.
func ExampleClient_Append_expectedVersion() {
	c := connect()
	defer c.Close()
	ctx := context.Background()
	placed := client.Event{Type: "OrderPlaced", Data: []byte(`{"total":12}`)}
	if _, err := c.Append(ctx, "orders-2", client.NoStream, placed); err != nil {
		panic(err)
	}
	_, err := c.Append(ctx, "orders-2", client.NoStream, client.Event{Type: "OrderPlaced", Data: []byte(`{"total":30}`)})
	if refused, ok := errors.AsType[*client.Error](err); ok && errors.Is(err, client.ErrWrongVersion) {
		current, _ := refused.CurrentVersion()
		fmt.Println("the stream is at version", current)
	}
	// Output: the stream is at version 0
}

// A transfer writes to two accounts or to neither. It counts on the balance that it has read, and
// on the year not being closed, a stream that it does not write to.
func ExampleClient_AppendMany() {
	c := connect()
	defer c.Close()
	ctx := context.Background()
	transfer := []client.StreamEvent{
		{Stream: "account-7", Event: client.Event{Type: "Debited", Data: []byte(`{"amount":5}`)}},
		{Stream: "account-8", Event: client.Event{Type: "Credited", Data: []byte(`{"amount":5}`)}},
	}
	done, err := c.AppendMany(ctx, transfer,
		client.Check{Stream: "account-7", Expected: client.NoStream},
		client.Check{Stream: "closed-2026", Expected: client.NoStream})
	if err != nil {
		panic(err)
	}
	for _, s := range done.Streams {
		fmt.Println(s.Stream, "has event", s.Last)
	}
	_, err = c.AppendMany(ctx, transfer, client.Check{Stream: "account-7", Expected: client.NoStream})
	if refused, ok := errors.AsType[*client.ViolationError](err); ok {
		fmt.Println(refused)
	}
	// Output:
	// account-7 has event 0
	// account-8 has event 0
	// the checks do not hold: stream "account-7": expected none, is 0
}

// A user name is taken once, whatever stream has the event. Decide reads what is known of the name,
// and appends only if no other event of the query came in between.
func ExampleClient_Decide() {
	c := connect()
	defer c.Close()
	ctx := context.Background()
	taken := client.Query{Items: []client.QueryItem{{Types: []string{"NameTaken"}, Tags: []string{"name:ann"}}}}
	for _, user := range []string{"user-1", "user-2"} {
		_, err := c.Decide(ctx, taken, func(events []client.Found) ([]client.StreamEvent, error) {
			if len(events) > 0 {
				return nil, fmt.Errorf("the name is that of %s", events[0].Stream)
			}
			return []client.StreamEvent{
				{Stream: user, Event: client.Event{Type: "NameTaken", Data: []byte(`{"name":"ann"}`), Tags: []string{"name:ann"}}},
			}, nil
		})
		fmt.Println(user, err)
	}
	// Output:
	// user-1 <nil>
	// user-2 the name is that of user-1
}

// Subscribe continues where a subscriber stopped, and waits for what comes.
func ExampleClient_Subscribe() {
	c := connect()
	defer c.Close()
	ctx := context.Background()
	for n := range 3 {
		data := fmt.Appendf(nil, `{"celsius":%d}`, 20+n)
		if _, err := c.Append(ctx, "readings", client.AnyVersion, client.Event{Type: "Read", Data: data}); err != nil {
			panic(err)
		}
	}
	seen := client.AtNumber(0) // Place of the last event that was dealt with; empty: none
	for e, err := range c.Subscribe(ctx, "readings", client.TailOptions{After: seen}) {
		if err != nil {
			panic(err)
		}
		fmt.Println(e.Number, e.Data)
		seen = e.Place // Keep it with what came of the event.
		if e.Number == 2 {
			break // Else it waits for the next one.
		}
	}
	// Output:
	// 1 {"celsius":21}
	// 2 {"celsius":22}
}

// All events of the database come from one stream. The page says where the next reading starts.
func ExampleClient_Pages() {
	c := connect()
	defer c.Close()
	ctx := context.Background()
	next, wanted := "", 0
	for page, err := range c.Pages(ctx, client.AllStream, client.Reading{At: next, Count: 100}) {
		if err != nil {
			panic(err)
		}
		for _, e := range page.Entries {
			if e.Stream == "readings" {
				wanted++
			}
		}
		next = page.Next // Keep it with what came of the events.
	}
	fmt.Println(wanted >= 0, next != "")
	// Output: true true
}

// The readers of a group share the events of a stream.
func ExampleGroup() {
	c := connect()
	defer c.Close()
	ctx := context.Background()
	for _, id := range []string{"a", "b"} {
		data := fmt.Appendf(nil, `{"id":%q}`, id)
		if _, err := c.Append(ctx, "shipments", client.AnyVersion, client.Event{Type: "Packed", Data: data}); err != nil {
			panic(err)
		}
	}
	labels := c.Group("shipments", "labels")
	if err := labels.Create(ctx, client.GroupSettings{MaxRetryCount: 3}); err != nil {
		panic(err)
	}
	for left := 2; left > 0; {
		messages, err := labels.Read(ctx, 10)
		if err != nil {
			panic(err)
		}
		for _, m := range messages {
			fmt.Println(m.Number, m.Type, m.Data)
		}
		if err := labels.Ack(ctx, messages...); err != nil {
			panic(err)
		}
		left -= len(messages)
	}
	// Output:
	// 0 Packed {"id":"a"}
	// 1 Packed {"id":"b"}
}

func ExampleUser() {
	c := connect()
	defer c.Close()
	ctx := context.Background()
	jane := c.User("jane")
	if err := jane.Create(ctx, client.NewUser{FullName: "Jane Doe", Password: "correct horse", Groups: []string{"billing"}}); err != nil {
		panic(err)
	}
	info, err := jane.Info(ctx)
	if err != nil {
		panic(err)
	}
	fmt.Println(info.FullName, info.Groups)
	// Output: Jane Doe [billing]
}

// Call does everything that has no method of its own.
func ExampleClient_Call() {
	c := connect()
	defer c.Close()
	var info struct{ State string }
	if err := c.Call(context.Background(), http.MethodGet, "/info", nil, &info); err != nil {
		panic(err)
	}
	fmt.Println(info.State)
	// Output: leader
}
