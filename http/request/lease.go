package request

import (
	"context"
	"time"

	"github.com/annalsdb/annals/access"
	"github.com/annalsdb/annals/api"
)

// Hold begins to judge the caller again and again, because the request takes long.
func (x *Request) Hold() *api.Lease {
	if x.lease == nil {
		x.lease = x.Node.Leases.Open(x.R.Context(), x.Who, func(_ context.Context, who *access.Principal) error {
			return x.Permit(&x.Op.May, who)
		})
	}
	return x.lease
}

// End ends what Hold and reads began.
func (x *Request) End() {
	x.endReads()
	if x.lease != nil {
		x.lease.Close()
		x.lease = nil
	}
}

// Judge returns event.ErrNotAuthorized when the caller has lost the right to the request.
func (x *Request) Judge() error { return x.judgedBy((*api.Lease).Judge) }

// Check is judge, unless the caller was judged within the last second.
func (x *Request) Check() error { return x.judgedBy((*api.Lease).Check) }

func (x *Request) judgedBy(how func(*api.Lease, context.Context) error) error {
	l := x.Hold()
	err := how(l, x.R.Context())
	x.Who = *l.Who()
	return err
}

// ReadBody reads the body of the request, as Upload does. Who sent it slowly is judged again
// before anything is done with it.
func (x *Request) ReadBody(limit int64, tooLarge, notWhole error) ([]byte, error) {
	begun := time.Now()
	body, err := x.Upload.read(limit, tooLarge, notWhole)
	if err == nil && time.Since(begun) >= api.JudgeEvery {
		err = x.Judge()
	}
	return body, err
}
