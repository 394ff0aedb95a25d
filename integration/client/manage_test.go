package client_test

import (
	"errors"
	"net/url"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/annalsdb/annals/client"
	"github.com/annalsdb/annals/internal/testkit"
)

func TestGroup(t *testing.T) {
	c := open(t, nil)
	ctx := t.Context()
	g := c.Group("work", "team")
	if _, err := g.Read(ctx, 1); !errors.Is(err, client.ErrNotFound) {
		t.Fatal(err)
	}
	if list, err := c.Groups(ctx, "work"); err != nil || len(list) != 0 {
		t.Errorf("%+v, %v", list, err)
	}
	settings := client.GroupSettings{MaxRetryCount: 2, MessageTimeout: time.Minute, CheckpointAfter: -1}
	if err := errors.Join(g.Create(ctx, client.GroupSettings{}), g.Update(ctx, settings)); err != nil {
		t.Fatal(err)
	}
	if err := g.Create(ctx, settings); !errors.Is(err, client.ErrExists) || !strings.Contains(err.Error(), "'team' already exists") {
		t.Fatal(err)
	}
	// The reader is there before the event.
	read := make(chan []client.Message, 1)
	go func() {
		m, err := g.Read(ctx, 10)
		if err != nil {
			t.Error(err)
		}
		read <- m
	}()
	if _, err := c.Append(ctx, "work", client.NoStream, client.Event{Type: "t", Data: []byte(`{}`)}); err != nil {
		t.Fatal(err)
	}
	if err := g.Nack(ctx, client.Park, <-read...); err != nil {
		t.Fatal(err)
	}
	var info client.GroupInfo
	testkit.Eventually(t, time.Minute, func() (err error) {
		if info, err = g.Info(ctx); err == nil && info.Parked == 0 {
			err = errors.New("nothing is parked")
		}
		return err
	})
	got := info.Settings
	if got.MaxRetryCount != 2 || got.MessageTimeout != time.Minute || got.CheckpointAfter >= 0 || got.BufferSize != 500 || got.Strategy != client.RoundRobin ||
		info.Stream != "work" || info.Name != "team" || info.Processed != 1 {
		t.Errorf("%+v", info)
	}
	if list, err := c.Groups(ctx, "work"); err != nil || len(list) != 1 || list[0].Name != "team" {
		t.Errorf("%+v, %v", list, err)
	}
	if err := errors.Join(g.ReplayParkedBefore(ctx, 0), g.ReplayParked(ctx)); err != nil {
		t.Fatal(err)
	}
	m, err := g.Read(ctx, 10)
	if err != nil || len(m) != 1 || m[0].Stream != "work" || g.Ack(ctx, m...) != nil {
		t.Errorf("%+v, %v", m, err)
	}
	if err := g.Delete(ctx); err != nil {
		t.Error(err)
	}
	if _, err := g.Info(ctx); !errors.Is(err, client.ErrNotFound) {
		t.Error(err)
	}
}

func TestProjection(t *testing.T) {
	c := open(t, nil)
	ctx := t.Context()
	for range 3 {
		if _, err := c.Append(ctx, "counted", client.AnyVersion, client.Event{Type: "One", Data: []byte(`{}`)}); err != nil {
			t.Fatal(err)
		}
	}
	const script = `fromStream("counted").when({$init: () => ({n: 0}), One: (s, e) => { s.n++ }})`
	p := c.Projection("count all/one")
	if _, err := p.Statistics(ctx); !errors.Is(err, client.ErrNotFound) {
		t.Fatal(err)
	}
	if err := p.Create(ctx, script, client.ProjectionOptions{}); err != nil {
		t.Fatal(err)
	}
	if err := p.Create(ctx, script, client.ProjectionOptions{}); !errors.Is(err, client.ErrExists) {
		t.Error(err)
	}
	state := func(want string) {
		t.Helper()
		testkit.Eventually(t, time.Minute, func() error {
			s, err := p.State(ctx, "")
			if err == nil && string(s) != want {
				err = errors.New("the state is " + string(s))
			}
			return err
		})
	}
	state(`{"n":3}`)
	if r, err := p.Result(ctx, ""); err != nil || string(r) != `{"n":3}` {
		t.Errorf("%s, %v", r, err)
	}
	if s, err := p.Statistics(ctx); err != nil || s.Name != p.Name() || s.Status != "Running" || s.Mode != client.Continuous || s.Fault != "" {
		t.Errorf("%+v, %v", s, err)
	}
	if list, err := c.Projections(ctx); err != nil || !slices.ContainsFunc(list, func(s client.ProjectionStatistics) bool { return s.Name == p.Name() }) {
		t.Errorf("%+v, %v", list, err)
	}
	if err := p.Delete(ctx, client.DeleteProjection{}); err == nil || !strings.Contains(err.Error(), "hasn't been stopped") {
		t.Errorf("%v", err)
	}
	twice := strings.Replace(script, "s.n++", "s.n += 2", 1)
	if err := errors.Join(p.Disable(ctx), p.Update(ctx, twice), p.Reset(ctx), p.Enable(ctx)); err != nil {
		t.Fatal(err)
	}
	state(`{"n":6}`)
	if s, err := p.Script(ctx); err != nil || s != twice {
		t.Errorf("%s, %v", s, err)
	}
	if err := errors.Join(p.UpdateEmit(ctx, script, true), p.Abort(ctx), p.Disable(ctx), p.Delete(ctx, client.DeleteProjection{Checkpoints: true})); err != nil {
		t.Fatal(err)
	}

	query := c.Projection("")
	if err := query.Create(ctx, script, client.ProjectionOptions{Mode: client.Transient}); err != nil {
		t.Fatal(err)
	}
	testkit.Eventually(t, time.Minute, func() error {
		s, err := query.Statistics(ctx)
		if err == nil && !strings.HasPrefix(s.Status, "Completed") {
			err = errors.New("the status is " + s.Status)
		}
		return err
	})
	if r, err := query.Result(ctx, ""); err != nil || string(r) != `{"n":3}` || query.Delete(ctx, client.DeleteProjection{}) != nil {
		t.Errorf("%s, %v", r, err)
	}
}

func TestUsers(t *testing.T) {
	c := open(t, nil)
	ctx := t.Context()
	joe := c.User("joe/é")
	if _, err := joe.Info(ctx); !errors.Is(err, client.ErrNotFound) {
		t.Fatal(err)
	}
	if err := joe.Create(ctx, client.NewUser{FullName: "Joe", Password: "first"}); err != nil {
		t.Fatal(err)
	}
	if err := joe.Create(ctx, client.NewUser{FullName: "Joe", Password: "other"}); !errors.Is(err, client.ErrExists) {
		t.Errorf("%v", err)
	}
	may := func(password string) error {
		_, err := openAs(t, nil, url.UserPassword("joe/é", password)).CurrentUser(ctx)
		return err
	}
	if err := may("first"); err != nil {
		t.Error(err)
	}
	if err := errors.Join(joe.Update(ctx, "Joe Doe", "billing"), joe.ChangePassword(ctx, "first", "second"), may("second")); err != nil {
		t.Error(err)
	}
	if err := joe.ChangePassword(ctx, "first", "third"); !errors.Is(err, client.ErrAccessDenied) {
		t.Errorf("%v", err)
	}
	if err := errors.Join(joe.SetPassword(ctx, "third"), may("third"), joe.Disable(ctx)); err != nil {
		t.Error(err)
	}
	if err := may("third"); !errors.Is(err, client.ErrAccessDenied) {
		t.Errorf("%v", err)
	}
	info, err := joe.Info(ctx)
	if err != nil || info.Login != "joe/é" || info.FullName != "Joe Doe" || !slices.Equal(info.Groups, []string{"billing"}) || !info.Disabled || info.Changed.IsZero() {
		t.Errorf("%+v, %v", info, err)
	}
	if err := errors.Join(joe.Enable(ctx), may("third")); err != nil {
		t.Error(err)
	}
	list, err := c.Users(ctx)
	if err != nil || !slices.ContainsFunc(list, func(u client.UserInfo) bool { return u.Login == "joe/é" }) || len(list) < 3 {
		t.Errorf("%+v, %v", list, err)
	}
	if err := joe.Delete(ctx); err != nil {
		t.Error(err)
	}
	if err := joe.Delete(ctx); !errors.Is(err, client.ErrNotFound) {
		t.Errorf("%v", err)
	}
}
