package httpapi

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
