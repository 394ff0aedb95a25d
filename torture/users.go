package torture

import (
	"context"
	"encoding/binary"
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"net/http"
	"net/url"
	"strings"
	"sync"
	"time"

	"github.com/google/uuid"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/annalsdb/annals/client"
	"github.com/annalsdb/annals/grpc/users"
	"github.com/annalsdb/annals/internal/clock"
)

const (
	guests = 6
	// steady is how many of them never change once they are there.
	steady = 2
	// surprises is how often in a row a node must give the wrong answer: it may have started again
	// since it said how far it is, and lack the newest events for a moment.
	surprises = 3
	// behindLimit bounds how long a node is waited for that lacks a change of a user.
	behindLimit = 5 * time.Second
	// settleTries is how often a user who stays is tried to create.
	settleTries = 20
)

// guest is a user whom the operator changes while others work. Only the operator changes it, and
// mu guards it against those who look.
type guest struct {
	mu       sync.Mutex
	version  int // one more with each begin and each end of a change
	login    string
	password string
	there    bool
	disabled bool
	member   bool  // of the group that may read the guarded stream
	position int64 // where the log ended after the last change
}

// pass is what a guest may do, as of one version.
type pass struct {
	version         int
	login, password string
	enters, reads   bool
	position        int64
}

func (g *guest) pass() pass {
	g.mu.Lock()
	defer g.mu.Unlock()
	enters := g.there && !g.disabled
	return pass{version: g.version, login: g.login, password: g.password, enters: enters, reads: enters && g.member, position: g.position}
}

func (p pass) isKnown() bool { return p.version%2 == 0 && p.login != "" }

// warden is the operator who changes users, and looks on every node what came of it.
type warden struct {
	worker
	guests [guests]*guest
	logins int
	named  string // of this run
}

func (w *warden) group() string        { return w.named + "group" }
func (w *warden) open() string         { return w.named + "open" }
func (w *warden) guarded() string      { return w.named + "guarded" }
func (w *warden) newPassword() string  { return fmt.Sprintf("secret %d", w.rng.Uint64()) }
func (w *warden) changeable() *guest   { return w.guests[steady+w.rng.IntN(guests-steady)] }
func (w *warden) visitor(i int) worker { return w.load.worker(visitsOfGuests + i) }

// newWarden employs the operator, and clients who sign in as the guests.
func newWarden(l *load, clients int) *warden {
	// The events of users and of these streams are not in the books.
	w := &warden{worker: l.worker(wardens), named: fmt.Sprintf("guests-%08x-", uint32(l.ids.tag))}
	for i := range w.guests {
		w.guests[i] = &guest{}
	}
	l.employ(w.turn)
	for i := range clients {
		v := w.visitor(i)
		l.employ(func(ctx context.Context) time.Duration {
			g, t := w.guests[v.rng.IntN(guests)], v.wander()
			if p := g.pass(); p.isKnown() {
				w.look(ctx, &v, t, g, p)
			}
			return v.pause(50, 400)
		})
	}
	return w
}

// prepare makes two streams, of which everyone may read one, and the guests who stay.
func (w *warden) prepare(ctx context.Context) error {
	acl, err := json.Marshal(map[string]any{"$acl": map[string]any{"$r": w.group()}})
	if err != nil {
		return err
	}
	e := client.Event{ID: newID(w.rng), Type: "visit", Data: []byte("{}")}
	for _, stream := range []string{w.open(), w.guarded()} {
		if _, err := w.command(ctx, e.Request(stream, anyVersion)); err != nil {
			return fmt.Errorf("prepare the streams of guests: %w", err)
		}
	}
	q := client.Request{
		Method: http.MethodPost, Path: client.StreamPath(w.guarded()) + "/metadata", Body: acl,
		Header: map[string]string{"Content-Type": client.MediaJSON, client.HeaderEventID: newID(w.rng), client.HeaderExpectedVersion: "-2"},
	}
	if _, err := w.command(ctx, q); err != nil {
		return fmt.Errorf("prepare the streams of guests: %w", err)
	}
	for _, g := range w.guests[:steady] {
		if err := w.settle(ctx, g); err != nil {
			return err
		}
	}
	return nil
}

// settle makes a guest. After an unknown outcome it tries another user.
func (w *warden) settle(ctx context.Context, g *guest) error {
	for range settleTries {
		if w.change(ctx, g) {
			return nil
		}
		if err := clock.Sleep(ctx, 200*time.Millisecond); err != nil {
			return err
		}
	}
	w.find.add(kindUser, "no user can be created in %d tries, before any fault", settleTries)
	return nil
}

// turn makes one change, and looks at all nodes.
func (w *warden) turn(ctx context.Context) time.Duration {
	g := w.changeable()
	was := g.pass()
	if !w.change(ctx, g) {
		return w.pause(100, 400)
	}
	now := g.pass()
	nodes := w.targets.all()
	for _, i := range w.rng.Perm(len(nodes)) {
		if w.stopped() {
			break
		}
		w.look(ctx, &w.worker, nodes[i], g, now)
		if old := was; was.login == now.login && was.password != now.password {
			old.version, old.position, old.enters, old.reads = now.version, now.position, false, false
			w.look(ctx, &w.worker, nodes[i], g, old)
		}
	}
	return w.pause(100, 400)
}

// userChange is a change as both interfaces have it, and what a guest is after it.
type userChange struct {
	name  string
	http  client.Request
	call  func(context.Context, users.UsersClient) error
	login *url.Userinfo // who asks; nil: the administrator
	after func(*guest)
}

func userRequest(method, path string, body any) client.Request {
	return client.Request{Method: method, Path: "/users/" + path, Body: made(json.Marshal(body)), Header: map[string]string{"Content-Type": client.MediaJSON, "Accept": client.MediaJSON}}
}

// next chooses a change that is possible.
func (w *warden) next(g *guest) userChange {
	if !g.there {
		password, member := w.newPassword(), w.rng.IntN(2) == 0
		o := &users.CreateReq_Options{LoginName: g.login, Password: password, FullName: "Guest", Groups: w.groups(member)}
		return userChange{
			name: "created", after: func(g *guest) { g.there, g.disabled, g.member, g.password = true, false, member, password },
			http: userRequest(http.MethodPost, "", map[string]any{"loginName": g.login, "fullName": "Guest", "password": password, "groups": o.Groups}),
			call: func(ctx context.Context, c users.UsersClient) error {
				_, err := c.Create(ctx, &users.CreateReq{Options: o})
				return err
			},
		}
	}
	login := g.login
	switch w.rng.IntN(6) {
	case 0:
		return userChange{
			name: "deleted", after: func(g *guest) { g.there = false }, http: userRequest(http.MethodDelete, login, nil),
			call: func(ctx context.Context, c users.UsersClient) error {
				_, err := c.Delete(ctx, &users.DeleteReq{Options: &users.DeleteReq_Options{LoginName: login}})
				return err
			},
		}
	case 1:
		member := !g.member
		o := &users.UpdateReq_Options{LoginName: login, FullName: "Guest", Groups: w.groups(member)}
		return userChange{
			name: "regrouped", after: func(g *guest) { g.member = member },
			http: userRequest(http.MethodPut, login, map[string]any{"fullName": "Guest", "groups": o.Groups}),
			call: func(ctx context.Context, c users.UsersClient) error {
				_, err := c.Update(ctx, &users.UpdateReq{Options: o})
				return err
			},
		}
	case 2:
		password := w.newPassword()
		return userChange{
			name: "reset", after: func(g *guest) { g.password = password },
			http: userRequest(http.MethodPost, login+"/command/reset-password", map[string]any{"newPassword": password}),
			call: func(ctx context.Context, c users.UsersClient) error {
				_, err := c.ResetPassword(ctx, &users.ResetPasswordReq{Options: &users.ResetPasswordReq_Options{LoginName: login, NewPassword: password}})
				return err
			},
		}
	case 3:
		if g.disabled {
			break
		}
		password, current := w.newPassword(), g.password
		return userChange{
			name: "ownPassword", after: func(g *guest) { g.password = password }, login: url.UserPassword(login, current),
			http: userRequest(http.MethodPost, login+"/command/change-password", map[string]any{"currentPassword": current, "newPassword": password}),
			call: func(ctx context.Context, c users.UsersClient) error {
				_, err := c.ChangePassword(ctx, &users.ChangePasswordReq{Options: &users.ChangePasswordReq_Options{LoginName: login, CurrentPassword: current, NewPassword: password}})
				return err
			},
		}
	}
	if g.disabled {
		return userChange{
			name: "enabled", after: func(g *guest) { g.disabled = false }, http: userRequest(http.MethodPost, login+"/command/enable", nil),
			call: func(ctx context.Context, c users.UsersClient) error {
				_, err := c.Enable(ctx, &users.EnableReq{Options: &users.EnableReq_Options{LoginName: login}})
				return err
			},
		}
	}
	return userChange{
		name: "disabled", after: func(g *guest) { g.disabled = true }, http: userRequest(http.MethodPost, login+"/command/disable", nil),
		call: func(ctx context.Context, c users.UsersClient) error {
			_, err := c.Disable(ctx, &users.DisableReq{Options: &users.DisableReq_Options{LoginName: login}})
			return err
		},
	}
}

func (w *warden) groups(member bool) []string {
	if member {
		return []string{w.group()}
	}
	return []string{}
}

// change makes one change of a guest, and reports whether it was acknowledged. A guest after a
// change of unknown outcome is left alone: it may yet be done. Another one takes its place.
func (w *warden) change(ctx context.Context, g *guest) bool {
	g.mu.Lock()
	g.version++
	if g.login == "" {
		w.logins++
		g.login = fmt.Sprintf("%s%d", w.named, w.logins)
	}
	g.mu.Unlock()
	c := w.next(g)
	outcome := w.ask(ctx, &c)
	w.count.add(ofUsers, c.name+" "+written[outcome], 1)
	position, known := int64(0), false
	if outcome == done {
		position, known = w.end(ctx)
	}
	g.mu.Lock()
	defer g.mu.Unlock()
	g.version++
	if !known {
		g.login, g.there = "", false
		return false
	}
	c.after(g)
	g.position = position
	return true
}

// ask asks for a change until it is done or may be. An answer before that said that the node could
// not do it.
func (w *warden) ask(ctx context.Context, c *userChange) outcome {
	for again := false; ; again = true {
		result, odd := w.attempt(ctx, c)
		if odd != "" && !again { // A part of it may have been done before.
			w.find.add(kindUser, "a user cannot be %s: %s", c.name, odd)
		}
		if result != refused {
			return result
		}
		w.wander()
		if !w.rest(ctx, 200*time.Millisecond) {
			return pending
		}
	}
}

func (w *warden) attempt(ctx context.Context, c *userChange) (result outcome, odd string) {
	to := w.choose()
	if c.login != nil {
		to.Login = c.login
	}
	if w.rng.IntN(2) == 0 {
		a, err := w.do(ctx, to, c.http)
		switch result = judge(a, err); {
		case result == conflict && c.login != nil && a.Status == http.StatusUnauthorized:
			return refused, "" // The node may not have the password yet.
		case result == conflict:
			return pending, a.String()
		}
		return result, ""
	}
	ctx, conn, end, err := w.call(ctx, to)
	if err != nil {
		return refused, ""
	}
	defer end()
	s := status.Convert(c.call(ctx, users.NewUsersClient(conn)))
	if strings.HasPrefix(s.Message(), "Leader info") || c.login != nil && s.Code() == codes.Unauthenticated {
		return refused, ""
	}
	return judgeStatus(s, false, to)
}

// end is where the log ends, at the leader.
func (w *warden) end(ctx context.Context) (position int64, known bool) {
	for {
		a, err := w.do(ctx, w.choose(), read(allHead, true, 0))
		if err == nil && a.Status == http.StatusOK {
			p, err := client.ParsePage(a.Body)
			if err == nil {
				position, err = nextPosition(p)
			}
			return position, err == nil
		}
		w.wander()
		if !w.rest(ctx, 200*time.Millisecond) {
			return 0, false
		}
	}
}

// look has a node that has the last change of a guest say whether it lets the guest in, and
// whether it shows the guarded stream, and judges the answers while the guest does not change.
func (w *warden) look(ctx context.Context, v *worker, t Target, g *guest, p pass) {
	way := v.rng.IntN(3)
	want := p.enters
	if way == 2 {
		want = p.reads
	}
	began := w.hist.now()
	for wrong := 0; ; {
		end, err := logEnd(ctx, w.http, t, false)
		if err != nil || g.pass().version != p.version {
			w.count.add(ofUsers, "not looked at", 1)
			return
		}
		if end >= p.position {
			got, known := v.enter(ctx, t, p, w, way)
			if !known || g.pass().version != p.version {
				w.count.add(ofUsers, "not looked at", 1)
				return
			}
			if got == want {
				w.count.add(ofUsers, "looked at", 1)
				return
			}
			if wrong++; wrong == surprises {
				w.find.add(kindUser, "%s, which has the log up to %d, answers %t to %q by %s, and %t was right since %d", t.Name, end, got, p.login, [...]string{"http", "grpc", "http for the guarded stream"}[way], want, p.position)
				return
			}
		} else if w.hist.now()-began > int64(behindLimit) {
			w.count.add(ofUsers, "behind", 1)
			return
		} else {
			wrong = 0 // In a row, with the change.
		}
		if !w.rest(ctx, 300*time.Millisecond) {
			return
		}
	}
}

// newID makes the id of an event by chance.
func newID(rng *rand.Rand) string {
	var id uuid.UUID
	binary.LittleEndian.PutUint64(id[:], rng.Uint64())
	binary.LittleEndian.PutUint64(id[8:], rng.Uint64())
	return id.String()
}

// enter asks a node something as a guest. It is known whether the node has let the guest in when it
// says so, or that it has not.
func (v *worker) enter(ctx context.Context, t Target, p pass, w *warden, way int) (in, known bool) {
	t.Login = url.UserPassword(p.login, p.password)
	if way == 1 {
		ctx, conn, end, err := v.call(ctx, t)
		if err != nil {
			return false, false
		}
		defer end()
		stream, err := users.NewUsersClient(conn).Details(ctx, &users.DetailsReq{Options: &users.DetailsReq_Options{LoginName: p.login}})
		if err == nil {
			_, err = stream.Recv()
		}
		switch status.Code(err) {
		case codes.OK:
			return true, true
		case codes.Unauthenticated:
			return false, true
		}
		return false, false
	}
	stream := w.open()
	if way == 2 {
		stream = w.guarded()
	}
	a, err := exchange(ctx, v.http, t, read(client.StreamPath(stream)+"/head/backward/1", false, 0), v.timeout)
	if err != nil {
		return false, false
	}
	switch a.Status {
	case http.StatusOK:
		return true, true
	case http.StatusUnauthorized, http.StatusForbidden:
		return false, true
	}
	return false, false
}
