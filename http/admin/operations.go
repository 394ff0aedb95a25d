// Package admin answers what operators ask: about users, the cluster, and this node alone.
package admin

import (
	"context"
	"net/http"
	"time"

	"github.com/annalsdb/annals/admin/doctor"
	"github.com/annalsdb/annals/api"
	"github.com/annalsdb/annals/http/media"
	"github.com/annalsdb/annals/http/outline"
	"github.com/annalsdb/annals/http/request"
)

// OperationHandlers answer what operators ask of this node alone.
type OperationHandlers struct {
	Operations api.Operations
	Doctor     func(context.Context) []doctor.Line
}

// Operations on this node alone are done here, on a leader and a follower alike.

// Shutdown stops the node. The answer is sent first, as the node cannot send it later.
func (n *OperationHandlers) Shutdown(_ context.Context, x *request.Request) error {
	h := x.W.Header()
	h["Connection"] = []string{"close"}
	h[request.KeyContentLength] = []string{"0"} // Or flushing would begin a body of unknown length.
	if err := sendAccepted(x); err != nil {
		return err
	}
	// A writer that cannot flush sends when this returns; the node waits for that too.
	_ = http.NewResponseController(x.W).Flush()
	x.Caller.Told("shutdown asked for")
	n.Operations.Shutdown()
	return nil
}

// Reload reads the configuration again. The result is in the log.
func (n *OperationHandlers) Reload(_ context.Context, x *request.Request) error {
	n.Operations.Reload()
	return sendAccepted(x)
}

// MergeIndexes merges the tables of the index.
func (n *OperationHandlers) MergeIndexes(_ context.Context, x *request.Request) error {
	id, err := n.Operations.MergeIndexes()
	if err != nil {
		return err
	}
	return x.SendFields("MergeIndexesResultDto", outline.Text("mergeIndexesId", id.String()))
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

// Login tells the caller who it is, by which interfaces check credentials. It is
// JSON, whichever types are accepted: not all clients that sign in so ask for it.
func Login(_ context.Context, x *request.Request) error {
	var d loginDocument
	d.Data.Login, d.Data.FullName = x.Caller.Who.Login, x.Caller.Who.Login
	d.Data.Groups = append([]string{}, x.Caller.Who.Groups...)
	d.Data.Updated = time.Now().UTC().Format(outline.TickTime)
	d.Success, d.Error = true, userSuccess
	return x.SendFreshJSON(&d)
}

// Examine answers with the problems of this node and their remedies. The request succeeds even if
// something is wrong.
func (n *OperationHandlers) Examine(_ context.Context, x *request.Request) error {
	lines := n.Doctor(x.Reads())
	if x.Media.Form == media.FormText {
		x.Out = x.Out[:0]
		for _, l := range lines {
			x.Out = append(append(x.Out, l.String()...), '\n')
		}
		return x.SendOut(x.Out)
	}
	o := x.NewOutline()
	name := "check"
	o.Root("checks", func() {
		if o.IsXML {
			name = "name"
		} else {
			o.Leaves(outline.Bool("ok", doctor.Wrong(lines) == 0), outline.Int("findings", int64(doctor.Wrong(lines))))
		}
		o.FlatList("checks", "check", len(lines), func(i int) {
			l := &lines[i]
			o.Leaves(outline.Text(name, l.Check), outline.Bool("ok", l.Fine()), outline.Text("text", l.Text), outline.Text("remedy", string(l.Remedy)))
		})
	})
	return x.SendOut(o.B)
}
