package client_test

import (
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"regexp"
	"testing"
	"time"

	"github.com/annalsdb/annals/client"
	"github.com/annalsdb/annals/internal/testkit"
)

// TestCluster: commands, appends and subscriptions work through followers, and while the nodes
// change their leader.
func TestCluster(t *testing.T) {
	dev := testkit.Launch(t, testkit.Command{Args: []string{"dev", "--mem-db", "--port", "0", "--run-projections=All"}})
	dev.AwaitOutput("data are in memory")
	var followers, nodes []string
	for _, m := range regexp.MustCompile(`(?m)^node\d serves (http://\S+) +(\w+)`).FindAllStringSubmatch(dev.Stdout(), -1) {
		if nodes = append(nodes, m[1]); m[2] == "Follower" {
			followers = append(followers, m[1])
		}
	}
	if len(nodes) != 3 || len(followers) != 2 {
		t.Fatalf("nodes %q, followers %q\n%s", nodes, followers, dev.Output())
	}
	connect := func(nodes ...string) *client.Client {
		c, err := client.New(client.Options{Nodes: nodes, Login: url.UserPassword("admin", "changeit")})
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(c.Close)
		return c
	}
	ctx := t.Context()

	// Each step has a client of its own, which knows a follower alone.
	group, projection, user := "packers", "p", "jane"
	for name, do := range map[string]func(c *client.Client) error{
		"append": func(c *client.Client) error {
			_, err := c.Append(ctx, "first", client.NoStream, client.Event{Type: "t", Data: []byte(`{}`)})
			return err
		},
		"group": func(c *client.Client) error {
			g := c.Group("first", group)
			if err := g.Create(ctx, client.GroupSettings{}); err != nil {
				return err
			}
			_, err := g.Info(ctx)
			return errors.Join(err, g.Update(ctx, client.GroupSettings{MaxRetryCount: 2}), g.ReplayParked(ctx), g.Delete(ctx))
		},
		"projection": func(c *client.Client) error {
			p := c.Projection(projection)
			if err := p.Create(ctx, `fromAll().when({$any: (s, e) => s})`, client.ProjectionOptions{}); err != nil {
				return err
			}
			_, err := p.Statistics(ctx)
			return errors.Join(err, p.Disable(ctx), p.Delete(ctx, client.DeleteProjection{}))
		},
		"after a write": func(c *client.Client) error {
			p := c.Projection("after")
			if err := p.Create(ctx, `fromStream('after').when({$init: () => ({n: 0}), t: (s, e) => { s.n++ }})`, client.ProjectionOptions{}); err != nil {
				return err
			}
			for n := range 50 {
				done, err := connect(followers[0]).Write(ctx, "after", client.AnyVersion, client.Event{Type: "t", Data: []byte(`{}`)})
				if err != nil {
					return err
				}
				after := connect(followers[n%2]).After(done.Position)
				e, err := after.Event(ctx, "after", done.Last)
				if err != nil || e.Number != int64(n) {
					return fmt.Errorf("event %d in place of %d: %w", e.Number, n, err)
				}
				if state, err := after.Projection("after").State(ctx, ""); err != nil || string(state) != fmt.Sprintf(`{"n":%d}`, n+1) {
					return fmt.Errorf("state %s after %d events: %w", state, n+1, err)
				}
			}
			return nil
		},
		"user": func(c *client.Client) error {
			u := c.User(user)
			return errors.Join(u.Create(ctx, client.NewUser{Password: "secret", FullName: "Jane"}), u.Disable(ctx), u.Delete(ctx))
		},
	} {
		if err := do(connect(followers[0])); err != nil {
			t.Errorf("%s: %v", name, err)
		}
	}

	// The subscriber and the writer know one node at first, and find the others.
	reader, writer := connect(followers[1]), connect(followers[0])
	if err := errors.Join(reader.Discover(ctx), writer.Discover(ctx)); err != nil {
		t.Fatal(err)
	}
	const many = 60
	done := make(chan error, 1)
	go func() {
		for n := range many {
			if n == 20 { // The leader gives up.
				if err := writer.Call(ctx, http.MethodPost, "/admin/node/resign", nil, nil); err != nil {
					done <- fmt.Errorf("resign: %w", err)
					return
				}
			}
			number, err := writer.Append(ctx, "events", int64(n)-1, client.Event{Type: "t", Data: []byte(`{}`)})
			if err == nil && number != int64(n) {
				err = fmt.Errorf("event %d has the number %d", n, number)
			}
			if err != nil {
				done <- err
				return
			}
		}
		done <- nil
	}()
	next := int64(0)
	for e, err := range reader.Subscribe(ctx, "events", client.TailOptions{Leader: true}) {
		if err != nil || e.Number != next {
			t.Fatalf("event %d in place of %d, %v", e.Number, next, err)
		}
		if next++; next == many {
			break
		}
	}
	select {
	case err := <-done:
		if err != nil {
			t.Error(err)
		}
	case <-time.After(time.Minute):
		t.Error("the writer does not end")
	}
	dev.Stop()
}
