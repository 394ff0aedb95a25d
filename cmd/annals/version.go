package main

import (
	"runtime"
	"runtime/debug"
	"strings"
)

// version is set by the linker: -ldflags "-X main.version=1.2.3".
var version string

// buildVersion returns the version that the linker or the Go tool wrote into this binary.
func buildVersion() string {
	if version != "" {
		return version
	}
	return versionOf(buildInfo())
}

// versionLine has the version, the commit, and the compiler.
func versionLine() string { return describe(buildVersion(), buildInfo()) }

func buildInfo() *debug.BuildInfo {
	if info, ok := debug.ReadBuildInfo(); ok {
		return info
	}
	return new(debug.BuildInfo)
}

// versionDocument is what annals version --json prints.
type versionDocument struct {
	Version  string `json:"version"`
	Commit   string `json:"commit"`   // empty: unknown
	Modified bool   `json:"modified"` // the sources differed from the commit
	Built    string `json:"time"`     // of the commit; empty: unknown
	Go       string `json:"go"`
	OS       string `json:"os"`
	Arch     string `json:"arch"`
}

// versionOfBuild is the document about a binary of the given version.
func versionOfBuild(version string, info *debug.BuildInfo) versionDocument {
	d := versionDocument{Version: version, Go: runtime.Version(), OS: runtime.GOOS, Arch: runtime.GOARCH}
	for _, s := range info.Settings {
		switch s.Key {
		case "vcs.revision":
			d.Commit = s.Value
		case "vcs.modified":
			d.Modified = s.Value == "true"
		case "vcs.time":
			d.Built = s.Value
		}
	}
	return d
}

// describe is the line about a binary of the given version.
func describe(version string, info *debug.BuildInfo) string {
	details := []string{runtime.Version() + " " + runtime.GOOS + "/" + runtime.GOARCH}
	switch commit := commitOf(info); {
	case commit != "":
		details = append([]string{"commit " + commit}, details...)
	case version == unversioned: // A pseudo-version ends with the commit.
		details = append([]string{"built without version control information; go build or go run -buildvcs=true has it"}, details...)
	}
	return "annals " + version + " (" + strings.Join(details, ", ") + ")"
}

// unversioned is the version of a binary of which nothing is known.
const unversioned = "devel"

// versionOf prefers the module's version; a binary built in a work tree has none
// and is named after the commit.
func versionOf(info *debug.BuildInfo) string {
	if v := info.Main.Version; v != "" && v != "(devel)" {
		return v
	}
	if commit := commitOf(info); commit != "" {
		return unversioned + "-" + commit
	}
	return unversioned
}

// commitOf names the commit that the binary was built from, if the Go tool knew it.
func commitOf(info *debug.BuildInfo) string {
	d := versionOfBuild("", info)
	commit := d.Commit[:min(12, len(d.Commit))]
	if d.Modified && commit != "" {
		commit += "+changes"
	}
	return commit
}
