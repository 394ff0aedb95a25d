package httpapi

import (
	"cmp"
	"net/http"
	"slices"
	"strings"
)

// CompatibleRelease is the release of EventStoreDB whose clients and web interface work with this
// server. They read it to find out which features they can use.
const CompatibleRelease = "23.10.0"

// compatibleVersion is that release as HTTP tells it.
const compatibleVersion = CompatibleRelease + ".0"

// SubsystemProjections is what the projections are called among the subsystems.
const SubsystemProjections = "Projections"

const pingText = "Ping request successfully handled"

// servePing answers that the node is there.
func servePing(x *exchange) error {
	return sendFields(x, "TextMessage", textField("text", pingText))
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
func nodeInfo(x *exchange) error {
	d := infoDocument{Compatible: compatibleVersion, Version: x.s.opts.Version, ProjectionsMode: cmp.Or(x.s.opts.ProjectionsMode, "None")}
	d.Authentication.Type = "internal"
	if x.s.opts.Insecure {
		d.Authentication.Type = "insecure"
	}
	d.State = x.s.cluster.Role()
	if m := x.s.opts.Membership; m != nil {
		d.State = strings.ToLower(string(m.State()))
	}
	d.Features.Projections = slices.Contains(x.s.subsystems(), SubsystemProjections)
	d.Features.UserManagement = !x.s.opts.Insecure
	d.Features.AtomPub = !x.s.opts.DisableAtomPub
	d.Features.LiveTail, d.Features.TimeLookup, d.Features.StreamNames = d.Features.AtomPub, d.Features.AtomPub, d.Features.AtomPub
	d.Features.StatsHistory = x.s.opts.Statistics != nil && !x.s.opts.DisableStats
	d.Features.ParkedDesk = x.s.opts.Subscriptions != nil
	d.Features.NodeRelay = x.s.opts.Membership != nil
	d.Features.Backup = x.s.opts.BackupRuns != nil && !x.s.opts.DisableAdminUI
	d.Features.Activity = x.s.opts.Activity != nil && d.Features.AtomPub
	d.UI.Title, d.UI.Tone = x.s.opts.WebTitle, cmp.Or(x.s.opts.WebTone, "None")
	return sendPlainJSON(x, &d)
}

// healthLive tells whether the node serves requests, be it reads alone.
func healthLive(x *exchange) error {
	if x.s.drained.Load() || !x.s.cluster.Serves() {
		return problemNotReady
	}
	x.send(http.StatusNoContent, nil)
	return nil
}

// webInterface sends a browser to the web interface.
func webInterface(x *exchange) error {
	return moved(x, string(x.origin())+"/web/index.html")
}

// moved sends a browser elsewhere.
func moved(x *exchange, address string) error {
	x.w.Header()[keyLocation] = []string{address}
	x.text(http.StatusFound, "Moved")
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
func listOptions(x *exchange) error {
	list := []optionOf{}
	for _, v := range x.s.opts.Settings() {
		o := optionOf{Name: v.Name, Description: v.Description, Group: v.Group, Value: v.Value, Possible: v.Possible, Source: v.Source}
		if v.Deprecation != "" {
			o.Deprecation = &v.Deprecation
		}
		list = append(list, o)
	}
	return sendPlainJSON(x, list)
}

// listSubsystems lists the parts of the node that may be switched off.
func listSubsystems(x *exchange) error {
	return sendPlainJSON(x, append([]string{}, x.s.subsystems()...))
}

func (s *Server) subsystems() []string {
	if s.opts.Subsystems == nil {
		return nil
	}
	return s.opts.Subsystems()
}
