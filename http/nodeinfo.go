package httpapi

import (
	"cmp"
	"context"
	"net/http"
	"slices"
	"strings"

	"github.com/annalsdb/annals/http/admin"
	"github.com/annalsdb/annals/http/outline"
	"github.com/annalsdb/annals/http/problem"
	"github.com/annalsdb/annals/http/request"
)

// SubsystemProjections is what the projections are called among the subsystems.
const SubsystemProjections = "Projections"

const pingText = "Ping request successfully handled"

// servePing answers that the node is there.
func servePing(_ context.Context, x *request.Request) error {
	return x.SendFields("TextMessage", outline.Text("text", pingText))
}

// infoDocument describes a node. Its names are part of the wire: do not change.
type infoDocument struct {
	Compatible      string `json:"esVersion"`
	Version         string `json:"version"`
	State           string `json:"state"`
	ProjectionsMode string `json:"projectionsMode"`
	Features        struct {
		Projections    bool `json:"projections"`
		UserManagement bool `json:"userManagement"`
		AtomPub        bool `json:"atomPub"`

		// What the web interface asks for before it offers it.
		LiveTail     bool `json:"liveTail"`
		NodeRelay    bool `json:"nodeRelay"`
		StreamNames  bool `json:"streamNames"`
		TimeLookup   bool `json:"timeLookup"`
		ParkedDesk   bool `json:"parkedDesk"`
		StatsHistory bool `json:"statsHistory"`
		Backup       bool `json:"backup"`
		Activity     bool `json:"activity"`
		MultiStream  bool `json:"multiStream"`
		Query        bool `json:"query"`
		Conditions   bool `json:"conditions"`
	} `json:"features"`
	UI struct {
		Title string `json:"title"`
		Tone  string `json:"tone"`
	} `json:"ui"`
	Authentication struct {
		Type       string `json:"type"`
		Properties any    `json:"properties"`
	} `json:"authentication"`
}

// nodeInfo answers with the node's version, features and state. It is JSON, whichever types are
// accepted.
func (s *Server) nodeInfo(_ context.Context, x *request.Request) error {
	d := infoDocument{Compatible: admin.CompatibleVersion, Version: s.opts.Version, ProjectionsMode: cmp.Or(s.opts.ProjectionsMode, "None")}
	d.Authentication.Type = "internal"
	if x.Node.Insecure {
		d.Authentication.Type = "insecure"
	}
	d.State = x.Node.Cluster.Role()
	if m := s.opts.Membership; m != nil {
		d.State = strings.ToLower(string(m.State()))
	}
	d.Features.Projections = slices.Contains(s.subsystems(), SubsystemProjections)
	d.Features.UserManagement = !x.Node.Insecure
	d.Features.AtomPub = !s.opts.DisableAtomPub
	d.Features.LiveTail, d.Features.TimeLookup, d.Features.StreamNames = d.Features.AtomPub, d.Features.AtomPub, d.Features.AtomPub
	d.Features.MultiStream, d.Features.Query, d.Features.Conditions = d.Features.AtomPub, d.Features.AtomPub, d.Features.AtomPub
	d.Features.StatsHistory = s.opts.Statistics != nil && !s.opts.DisableStats
	d.Features.ParkedDesk = s.opts.Subscriptions != nil
	d.Features.NodeRelay = s.opts.Membership != nil
	d.Features.Backup = s.opts.BackupRuns != nil && !s.opts.DisableAdminUI
	d.Features.Activity = s.opts.Activity != nil && d.Features.AtomPub
	d.UI.Title, d.UI.Tone = s.opts.WebTitle, cmp.Or(s.opts.WebTone, "None")
	return x.SendPlainJSON(&d)
}

// healthLive tells whether the node serves requests, be it reads alone.
func (s *Server) healthLive(_ context.Context, x *request.Request) error {
	if s.drained.Load() || !s.opts.Health.Serves() {
		return problem.NotReady
	}
	x.Send(http.StatusNoContent, nil)
	return nil
}

// optionOf is an option as it is shown. Its names are part of the wire: do not change.
type optionOf struct {
	Name        string   `json:"name"`
	Description string   `json:"description"`
	Group       string   `json:"group"`
	Value       string   `json:"value"`
	Possible    []string `json:"possibleValues"`
	Source      string   `json:"configurationSource"`
	Deprecation *string  `json:"deprecationMessage"`
}

// listOptions lists the options of the node. It is JSON, whichever types are accepted.
func (s *Server) listOptions(_ context.Context, x *request.Request) error {
	list := []optionOf{}
	for _, v := range s.opts.Settings() {
		o := optionOf{Name: v.Name, Description: v.Description, Group: v.Group, Value: v.Value, Possible: v.Possible, Source: v.Source}
		if v.Deprecation != "" {
			o.Deprecation = &v.Deprecation
		}
		list = append(list, o)
	}
	return x.SendPlainJSON(list)
}

// listSubsystems lists the parts of the node that may be switched off.
func (s *Server) listSubsystems(_ context.Context, x *request.Request) error {
	return x.SendPlainJSON(append([]string{}, s.subsystems()...))
}

func (s *Server) subsystems() []string {
	if s.opts.Subsystems == nil {
		return nil
	}
	return s.opts.Subsystems()
}
