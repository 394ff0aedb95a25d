package bench

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"time"

	"github.com/kurrent-io/KurrentDB-Client-Go/protos/kurrentdb/protocols/v1/streams"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"
)

// maxMessageBytes bounds one message of an answer, as the official clients bound it.
const maxMessageBytes = 17 << 20

// ownConnection is the slot of a connection that no worker shares.
const ownConnection = -1

// connection is one connection for gRPC. Workers of a slot share it.
type connection struct {
	to   endpoint
	slot int
}

// connect returns the connection of a slot to a node.
func (d *dialing) connect(to endpoint, slot int) (*grpc.ClientConn, error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	key := connection{to, slot}
	if cc := d.conns[key]; cc != nil {
		return cc, nil
	}
	secret := insecure.NewCredentials()
	if to.secure {
		secret = credentials.NewTLS(d.tls)
	}
	options := []grpc.DialOption{
		grpc.WithTransportCredentials(secret), grpc.WithNoProxy(), grpc.WithDisableServiceConfig(),
		grpc.WithDefaultCallOptions(grpc.MaxCallRecvMsgSize(maxMessageBytes)),
	}
	if d.login != "" {
		options = append(options, grpc.WithPerRPCCredentials(d.login))
	}
	cc, err := grpc.NewClient(to.address, options...)
	if err != nil {
		return nil, &failure{"connect", err}
	}
	if d.conns == nil {
		d.conns = map[connection]*grpc.ClientConn{}
	}
	d.conns[key] = cc
	return cc, nil
}

// close gives up all connections for gRPC.
func (d *dialing) close() {
	d.mu.Lock()
	defer d.mu.Unlock()
	for _, cc := range d.conns {
		_ = cc.Close() // It fails when closed already.
	}
	d.conns = nil
}

// login is the credentials of every call, as the header has them.
type login string

func (l login) GetRequestMetadata(context.Context, ...string) (map[string]string, error) {
	return map[string]string{"authorization": string(l)}, nil
}

func (login) RequireTransportSecurity() bool { return false }

// atLeader is what a call carries that only the leader may answer.
var atLeader = metadata.Pairs("requires-leader", "true")

// failureOf is the status of a call that failed.
func failureOf(code codes.Code, text string) error {
	return &failure{"status " + code.String(), fmt.Errorf("%s: %s", code, text[:min(len(text), 200)])}
}

// call makes a call and returns its error in the driver's words. When the answer names the
// leader, the call and those to come go there, as with a redirect. try returns the trailer too.
func (c *sender) call(ctx context.Context, try func(streams.StreamsClient) (metadata.MD, error)) error {
	for n := 0; ; n++ {
		cc, err := c.how.connect(c.to, c.slot)
		if err != nil {
			return err
		}
		trailer, err := try(streams.NewStreamsClient(cc))
		if err == nil {
			return nil
		}
		leader, moved := leaderIn(trailer)
		switch {
		case !moved:
			if err = callFailure(ctx, err); !answered(err) {
				c.turn(c.home)
			}
			return err
		case n == maxRedirects:
			c.turn(c.home)
			return errTooManyRedirects
		}
		c.turn(endpoint{secure: c.to.secure, address: leader, host: leader})
		c.redirects++
	}
}

// leaderIn returns the address of the leader, when that is what a call failed for.
func leaderIn(trailer metadata.MD) (string, bool) {
	host, port := trailer.Get("leader-endpoint-host"), trailer.Get("leader-endpoint-port")
	if len(host) == 0 || len(port) == 0 {
		return "", false
	}
	return net.JoinHostPort(host[0], port[0]), true
}

// callFailure puts the error of a call, made with the context or with one below it, in the
// driver's words.
func callFailure(ctx context.Context, err error) error {
	s, ok := status.FromError(err)
	switch {
	case !ok:
		return err
	case ctx.Err() != nil:
		return errCut
	case s.Code() == codes.DeadlineExceeded, s.Code() == codes.Canceled:
		// The limit of a stay cancels it.
		return fmt.Errorf("%w: %s", os.ErrDeadlineExceeded, s.Message())
	}
	return failureOf(s.Code(), s.Message())
}

// stay is a call that stays open from one operation to the next: of BatchAppend, or a
// subscription. It ends with the phase.
type stay struct {
	ctx    context.Context
	cancel context.CancelFunc
	timer  *time.Timer // ends the call when an answer takes too long
	limit  time.Duration
}

func newStay(ctx context.Context, limit time.Duration) *stay {
	ctx, cancel := context.WithCancel(ctx)
	return &stay{ctx: ctx, cancel: cancel, timer: time.AfterFunc(limit, cancel), limit: limit}
}

// ended reports whether the call is over, or was never made.
func (s *stay) ended() bool { return s == nil || s.ctx.Err() != nil }

// end gives the call up.
func (s *stay) end() {
	if s != nil {
		s.timer.Stop()
		s.cancel()
	}
}

// within gives one operation its time.
func (s *stay) within(do func() error) error {
	s.timer.Reset(s.limit)
	defer s.timer.Stop()
	return do()
}

// errUnasked says that a call ended, or brought something, that no correct server does.
var errUnasked = errors.New("unexpected answer")
