package projection

import (
	"encoding/json"

	"github.com/annalsdb/annals/projection/handler"
)

// sourceDefinition is a definition as it is served and stored: do not change.
type sourceDefinition struct {
	AllEvents              bool          `json:"allEvents"`
	AllStreams             bool          `json:"allStreams"`
	ByStream               bool          `json:"byStream"`
	ByCustomPartitions     bool          `json:"byCustomPartitions"`
	Categories             []string      `json:"categories"`
	Events                 []string      `json:"events"`
	Streams                []string      `json:"streams"`
	LimitingCommitPosition *int64        `json:"limitingCommitPosition"`
	Options                sourceOptions `json:"options"`
}

type sourceOptions struct {
	ResultStreamName                 *string `json:"resultStreamName"`
	PartitionResultStreamNamePattern *string `json:"partitionResultStreamNamePattern"`
	ReorderEvents                    bool    `json:"reorderEvents"`
	ProcessingLag                    int     `json:"processingLag"`
	IsBiState                        bool    `json:"isBiState"`
	DefinesStateTransform            bool    `json:"definesStateTransform"`
	ProducesResults                  bool    `json:"producesResults"`
	DefinesFold                      bool    `json:"definesFold"`
	HandlesDeletedNotifications      bool    `json:"handlesDeletedNotifications"`
	IncludeLinks                     bool    `json:"includeLinks"`
}

// DefinitionJSON returns a definition as it is served and stored; null without one.
func DefinitionJSON(d *handler.Definition) json.RawMessage {
	if d == nil {
		return json.RawMessage("null")
	}
	text, err := json.Marshal(sourceOf(d))
	if err != nil { // Nothing in it can fail.
		panic(err)
	}
	return text
}

func sourceOf(d *handler.Definition) *sourceDefinition {
	if d == nil {
		return nil
	}
	some := func(list []string) []string {
		if list == nil {
			return []string{}
		}
		return list
	}
	named := func(text string) *string {
		if text == "" {
			return nil
		}
		return &text
	}
	return &sourceDefinition{
		AllEvents: d.AllEvents, AllStreams: d.AllStreams, ByStream: d.ByStreams, ByCustomPartitions: d.ByCustomPartitions,
		Categories: some(d.Categories), Events: some(d.Events), Streams: some(d.Streams),
		Options: sourceOptions{
			ResultStreamName: named(d.ResultStream), PartitionResultStreamNamePattern: named(d.PartitionResultPattern),
			ReorderEvents: d.ReorderEvents, ProcessingLag: d.ProcessingLagMs, IsBiState: d.IsBiState,
			DefinesStateTransform: d.DefinesStateTransform, ProducesResults: d.ProducesResults, DefinesFold: d.DefinesFold,
			HandlesDeletedNotifications: d.HandlesDeleted, IncludeLinks: d.IncludeLinks,
		},
	}
}

func (s *sourceDefinition) definition() *handler.Definition {
	if s == nil {
		return nil
	}
	text := func(p *string) string {
		if p == nil {
			return ""
		}
		return *p
	}
	return &handler.Definition{
		AllEvents: s.AllEvents, AllStreams: s.AllStreams, ByStreams: s.ByStream, ByCustomPartitions: s.ByCustomPartitions,
		Categories: s.Categories, Events: s.Events, Streams: s.Streams,
		Options: handler.Options{
			ResultStream: text(s.Options.ResultStreamName), PartitionResultPattern: text(s.Options.PartitionResultStreamNamePattern),
			ReorderEvents: s.Options.ReorderEvents, ProcessingLagMs: s.Options.ProcessingLag, IsBiState: s.Options.IsBiState,
			DefinesStateTransform: s.Options.DefinesStateTransform, ProducesResults: s.Options.ProducesResults,
			DefinesFold: s.Options.DefinesFold, HandlesDeleted: s.Options.HandlesDeletedNotifications, IncludeLinks: s.Options.IncludeLinks,
		},
	}
}
