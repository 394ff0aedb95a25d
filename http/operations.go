package httpapi

import (
	"context"
	"net/http"
	"time"

	"github.com/annalsdb/annals/admin/doctor"
	"github.com/annalsdb/annals/api"
	"github.com/annalsdb/annals/internal/logkey"
)

// Operations on this node alone are done here, on a leader and a follower alike.

// shutdownNode stops the node. The answer is sent first, as the node cannot send it later.
func (n *operationHandlers) shutdownNode(_ context.Context, x *exchange) error {
	h := x.w.Header()
	h["Connection"] = []string{"close"}
	h[keyContentLength] = []string{"0"} // Or flushing would begin a body of unknown length.
	if err := sendAccepted(x); err != nil {
		return err
	}
	// A writer that cannot flush sends when this returns; the node waits for that too.
	_ = http.NewResponseController(x.w).Flush()
	x.node.log.Info("shutdown asked for", logkey.Login, api.Printable(x.who.Login), logkey.Remote, x.r.RemoteAddr)
	n.operations.Shutdown()
	return nil
}

// reloadConfig reads the configuration again. The result is in the log.
func (n *operationHandlers) reloadConfig(_ context.Context, x *exchange) error {
	n.operations.Reload()
	return sendAccepted(x)
}

// mergeIndexes merges the tables of the index.
func (n *operationHandlers) mergeIndexes(_ context.Context, x *exchange) error {
	id, err := n.operations.MergeIndexes()
	if err != nil {
		return err
	}
	return sendFields(x, "MergeIndexesResultDto", textField("mergeIndexesId", id.String()))
}

// loginDocument is who the caller is. Its names are part of the wire: do not change.
type loginDocument struct {
	Data struct {
		Login    string   `json:"loginName"`
		FullName string   `json:"fullName"`
		Groups   []string `json:"groups"`
		Updated  string   `json:"dateLastUpdated"`
	} `json:"data"`
	Success bool   `json:"success"`
	Error   string `json:"error"`
}

// serveLogin tells the caller who it is, by which interfaces check credentials. It is
// JSON, whichever types are accepted: not all clients that sign in so ask for it.
func serveLogin(_ context.Context, x *exchange) error {
	var d loginDocument
	d.Data.Login, d.Data.FullName = x.who.Login, x.who.Login
	d.Data.Groups = append([]string{}, x.who.Groups...)
	d.Data.Updated = time.Now().UTC().Format(tickTime)
	d.Success, d.Error = true, userSuccess
	return sendFreshJSON(x, &d)
}

// examine answers with the problems of this node and their remedies. The request succeeds even if
// something is wrong.
func (n *operationHandlers) examine(ctx context.Context, x *exchange) error {
	ctx = x.reads()
	lines := n.doctor(ctx)
	if x.media.form == formText {
		x.out = x.out[:0]
		for _, l := range lines {
			x.out = append(append(x.out, l.String()...), '\n')
		}
		return sendOut(x, x.out)
	}
	o := newOutline(x)
	name := "check"
	o.root("checks", func() {
		if o.isXML {
			name = "name"
		} else {
			o.leaves(boolField("ok", doctor.Wrong(lines) == 0), intField("findings", int64(doctor.Wrong(lines))))
		}
		o.flatList("checks", "check", len(lines), func(i int) {
			l := &lines[i]
			o.leaves(textField(name, l.Check), boolField("ok", l.Fine()), textField("text", l.Text), textField("remedy", string(l.Remedy)))
		})
	})
	return sendOut(x, o.b)
}
