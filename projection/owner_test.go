package projection_test

import (
	"context"
	"errors"
	"testing"

	"github.com/annalsdb/annals/event"
	"github.com/annalsdb/annals/internal/check"
	"github.com/annalsdb/annals/projection"
)

// Who may do what to projections of each kind, and whom they run as then.
func TestOwners(t *testing.T) {
	other := projection.Identity{Name: "other", Roles: []string{"g"}}
	ops := projection.Identity{Name: "ops", Roles: []string{"$ops"}, Operator: true}
	account := projection.Identity{Name: "system", Roles: []string{"$admins"}, Operator: true}
	namesake := projection.Identity{Name: "system"}
	for _, c := range []struct {
		name      string
		mode      projection.Mode
		maker, by projection.Identity
		may       bool
	}{
		{"query, its maker", projection.Transient, somebody, somebody, true},
		{"query, another user", projection.Transient, somebody, other, false},
		{"query, an operator", projection.Transient, somebody, ops, true},
		{"query of an administrator, a user", projection.Transient, admin, somebody, false},
		{"query of an administrator, an operator", projection.Transient, admin, ops, true},
		{"query of the account, a user of its name", projection.Transient, account, namesake, false},
		{"query of nobody, nobody", projection.Transient, projection.Identity{}, projection.Identity{}, false},
		{"continuous, an operator", projection.Continuous, admin, ops, true},
		{"continuous, its maker who is no operator any more", projection.Continuous, ops, projection.Identity{Name: "ops"}, false},
		{"continuous, another user", projection.Continuous, admin, other, false},
	} {
		t.Run(c.name, func(t *testing.T) {
			test(t, func(b *bench) {
				var ran []string
				b.refuse = func(who projection.Identity) error {
					ran = append(ran, who.Name)
					if who.Operator || who.Name == c.maker.Name {
						return nil
					}
					return event.ErrNotAuthorized
				}
				b.create("p", "one", func(p *projection.Creation) {
					p.Mode, p.By, p.Enabled = c.mode, c.maker, false
					p.By.Operator = true
				})
				config := projection.DefaultConfig()
				for name, do := range map[string]func() error{
					"query":   func() error { return b.UpdateQuery(b.ctx, "p", projection.Update{Query: "two"}, c.by) },
					"config":  func() error { return b.SetConfig(b.ctx, "p", config, c.by) },
					"enable":  func() error { return b.Command(b.ctx, "p", projection.Enable, c.by) },
					"disable": func() error { return b.Command(b.ctx, "p", projection.Disable, c.by) },
					"abort":   func() error { return b.Command(b.ctx, "p", projection.Abort, c.by) },
					"reset":   func() error { return b.Command(b.ctx, "p", projection.Reset, c.by) },
				} {
					err := do()
					if errors.Is(err, event.ErrNotAuthorized) == c.may {
						t.Errorf("%s: %v", name, err)
					}
				}
				if c.mode == projection.Transient && !c.may {
					check.Is(t, b.Delete(b.ctx, "p", projection.DeleteOptions{}, c.by), event.ErrNotAuthorized, "delete")
				}
				if !c.may {
					return
				}
				b.must(b.UpdateQuery(b.ctx, "p", projection.Update{Query: "three"}, c.by))
				b.must(b.Command(b.ctx, "p", projection.Enable, c.by))
				ran = nil
				_ = b.runOf("p").o.MayRead(context.Background(), "s")
				check.Slice(t, ran, []string{c.by.Name}, "runs as ..., want", c.by.Name)
			})
		})
	}
}
