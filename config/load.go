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
// others are those of EventStoreDB and of KurrentDB.
const (
	defaultConfigFile   = "/etc/annals/annals.conf"
	referenceConfigFile = "/etc/eventstore/eventstore.conf"
	kurrentConfigFile   = "/etc/kurrentdb/kurrentdb.conf"
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

// environment says whether the source is a variable, of any prefix.
func (s source) environment() bool {
	return s == sourceEnvironment || s == sourceEventStoreEnvironment || s == sourceKurrentEnvironment
}

// setting is one value as a source gave it. The name is spelled as it is there.
type setting struct {
	name   string
	value  string
	source source
	// at is where a person finds it: the file and line, the variable, or the command line.
	at string
}

// Load reads the options from the arguments after the command's name, the
// environment in the form of os.Environ, and the YAML file that these name. The
// error has one line for each mistake. When the arguments ask for help or the
// version, nothing else is read.
func Load(args, environ []string, readFile func(string) ([]byte, error)) (*Config, error) {
	return newLoader().load(args, environ, readFile, []string{defaultConfigFile, referenceConfigFile, kurrentConfigFile})
}

// LoadRefusing reads the options as Load does, for a command that decides some of
// them itself: refused has their names, each with the text for a user who sets it.
// A file is read only if it is named: the default file of the machine is for its node.
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
		fromFile, err := l.parseYAML(content, l.c.file)
		if err != nil {
			l.problem(fmt.Errorf("configuration file %s: %w", l.c.file, err))
		} else {
			l.resolve(fromFile)
		}
	}
	l.refuse()
	l.apply()
	if len(l.problems) == 0 {
		for _, err := range l.c.validate() {
			l.problem(l.c.Located(err))
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
	passed   []string // what was set and has no effect, with the places
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
			if s.name = unwrapped(s.name); !l.takeSection(s) {
				o = l.lookup(s.name)
			} else {
				continue
			}
		}
		if o == nil {
			l.unknown = append(l.unknown, s)
			continue
		}
		if o.environmentOnly && !s.source.environment() {
			l.problem(fmt.Errorf("%s can only be set by the environment variable %s", o.name, envName(o.name)))
			continue
		}
		if o.notInFile && s.source == sourceYaml {
			l.problem(fmt.Errorf("%s cannot be set in the configuration file (%s)", o.name, s.at))
			continue
		}
		if !strings.EqualFold(fold(s.name), fold(o.name)) {
			l.warnOnce(fmt.Sprintf("option %s (%s) is deprecated, use %s", s.name, s.at, o.name))
		}
		had, ok := l.c.given[o.name]
		weaker := ok && had.source > s.source
		synonymAfterName := ok && had.source == s.source && fold(had.name) == fold(o.name) && fold(s.name) != fold(o.name)
		if weaker && o.name == "Db" && had.source == sourceCommandLine && s.source == sourceYaml && had.value != s.value {
			l.warnOnce(fmt.Sprintf("the data folder is %s, of the command line, and not %s (%s): all other options of that file are in force, unless --config names another one", had.value, s.value, s.at))
		}
		if !weaker && !synonymAfterName {
			l.c.given[o.name] = s
		}
	}
}

// passOver notes an option or section that has no effect.
func (l *loader) passOver(name, at string) {
	if line := name + " (" + at + ")"; !slices.Contains(l.passed, line) {
		l.passed = append(l.passed, line)
	}
}

func (l *loader) warnOnce(line string) {
	if !slices.Contains(l.c.warnings, line) {
		l.c.warnings = append(l.c.warnings, line)
	}
}

// refuse reports the options that must not be set, before the checks that depend on them.
func (l *loader) refuse() {
	for i := range l.table {
		name := l.table[i].name
		why, refused := l.refused[name]
		if s, ok := l.c.given[name]; ok && refused {
			l.problem(fmt.Errorf("option %s (%s) cannot be set here: %s", s.name, s.at, why))
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

// apply turns the texts into values and reports each text that is not a value of its option.
func (l *loader) apply() {
	l.c.Index = ""
	for i := range l.table {
		o := &l.table[i]
		s, ok := l.c.given[o.name]
		if !ok {
			continue
		}
		if o.environmentOnly && s.value == "" {
			l.problem(fmt.Errorf("%s must not be empty", s.at))
			continue
		}
		if err := o.target.set(s.value); err != nil {
			if o.sensitive {
				err = errors.New("not a valid value")
			}
			l.problem(fmt.Errorf("option %s (%s): %w", s.name, s.at, err))
			continue
		}
		switch {
		case o.deprecated != "":
			l.warnOnce(o.deprecated)
		case !o.hasEffect() && !(o.refused && strings.EqualFold(s.value, o.def)):
			l.passOver(o.name, s.at)
		case o.lacks != "" && !o.refused:
			l.warnOnce(fmt.Sprintf("option %s (%s) has no effect: %s", o.name, s.at, o.lacks))
		}
	}
	if len(l.passed) > 0 {
		l.warnOnce("set, but without effect here: " + strings.Join(l.passed, ", "))
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
		line := fmt.Sprintf("unknown option %q (%s)", s.name, s.at)
		if near := nearest(s.name, l.table); near != "" {
			line += fmt.Sprintf(", did you mean %s?", s.source.spelling(near))
		}
		if l.c.AllowUnknownOptions {
			l.warnOnce(line)
		} else {
			l.problem(errors.New(line))
		}
	}
}
