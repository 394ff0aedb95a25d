package grpcapi

import (
	"cmp"
	"context"
	"errors"
	"slices"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"

	"github.com/annalsdb/annals/access"
	"github.com/annalsdb/annals/api"
	"github.com/annalsdb/annals/event"
	"github.com/annalsdb/annals/grpc/users"
)

// usersService manages users: the leader changes them, every node shows them.
type usersService struct {
	users.UnimplementedUsersServer
	s *Server
}

// change does something to a user, if nothing that must be given is empty. It sees all that was
// acknowledged before.
func (u *usersService) change(ctx context.Context, login string, passwords []string, do func() error) error {
	if login == "" {
		return invalid("the login name is missing")
	}
	if slices.Contains(passwords, "") {
		return invalid("the password is missing")
	}
	if err := u.s.opts.Cluster.Confirm(ctx); err != nil {
		return err
	}
	return onUser(login, do())
}

// onUser gives an error, which may be nil, the login of its user.
func onUser(login string, err error) error {
	switch {
	case err == nil:
		return nil
	case errors.Is(err, event.ErrWriteTimeout), errors.Is(err, event.ErrOutcomeUnknown), errors.Is(err, context.DeadlineExceeded):
		return &problem{codes.DeadlineExceeded, "Try again.", "user-conflict", []string{keyLoginName, login}}
	}
	return &named{err: err, login: login, stream: access.UserStream(login)}
}

// Create makes a user. That it exists with the same password is no matter.
func (u *usersService) Create(ctx context.Context, req *users.CreateReq) (*users.CreateResp, error) {
	o := req.GetOptions()
	a := access.NewAccount{Login: o.GetLoginName(), Password: o.GetPassword(), FullName: o.GetFullName(), Groups: append([]string{}, o.GetGroups()...)}
	return &users.CreateResp{}, u.change(ctx, a.Login, []string{a.Password}, func() error {
		if why := access.WrongLogin(a.Login); why != "" {
			return invalid("%s", why)
		}
		return u.s.opts.Users.Create(ctx, a)
	})
}

// Update replaces name and groups. A password that comes along is not looked at.
func (u *usersService) Update(ctx context.Context, req *users.UpdateReq) (*users.UpdateResp, error) {
	o := req.GetOptions()
	return &users.UpdateResp{}, u.change(ctx, o.GetLoginName(), nil, func() error {
		return u.s.opts.Users.Update(ctx, o.GetLoginName(), o.GetFullName(), append([]string{}, o.GetGroups()...))
	})
}

// Delete removes a user.
func (u *usersService) Delete(ctx context.Context, req *users.DeleteReq) (*users.DeleteResp, error) {
	login := req.GetOptions().GetLoginName()
	return &users.DeleteResp{}, u.change(ctx, login, nil, func() error { return u.s.opts.Users.Delete(ctx, login) })
}

// Enable lets a user in again.
func (u *usersService) Enable(ctx context.Context, req *users.EnableReq) (*users.EnableResp, error) {
	return &users.EnableResp{}, u.setDisabled(ctx, req.GetOptions().GetLoginName(), false)
}

// Disable locks a user out.
func (u *usersService) Disable(ctx context.Context, req *users.DisableReq) (*users.DisableResp, error) {
	return &users.DisableResp{}, u.setDisabled(ctx, req.GetOptions().GetLoginName(), true)
}

func (u *usersService) setDisabled(ctx context.Context, login string, disabled bool) error {
	return u.change(ctx, login, nil, func() error { return u.s.opts.Users.SetDisabled(ctx, login, disabled) })
}

// ChangePassword gives the caller another password.
func (u *usersService) ChangePassword(ctx context.Context, req *users.ChangePasswordReq) (*users.ChangePasswordResp, error) {
	o := req.GetOptions()
	login, current, password := o.GetLoginName(), o.GetCurrentPassword(), o.GetNewPassword()
	who := callOf(ctx).who()
	if err := u.s.opts.Permit(ctx, &api.ChangePassword.May, who, "", cmp.Or(login, who.Login)); err != nil {
		return nil, err
	}
	return &users.ChangePasswordResp{}, u.change(ctx, login, []string{current, password}, func() error {
		return u.s.opts.Users.ChangePassword(ctx, login, current, password)
	})
}

// ResetPassword gives a user another password.
func (u *usersService) ResetPassword(ctx context.Context, req *users.ResetPasswordReq) (*users.ResetPasswordResp, error) {
	login, password := req.GetOptions().GetLoginName(), req.GetOptions().GetNewPassword()
	return &users.ResetPasswordResp{}, u.change(ctx, login, []string{password}, func() error {
		return u.s.opts.Users.ResetPassword(ctx, login, password)
	})
}

// Details sends a user, or all of them, as this node knows them.
func (u *usersService) Details(req *users.DetailsReq, stream grpc.ServerStreamingServer[users.DetailsResp]) error {
	ctx, cancel := context.WithTimeout(stream.Context(), u.s.opts.ReadTimeout)
	defer cancel()
	login := req.GetOptions().GetLoginName()
	if err := u.s.opts.Permit(ctx, &api.ReadUser.May, callOf(ctx).who(), "", login); err != nil {
		return err
	}
	var accounts []access.Account
	var err error
	if login == "" {
		accounts, err = u.s.opts.Users.List(ctx)
	} else {
		accounts = make([]access.Account, 1)
		accounts[0], err = u.s.opts.Users.Get(ctx, login)
	}
	if err != nil {
		return onUser(login, err)
	}
	return sendAll(stream, accounts, userDetails)
}

// userDetails is a user as the wire has it.
func userDetails(a *access.Account) *users.DetailsResp {
	d := &users.DetailsResp_UserDetails{LoginName: a.Login, FullName: a.FullName, Groups: a.Groups, Disabled: a.Disabled}
	if !a.Updated.IsZero() {
		d.LastUpdated = &users.DetailsResp_UserDetails_DateTime{TicksSinceEpoch: ticksOf(a.Updated.UnixNano())}
	}
	return &users.DetailsResp{UserDetails: d}
}
