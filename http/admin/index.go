package admin

import (
	"context"
	"net/http"

	"github.com/annalsdb/annals/api"
	"github.com/annalsdb/annals/http/media"
	"github.com/annalsdb/annals/http/request"
)

// IndexHandlers answer about the index of what events say of themselves.
type IndexHandlers struct{ Index api.Index }

// indexDocument is the state of the index. Its names are part of the wire: do not change.
type indexDocument struct {
	State       string `json:"state"` // live or building
	Position    int64  `json:"position"`
	LogEnd      int64  `json:"logEnd"`
	Tables      int    `json:"tables"`
	Bytes       int64  `json:"bytes"`
	MemoryBytes int64  `json:"memoryBytes"`
}

// Status answers with the state of the index.
func (n *IndexHandlers) Status(_ context.Context, x *request.Request) error {
	s, err := n.Index.IndexStatus()
	if err != nil {
		return err
	}
	d := indexDocument{"live", s.Position, s.LogEnd, s.Tables, s.Bytes, s.MemoryBytes}
	if s.IsBuilding {
		d.State = "building"
	}
	return x.SendFreshJSON(&d)
}

// Rebuild has the index be made again.
func (n *IndexHandlers) Rebuild(_ context.Context, x *request.Request) error {
	if err := n.Index.RebuildIndex(); err != nil {
		return err
	}
	x.W.Header()[request.KeyContentType] = media.Text.ContentType
	x.Send(http.StatusAccepted, nil)
	return nil
}
