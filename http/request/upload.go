package request

import (
	"io"
	"net/http"
	"time"

	"github.com/hashicorp/go-hclog"

	"github.com/annalsdb/annals/api"
	"github.com/annalsdb/annals/internal/http1"
	"github.com/annalsdb/annals/internal/logkey"
)

// A client that sends all of its request before it looks for an answer gets none when the
// connection is closed on it, and takes a refusal for a broken node. So the rest of a body is read
// and thrown away after the answer, within bounds. Of HTTP/2 the same holds for the reset of a
// stream.
const (
	// smallRest is what connections of HTTP/1 read by themselves: net/http does as much.
	smallRest   = http1.MaxBody
	lingerBytes = 4 * MaxBody
	lingerTime  = 30 * time.Second

	// A client of HTTP/2 may stop sending when it sees a refusal. It then waits for the end of the
	// answer, which comes when the server stops reading. So lingerPart must come within
	// lingerPause.
	lingerPart  = 16 << 10
	lingerPause = 250 * time.Millisecond
)

// Upload is the body of a request on its way from the client. Its memory is claimed before it is
// allocated, and every reader of the body says here how far it got: something is left of the body
// until it was read to its end, or another reader took it over for good.
type Upload struct {
	r      *http.Request
	claim  *api.Claim
	from   *Caller
	begun  bool // someone may have read of it
	isDone bool // none of it is left
}

// Taken says that another reader took the body over, and whether it leaves nothing of it.
func (u *Upload) Taken(isDone bool) { u.begun, u.isDone = true, isDone }

// isLeft reports whether the client may still be sending a body that the server does not read. A
// client that waits for 100 Continue is not.
func (u *Upload) isLeft() bool {
	n := u.r.ContentLength
	if u.isDone || n == 0 || 0 < n && n <= smallRest && u.r.ProtoMajor == 1 {
		return false
	}
	return u.begun || u.r.Header[keyExpect] == nil
}

// grown returns the body so far with room for more.
func (u *Upload) grown(b []byte, limit int64) ([]byte, error) {
	size, n := int64(cap(b)), u.r.ContentLength
	switch {
	case size == 0:
		size = firstBody
	case n >= 0:
		size *= bodyGrowth
	default:
		size *= slowGrowth
	}
	if n >= 0 {
		limit = n
	}
	size = min(size, limit)
	if err := u.claim.Grow(u.r.Context(), size-int64(cap(b))); err != nil {
		return nil, err
	}
	return append(make([]byte, 0, size), b...), nil
}

// Read reads the body, which the write keeps. Who sent it slowly is judged again before anything is
// done with it.
func (u *Upload) Read(limit int64, tooLarge, notWhole error) ([]byte, error) {
	begun := time.Now()
	body, err := u.read(limit, tooLarge, notWhole)
	if err == nil && time.Since(begun) >= api.JudgeEvery {
		err = u.from.Judge()
	}
	return body, err
}

// read reads the body. No more than the limit is ever read or allocated,
// and no more than has come by much. A body beyond the limit and one that is not whole are two of
// the errors; event.ErrNoRoom is another.
func (u *Upload) read(limit int64, tooLarge, notWhole error) ([]byte, error) {
	if u.r.ContentLength > limit {
		return nil, tooLarge
	}
	if u.r.ContentLength == 0 {
		return nil, nil
	}
	u.begun, u.isDone = true, false
	b, err := u.grown(nil, limit+1)
	if err != nil {
		return nil, err
	}
	for {
		got, err := u.r.Body.Read(b[len(b):cap(b)])
		b = b[:len(b)+got]
		switch {
		case int64(len(b)) > limit:
			return nil, tooLarge
		case err == io.EOF && u.r.ContentLength < 0, int64(len(b)) == u.r.ContentLength:
			u.isDone = true
			return b, nil
		case err != nil:
			return nil, notWhole
		}
		if len(b) == cap(b) {
			if b, err = u.grown(b, limit+1); err != nil {
				return nil, err
			}
		}
	}
}

// Linger reads the rest of the body after the answer. The answer goes out first, so a client that
// reads while it sends need not send all of it.
func (u *Upload) Linger(w http.ResponseWriter, logger hclog.Logger) {
	if !u.isLeft() {
		return
	}
	c := http.NewResponseController(w)
	err := c.SetReadDeadline(time.Now().Add(lingerTime))
	if err == nil {
		err = c.Flush()
	}
	if err == nil && u.r.ProtoMajor == 1 {
		_, err = io.CopyN(io.Discard, u.r.Body, lingerBytes)
	}
	for end, left := time.Now().Add(lingerTime), lingerBytes; err == nil && u.r.ProtoMajor != 1 && left > 0 && time.Now().Before(end); left -= lingerPart {
		if err = c.SetReadDeadline(time.Now().Add(lingerPause)); err == nil {
			_, err = io.CopyN(io.Discard, u.r.Body, lingerPart)
		}
	}
	if err != nil && err != io.EOF {
		logger.Debug("the rest of a request body could not be read", "path", u.r.URL.Path, logkey.Error, err)
	}
}
