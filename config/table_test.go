package config

import (
	"reflect"
	"slices"
	"strings"
	"testing"

	"github.com/annalsdb/annals/internal/check"
)

// TestTableAndStructAgree finds fields without option, options bound twice, and
// fields that are not named as their option is.
func TestTableAndStructAgree(t *testing.T) {
	c := Default()
	bound := map[any]string{}
	for _, o := range c.table() {
		if !o.hasEffect() {
			continue
		}
		if other, twice := bound[o.target.field]; twice {
			t.Errorf("%s and %s are bound to the same field", other, o.name)
		}
		bound[o.target.field] = o.name
	}
	v := reflect.ValueOf(c).Elem()
	for i := range v.NumField() {
		f := v.Type().Field(i)
		if !f.IsExported() {
			continue
		}
		name, ok := bound[v.Field(i).Addr().Interface()]
		delete(bound, v.Field(i).Addr().Interface())
		switch {
		case !ok:
			t.Errorf("field %s has no option", f.Name)
		case name != f.Name && name != f.Name+"Ms" && name != f.Name+"Sec":
			t.Errorf("field %s is bound to option %s", f.Name, name)
		}
	}
	for _, name := range bound {
		t.Errorf("option %s is bound to something that is no field", name)
	}
}

func TestTableIsSound(t *testing.T) {
	names := map[string]string{}
	for _, o := range Default().table() {
		for _, name := range append([]string{o.name}, o.synonyms...) {
			if other, twice := names[fold(name)]; twice {
				t.Errorf("the name %s of %s belongs to %s too", name, o.name, other)
			}
			names[fold(name)] = o.name
		}
		if groupTitles[o.group] == "" {
			t.Errorf("%s: unknown group %q", o.name, o.group)
		}
		if !strings.HasSuffix(o.doc, ".") {
			t.Errorf("%s: the description is no sentence: %q", o.name, o.doc)
		}
		if o.target.kind == KindEnum && !slices.Contains(o.target.possible, o.def) {
			t.Errorf("%s: the default %q is no possible value", o.name, o.def)
		}
		if o.hasEffect() && o.name != "Index" && o.target.get() != o.def {
			t.Errorf("%s: the default %q reads back as %q", o.name, o.def, o.target.get())
		}
	}
}

func TestSpellings(t *testing.T) {
	cases := []struct{ name, flag, env string }{
		{"ScavengeHistoryMaxAge", "scavenge-history-max-age", "STORE_SCAVENGE_HISTORY_MAX_AGE"},
		{"Db", "db", "STORE_DB"},
		{"DefaultOpsPassword", "default-ops-password", "STORE_DEFAULT_OPS_PASSWORD"},
	}
	for _, c := range cases {
		check.Equal(t, flagName(c.name), c.flag, "flag of", c.name)
		check.Equal(t, envName(c.name), c.env, "variable of", c.name)
		if fold(c.flag) != fold(c.name) || fold(strings.TrimPrefix(c.env, EnvPrefix)) != fold(c.name) {
			t.Errorf("%s: the spellings do not fold together", c.name)
		}
	}
}
