package config

// mask stands for the value of a sensitive option.
const mask = "********"

// Value is one option as an operator sees it.
type Value struct {
	Name        string
	Description string
	Group       string
	Kind        Kind
	// Value is what the strongest source said, as it said it, or the default.
	// Booleans are True and False by default. Sensitive values are masked.
	Value string
	// Possible lists the values of an enumeration; it is nil for other kinds.
	Possible []string
	// Source is one of <DEFAULT>, Yaml, Environment Variables and Command Line.
	Source string
	// Deprecation says what to do instead of setting the option. Mostly it is empty.
	Deprecation string
}

// Values returns every known option, those without effect included, in the order of the table.
func (c *Config) Values() []Value {
	table := c.table()
	values := make([]Value, len(table))
	for i := range table {
		o := &table[i]
		v := Value{
			Name:        o.name,
			Description: o.description(),
			Group:       o.group,
			Kind:        o.target.kind,
			Possible:    o.target.possible,
			Source:      sourceDefault.String(),
			Deprecation: o.deprecated,
		}
		s, given := c.given[o.name]
		if given {
			v.Value, v.Source = s.value, s.source.String()
			if fold(s.name) != fold(o.name) {
				v.Deprecation = s.name + " is deprecated, use " + o.name + "."
			}
		} else {
			v.Value = c.current(o)
		}
		if o.sensitive { // Also when empty: that none is set is what the source says.
			v.Value = mask
		}
		values[i] = v
	}
	return values
}

// current returns the text of an option's value. A field that was set after
// loading, as tests do, shows what it holds now.
func (c *Config) current(o *option) string {
	if o.hasEffect() {
		return o.target.get()
	}
	if s, ok := c.given[o.name]; ok {
		return s.value
	}
	return o.def
}
