package leader

import (
	"context"
	"time"

	"github.com/annalsdb/annals/api"
	"github.com/annalsdb/annals/event"
	"github.com/annalsdb/annals/http/args"
	"github.com/annalsdb/annals/http/request"
)

// await waits for the position that the request names, if it does. It ends when the client goes,
// and with event.ErrNotReady when the server stops. A caller that waited for a second or longer,
// and lost the right to the request meanwhile, gets event.ErrNotAuthorized. Other errors are those
// of api.Node.Await.
func await(x *request.Request, of api.Awaited) error {
	position, atMost, ok := args.WaitFor(x.R)
	if !ok {
		return nil
	}
	w, err := api.ParseWait(position, atMost)
	if err != nil {
		return err
	}
	if of.Has(w) {
		return nil
	}
	ctx, cancel := context.WithCancelCause(x.R.Context())
	defer cancel(nil)
	defer context.AfterFunc(x.Node.Draining, func() { cancel(event.ErrNotReady) })()
	begun := time.Now()
	err = x.Node.Await(ctx, &x.Caller.Who, x.R.RemoteAddr, &of, w)
	if time.Since(begun) < api.JudgeEvery {
		return err
	}
	if refused := x.Caller.Judge(); refused != nil {
		return refused
	}
	return err
}
