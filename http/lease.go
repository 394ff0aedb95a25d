package httpapi

import (
	"context"
	"time"

	"github.com/annalsdb/annals/access"
	"github.com/annalsdb/annals/api"
)

// hold begins to judge the caller again and again, because the request takes long.
func hold(x *exchange) *api.Lease {
	if x.lease == nil {
		x.lease = x.node.leases.Open(x.r.Context(), x.who, func(_ context.Context, who *access.Principal) error {
			return x.permit(&x.op.may, who)
		})
	}
	return x.lease
}

// end ends what hold and reads began.
func (x *exchange) end() {
	x.endReads()
	if x.lease != nil {
		x.lease.Close()
		x.lease = nil
	}
}

// judge returns event.ErrNotAuthorized when the caller has lost the right to the request.
func judge(x *exchange) error { return judgedBy(x, (*api.Lease).Judge) }

// check is judge, unless the caller was judged within the last second.
func check(x *exchange) error { return judgedBy(x, (*api.Lease).Check) }

func judgedBy(x *exchange, how func(*api.Lease, context.Context) error) error {
	l := hold(x)
	err := how(l, x.r.Context())
	x.who = *l.Who()
	return err
}

// readBody reads the body of the request, as takeBody does. Who sent it slowly is judged again
// before anything is done with it.
func (x *exchange) readBody(limit int64, tooLarge, notWhole error) ([]byte, error) {
	begun := time.Now()
	body, err := takeBody(x, limit, tooLarge, notWhole)
	if err == nil && time.Since(begun) >= api.JudgeEvery {
		err = judge(x)
	}
	return body, err
}
