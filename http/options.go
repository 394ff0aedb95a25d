package httpapi

import (
	"github.com/annalsdb/annals/config"
	"github.com/annalsdb/annals/internal/jsontext"
)

var jsonOffer = newOffer(typeJSON, typeJSON)

// listOptions lists the options of the node. It is JSON, whichever types are accepted.
func listOptions(x *exchange) error {
	x.out = appendObjects(x.out[:0], "", x.s.opts.Settings(), optionFields)
	x.media = typeJSON
	x.ok()
	return nil
}

func optionFields(v *config.Value) []field {
	possible, deprecation := "null", "null"
	if v.Possible != nil {
		possible = string(appendStrings(nil, "    ", v.Possible))
	}
	if v.Deprecation != "" {
		deprecation = string(jsontext.AppendString(nil, v.Deprecation))
	}
	return []field{
		{json: "name", value: v.Name},
		{json: "description", value: v.Description},
		{json: "group", value: v.Group},
		{json: "value", value: v.Value},
		{json: "possibleValues", value: possible, bare: true},
		{json: "configurationSource", value: v.Source},
		{json: "deprecationMessage", value: deprecation, bare: true},
	}
}

// listSubsystems lists the parts of the node that may be switched off.
func listSubsystems(x *exchange) error {
	x.out = appendStrings(x.out[:0], "", x.s.subsystems())
	x.ok()
	return nil
}

func (s *Server) subsystems() []string {
	if s.opts.Subsystems == nil {
		return nil
	}
	return s.opts.Subsystems()
}

// appendStrings appends an array of strings that begins on an indented line.
func appendStrings(b []byte, indent string, list []string) []byte {
	if len(list) == 0 {
		return append(b, "[]"...)
	}
	b = append(b, '[')
	for i, s := range list {
		if i > 0 {
			b = append(b, ',')
		}
		b = append(b, "\n  "+indent...)
		b = jsontext.AppendString(b, s)
	}
	return append(b, "\n"+indent+"]"...)
}
