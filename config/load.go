package config

import (
	"cmp"
	"errors"
	"fmt"
	"io/fs"
	"path/filepath"
	"slices"
	"strings"
)

// The files that are read when none is named: the first that exists. The
// second is where installations of the reference have theirs.
const (
	defaultConfigFile   = "/etc/annals/annals.conf"
	referenceConfigFile = "/etc/eventstore/eventstore.conf"
	defaultRootsPath    = "/etc/ssl/certs"
)

// source is where a value came from. The greater source is the stronger one.
type source int

const (
	sourceDefault source = iota
	sourceYaml
	sourceKurrentEnvironment
	sourceEventStoreEnvironment
	sourceEnvironment
	sourceCommandLine
)

// String returns the name used by /info/options.
func (s source) String() string {
	switch {
	case s == sourceYaml:
		return "Yaml"
	case s.environment():
		return "Environment Variables"
	case s == sourceCommandLine:
		return "Command Line"
	default:
		return "<DEFAULT>"
	}
}

// environment says whether the source is a variable of whatever prefix.
func (s source) environment() bool {
	return s == sourceEnvironment || s == sourceEventStoreEnvironment || s == sourceKurrentEnvironment
}

// setting is one value as a source gave it. The name is spelled as there.
type setting struct {
	name   string
	value  string
	source source
}

// Load reads the options from the arguments after the command's name, the
// environment in the form of os.Environ, and the YAML file that these name. The
// error holds one line for each thing that is wrong. When the arguments ask for
// help or the version, nothing else is looked at.
func Load(args, environ []string, readFile func(string) ([]byte, error)) (*Config, error) {
	return newLoader().load(args, environ, readFile, []string{defaultConfigFile, referenceConfigFile})
}

// LoadRefusing reads the options as Load does, for a command that decides some of
// them itself: refused are these by name, each with what to say to who sets one.
// A file is read only if it is named: the machine's default one is that of its node.
func LoadRefusing(args, environ []string, readFile func(string) ([]byte, error), refused map[string]string) (*Config, error) {
	l := newLoader()
	l.refused = refused
	return l.load(args, environ, readFile, nil)
}

func (l *loader) load(args, environ []string, readFile func(string) ([]byte, error), defaultFiles []string) (*Config, error) {
	fromArgs := l.parseArgs(args)
	l.resolve(fromArgs)
	if l.asksFor("Help") {
		return &Config{Help: true}, nil
	}
	if l.asksFor("Version") {
		return &Config{Version: true}, nil
	}
	l.resolve(l.parseEnviron(environ))

	content, err := l.readConfigFile(readFile, defaultFiles)
	if err != nil {
		l.problem(err)
	} else if content != nil {
		fromFile, err := parseYAML(content)
		if err != nil {
			l.problem(fmt.Errorf("configuration file %s: %w", l.c.file, err))
		} else {
			l.resolve(fromFile)
		}
	}
	l.refuse()
	l.apply()
	if len(l.problems) == 0 {
		if err := l.c.Validate(); err != nil {
			l.problem(err)
		}
	}
	if len(l.problems) > 0 {
		return nil, errors.Join(l.problems...)
	}
	return l.c, nil
}

// loader gathers settings until all sources are known.
type loader struct {
	c        *Config
	table    []option
	byName   map[string]*option // by folded name and folded synonym
	refused  map[string]string  // options that must not be set, and why
	unknown  []setting
	problems []error
}

func newLoader() *loader {
	l := &loader{c: Default(), byName: map[string]*option{}}
	l.c.given = map[string]setting{}
	l.table = l.c.table()
	for i := range l.table {
		o := &l.table[i]
		l.byName[fold(o.name)] = o
		for _, s := range o.synonyms {
			l.byName[fold(s)] = o
		}
	}
	return l
}

func (l *loader) problem(err error) { l.problems = append(l.problems, err) }

func (l *loader) lookup(name string) *option { return l.byName[fold(name)] }

func (l *loader) asksFor(name string) bool {
	s, ok := l.c.given[name]
	on, err := parseBool(s.value)
	return ok && err == nil && on
}

// resolve keeps the strongest setting of each option. Within one source the
// later one wins, but a former name never wins over the present one.
func (l *loader) resolve(settings []setting) {
	for _, s := range settings {
		o := l.lookup(s.name)
		if o == nil {
			l.unknown = append(l.unknown, s)
			continue
		}
		if o.environmentOnly && !s.source.environment() {
			l.problem(fmt.Errorf("%s can only be set by the environment variable %s", o.name, envName(o.name)))
			continue
		}
		if o.notInFile && s.source == sourceYaml {
			l.problem(fmt.Errorf("%s cannot be set in the configuration file", o.name))
			continue
		}
		if !strings.EqualFold(fold(s.name), fold(o.name)) {
			l.warnOnce(fmt.Sprintf("option %s (%s) is deprecated, use %s", s.name, s.source, o.name))
		}
		had, ok := l.c.given[o.name]
		weaker := ok && had.source > s.source
		synonymAfterName := ok && had.source == s.source && fold(had.name) == fold(o.name) && fold(s.name) != fold(o.name)
		if !weaker && !synonymAfterName {
			l.c.given[o.name] = s
		}
	}
}

func (l *loader) warnOnce(line string) {
	if !slices.Contains(l.c.warnings, line) {
		l.c.warnings = append(l.c.warnings, line)
	}
}

// refuse reports the options that must not be set, before others are judged by them.
func (l *loader) refuse() {
	for i := range l.table {
		name := l.table[i].name
		why, refused := l.refused[name]
		if s, ok := l.c.given[name]; ok && refused {
			l.problem(fmt.Errorf("option %s (%s) cannot be set here: %s", s.name, s.source, why))
			delete(l.c.given, name)
		}
	}
}

// readConfigFile reads the file that the options name, or one of the default
// ones, which may be missing.
func (l *loader) readConfigFile(readFile func(string) ([]byte, error), defaultFiles []string) ([]byte, error) {
	if s, ok := l.c.given["Config"]; ok {
		content, err := readFile(s.value)
		if err != nil {
			return nil, fmt.Errorf("configuration file: %w", err)
		}
		l.c.file = s.value
		return content, nil
	}
	for _, name := range defaultFiles {
		content, err := readFile(name)
		switch {
		case err == nil:
			l.c.file = name
			return content, nil
		case !errors.Is(err, fs.ErrNotExist):
			return nil, fmt.Errorf("configuration file: %w", err)
		}
	}
	return nil, nil
}

// apply turns the gathered texts into values and reports what cannot be one.
func (l *loader) apply() {
	l.c.Index = ""
	for i := range l.table {
		o := &l.table[i]
		s, ok := l.c.given[o.name]
		if !ok {
			continue
		}
		if o.environmentOnly && s.value == "" {
			l.problem(fmt.Errorf("%s must not be empty", s.name))
			continue
		}
		if err := o.target.set(s.value); err != nil {
			if o.sensitive {
				err = errors.New("not a valid value")
			}
			l.problem(fmt.Errorf("option %s (%s): %w", s.name, s.source, err))
			continue
		}
		switch {
		case o.deprecated != "":
			l.warnOnce(o.deprecated)
		case !o.hasEffect():
			l.warnOnce(fmt.Sprintf("option %s (%s) has no effect", o.name, s.source))
		case o.lacks != "" && !o.refused:
			l.warnOnce(fmt.Sprintf("option %s (%s) has no effect: %s", o.name, s.source, o.lacks))
		}
	}
	if l.c.Dev {
		l.develop()
	}
	if l.c.Index == "" {
		l.c.Index = filepath.Join(l.c.Db, "index")
	}
	l.reportUnknown()
}

// develop gives options the defaults that they have with Dev.
func (l *loader) develop() {
	if _, ok := l.c.given["RunProjections"]; !ok {
		l.c.RunProjections = ProjectionsSystem
	}
	if _, ok := l.c.given["StartStandardProjections"]; !ok {
		l.c.StartStandardProjections = true
	}
}

func (l *loader) reportUnknown() {
	slices.SortStableFunc(l.unknown, func(a, b setting) int { return cmp.Compare(b.source, a.source) })
	for _, s := range l.unknown {
		line := fmt.Sprintf("unknown option %q (%s)", s.name, s.source)
		if near := nearest(s.name, l.table); near != "" {
			line += fmt.Sprintf(", did you mean %s?", near)
		}
		if l.c.AllowUnknownOptions {
			l.warnOnce(line)
		} else {
			l.problem(errors.New(line))
		}
	}
}
