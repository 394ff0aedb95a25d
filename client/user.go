package client

import (
	"context"
	"net/http"
	"net/url"
	"time"
)

// User is a user of the cluster.
type User struct {
	c     *Client
	login string
}

// User returns a user, who need not exist yet.
func (c *Client) User(login string) *User { return &User{c, login} }

// UserInfo is what the cluster says of a user.
type UserInfo struct {
	Login    string    `json:"loginName"`
	FullName string    `json:"fullName"`
	Groups   []string  `json:"groups"`
	Disabled bool      `json:"disabled"`
	Changed  time.Time `json:"dateLastUpdated"`
}

// NewUser is a user to make.
type NewUser struct {
	FullName string
	Password string
	Groups   []string // $admins and $ops, or ones of your own
}

// Create makes the user. It is ErrExists if there is one with another password; with the same one
// nothing changes.
func (u *User) Create(ctx context.Context, n NewUser) error {
	return u.send(ctx, http.MethodPost, "/users/", map[string]any{
		"loginName": u.login, "fullName": n.FullName, "password": n.Password, "groups": groups(n.Groups),
	})
}

// Update replaces the full name and the groups.
func (u *User) Update(ctx context.Context, fullName string, in ...string) error {
	return u.send(ctx, http.MethodPut, u.path(""), map[string]any{"fullName": fullName, "groups": groups(in)})
}

// groups is a list that is not null.
func groups(list []string) []string { return append([]string{}, list...) }

// SetPassword gives the user another password, as an administrator may.
func (u *User) SetPassword(ctx context.Context, password string) error {
	return u.send(ctx, http.MethodPost, u.path("/command/reset-password"), map[string]any{"newPassword": password})
}

// ChangePassword changes the password of the user, with whose current password it asks. It is not
// repeated when it may have been done. Options.Login of the client stays as it is.
func (u *User) ChangePassword(ctx context.Context, current, password string) error {
	q, err := jsonRequest(http.MethodPost, u.path("/command/change-password"), map[string]any{"currentPassword": current, "newPassword": password})
	if err != nil {
		return err
	}
	q.Login = url.UserPassword(u.login, current)
	_, _, err = u.c.sender.insist(ctx, q, undone)
	return err
}

// Enable lets the user in again.
func (u *User) Enable(ctx context.Context) error {
	return u.send(ctx, http.MethodPost, u.path("/command/enable"), nil)
}

// Disable refuses the user until enabled again.
func (u *User) Disable(ctx context.Context) error {
	return u.send(ctx, http.MethodPost, u.path("/command/disable"), nil)
}

// Delete removes the user.
func (u *User) Delete(ctx context.Context) error {
	return u.send(ctx, http.MethodDelete, u.path(""), nil, http.StatusNotFound)
}

// send sends a command, which is refused with one of some statuses when it was done before.
func (u *User) send(ctx context.Context, method, path string, in any, done ...int) error {
	q, err := jsonRequest(method, path, in)
	if err != nil {
		return err
	}
	return u.c.sender.finish(ctx, q, done...)
}

// Info returns what the cluster says of the user.
func (u *User) Info(ctx context.Context) (UserInfo, error) {
	return userInfo[UserInfo](ctx, u.c, u.path(""))
}

// Users returns all users.
func (c *Client) Users(ctx context.Context) ([]UserInfo, error) {
	return userInfo[[]UserInfo](ctx, c, "/users/")
}

// CurrentUser returns the user as whom the client asks.
func (c *Client) CurrentUser(ctx context.Context) (UserInfo, error) {
	return userInfo[UserInfo](ctx, c, "/users/$current")
}

func userInfo[T any](ctx context.Context, c *Client, path string) (T, error) {
	var envelope struct {
		Data T `json:"data"`
	}
	err := c.Call(ctx, http.MethodGet, path, nil, &envelope)
	return envelope.Data, err
}

func (u *User) path(below string) string { return "/users/" + url.PathEscape(u.login) + below }
