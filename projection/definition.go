package projection

import (
	"encoding/json"
	"fmt"
	"slices"
	"strings"

	"github.com/annalsdb/annals/projection/handler"
)

// definition is a projection as it is stored. Other versions read and write it: do not change.
type definition struct {
	HandlerType            string              `json:"handlerType"`
	Query                  string              `json:"query"`
	Mode                   Mode                `json:"mode"`
	Enabled                bool                `json:"enabled"`
	Deleting               bool                `json:"deleting"`
	Deleted                bool                `json:"deleted"`
	DeleteEmittedStreams   bool                `json:"deleteEmittedStreams"`
	DeleteCheckpointStream bool                `json:"deleteCheckpointStream"`
	DeleteStateStream      bool                `json:"deleteStateStream"`
	Source                 *handler.Definition `json:"sourceDefinition"`
	CheckpointsDisabled    bool                `json:"checkpointsDisabled"`
	Epoch                  int64               `json:"epoch"`
	Version                int64               `json:"version"`
	RunAs                  *Identity           `json:"runAs"`
	Config
	SubsystemVersion int `json:"projectionSubsystemVersion"`
	// States is the name that the streams of its checkpoints are of since it was rebuilt; empty:
	// its own. It is stored in the type of the handler: versions that do not know it do not know
	// the type either, and let the projection rest.
	States string `json:"-"`
	// Properties are the metadata of the event that has the definition. nil: it has none.
	Properties json.RawMessage `json:"-"`
}

// runAs returns the identity of a user as it is stored; nil without one.
func runAs(by Identity) *Identity {
	if by.Name == "" {
		return nil
	}
	return &Identity{Name: by.Name, Roles: append([]string{}, by.Roles...)}
}

// runsAs reports whether a projection runs as a user. A user of the name of the system account is
// not that account.
func (d *definition) runsAs(by Identity) bool {
	who := d.RunAs
	return who != nil && who.Name == by.Name && (who.Name != systemIdentity.Name || !slices.Equal(who.Roles, systemIdentity.Roles))
}

// systemIdentity is that of the system projections.
var systemIdentity = Identity{Name: "system", Roles: []string{"$admins"}, Operator: true}

// subsystemVersion stands in every definition. Do not change.
const subsystemVersion = 4

// newDefinition returns the definition of a new projection.
func newDefinition(c *Creation) definition {
	d := definition{
		HandlerType: c.Type, Query: c.Query, Mode: c.Mode, Enabled: c.Enabled, CheckpointsDisabled: c.Mode == Transient || c.Mode == OneTime && !c.Checkpoints,
		Epoch: -1, Config: DefaultConfig(), SubsystemVersion: subsystemVersion, Properties: c.Properties,
	}
	if d.HandlerType == "" {
		d.HandlerType = typeScript
	}
	d.EmitEnabled = c.Emit && c.Mode != Transient
	d.TrackEmittedStreams = c.TrackEmittedStreams && d.EmitEnabled
	d.RunAs = runAs(c.By)
	return d
}

// statesMark separates the type of the handler from States. Do not change.
const statesMark = " states="

// encode returns the definition as it is stored as a version. With forget that begins an epoch.
func (d definition) encode(version int64, forget bool) ([]byte, error) {
	d.Version = version
	if forget {
		d.Epoch = version
	}
	if d.States != "" {
		d.HandlerType += statesMark + d.States
	}
	return json.Marshal(&d)
}

func decodeDefinition(data []byte) (d definition, err error) {
	d = definition{Epoch: -1}
	if err := json.Unmarshal(data, &d); err != nil {
		return d, err
	}
	d.HandlerType, d.States, _ = strings.Cut(d.HandlerType, statesMark)
	switch d.Mode {
	case Continuous, OneTime:
		return d, nil
	}
	return d, fmt.Errorf("mode %q is not known", d.Mode)
}

// emitsWithoutCheckpoints reports whether the settings contradict each other: one
// that emits writes how far it came.
func (d *definition) emitsWithoutCheckpoints() bool {
	return d.Mode == OneTime && d.EmitEnabled && d.CheckpointsDisabled
}
