package main

import (
	"bytes"
	"cmp"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/annalsdb/annals/config"
)

// docsCommand writes the documentation of the commands, for packages and for docs/cli.md. Users
// never need it.
func docsCommand() *cobra.Command {
	var man, markdown string
	cmd := &cobra.Command{
		Use:    "docs (--man folder | --markdown file)",
		Short:  "Write man pages, or a page of all commands as Markdown",
		Args:   cobra.NoArgs,
		Hidden: true,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if man == "" && markdown == "" {
				return cannot(fmt.Errorf("say what to write: --man folder, --markdown file, or both"))
			}
			if man != "" {
				if err := writeManPages(cmd.Root(), man); err != nil {
					return err
				}
			}
			if markdown == "" {
				return nil
			}
			return os.WriteFile(markdown, commandReference(cmd.Root()), 0o644)
		},
	}
	cmd.Flags().StringVar(&man, "man", "", "folder for the man pages, which is made if it is missing")
	cmd.Flags().StringVar(&markdown, "markdown", "", "file for the page of all commands")
	return cmd
}

// documented are a command and those below it that users see, each before those below it.
func documented(cmd *cobra.Command) []*cobra.Command {
	if cmd.Parent() == nil {
		cmd.InitDefaultHelpCmd()
		cmd.InitDefaultCompletionCmd()
	}
	cmd.InitDefaultHelpFlag()
	list := []*cobra.Command{cmd}
	below := slices.Clone(cmd.Commands())
	slices.SortFunc(below, func(a, b *cobra.Command) int { return cmp.Compare(a.Name(), b.Name()) })
	for _, c := range below {
		if c.IsAvailableCommand() && c.Name() != "help" {
			list = append(list, documented(c)...)
		}
	}
	return list
}

// takesOptions says whether the arguments of a command are the options of a node. Their list is a
// page of its own.
func takesOptions(cmd *cobra.Command) bool { return cmd.DisableFlagParsing }

// flagRows lists flags, those of the command before those that it shares with others.
func flagRows(cmd *cobra.Command) (rows [][2]string) {
	add := func(f *pflag.Flag) {
		if f.Hidden {
			return
		}
		value, usage := pflag.UnquoteUsage(f)
		left := "--" + f.Name
		if f.Shorthand != "" {
			left = "-" + f.Shorthand + ", " + left
		}
		if value != "" {
			left += " " + value
		}
		if d := f.DefValue; d != "" && d != "false" && d != "[]" && d != "0" && d != "0s" && !strings.Contains(usage, "(default") {
			usage += " (default " + d + ")"
		}
		rows = append(rows, [2]string{left, usage})
	}
	cmd.LocalFlags().VisitAll(add)
	cmd.InheritedFlags().VisitAll(add)
	return rows
}

// block is a part of a help text: prose, or lines that stay as they are.
type block struct {
	asIs  bool
	lines []string
}

// blocks takes a help text apart. Lines that are indented stay as they are.
func blocks(text string) (list []block) {
	for paragraph := range strings.SplitSeq(strings.Trim(text, "\n"), "\n\n") {
		lines := strings.Split(paragraph, "\n")
		asIs := strings.HasPrefix(lines[0], "  ")
		if last := len(list) - 1; asIs && last >= 0 && list[last].asIs {
			list[last].lines = append(append(list[last].lines, ""), lines...)
			continue
		}
		list = append(list, block{asIs, lines})
	}
	return list
}

const referenceIntroduction = `# Commands

This page is written from the help texts of the program; ` + "`make golden`" + ` rewrites it. ` + "`annals help`" + `
and ` + "`annals COMMAND --help`" + ` print the same, and packages have man pages, such as
` + "`man annals-backup-create`" + `.

- Exit code 0 is success, and 2 is bad usage: unknown commands, flags and wrong values. What other
  exit codes mean stands with the command. A node that refuses its options ends
  with exit code 1. If systemd started it, the code is 78, for which the unit does not start it
  again.
- The options of a node are in [options](options.md). ` + "`annals config check`" + ` checks them.
- Set the password in the variable ` + "`ANNALS_PASSWORD`" + `. Other users of the machine can read the
  command line.
- Commands that cannot be undone ask for confirmation at a terminal, unless ` + "`--yes`" + ` is given:
  ` + "`redact`, `backup prune`, `cluster recover`, `cluster accept-loss`, `cluster remove`" + `,
  ` + "`projection reset`, `projection delete` and `user remove`" + `. In a script, without a terminal,
  they do not ask. Only ` + "`cluster accept-loss`" + ` needs ` + "`--yes`" + ` there.
- Completion: ` + "`source <(annals completion bash)`" + `, the same with ` + "`zsh`" + `, and
  ` + "`annals completion fish | source`" + `.
`

// commandReference is the page of the documentation with all commands.
func commandReference(root *cobra.Command) []byte {
	var b bytes.Buffer
	b.WriteString(referenceIntroduction)
	all := documented(root)[1:]
	b.WriteString("\n| command | what it does |\n| --- | --- |\n")
	for _, cmd := range all {
		if !cmd.HasAvailableSubCommands() {
			fmt.Fprintf(&b, "| [`%s`](#%s) | %s |\n", cmd.CommandPath(), strings.ReplaceAll(cmd.CommandPath(), " ", "-"), plainMarkdown(cmd.Short))
		}
	}
	for _, cmd := range all {
		fmt.Fprintf(&b, "\n%s %s\n\n", map[bool]string{true: "##", false: "###"}[cmd.Parent() == root], cmd.CommandPath())
		if !cmd.HasAvailableSubCommands() {
			fmt.Fprintf(&b, "```text\n%s\n```\n\n", cmd.UseLine())
		}
		for i, part := range blocks(cmp.Or(cmd.Long, cmd.Short+".")) {
			if i > 0 {
				b.WriteString("\n")
			}
			if part.asIs {
				fmt.Fprintf(&b, "```text\n%s\n```\n", strings.Join(part.lines, "\n"))
			} else {
				b.WriteString(plainMarkdown(strings.Join(part.lines, "\n")) + "\n")
			}
		}
		if cmd.Example != "" {
			fmt.Fprintf(&b, "\nExamples:\n\n```text\n%s\n```\n", strings.TrimRight(cmd.Example, "\n"))
		}
		rows := flagRows(cmd)
		if takesOptions(cmd) {
			b.WriteString("\nThe options of a node are in [options](options.md).\n")
		}
		if len(rows) == 0 || cmd.HasAvailableSubCommands() {
			continue
		}
		b.WriteString("\n| flag | what |\n| --- | --- |\n")
		for _, row := range rows {
			fmt.Fprintf(&b, "| `%s` | %s |\n", row[0], strings.ReplaceAll(plainMarkdown(row[1]), "|", `\|`))
		}
	}
	return b.Bytes()
}

var markdownMarks = strings.NewReplacer("*", `\*`, "<", `\<`, "_", `\_`, "`", "\\`")

// plainMarkdown has a text shown as it is.
func plainMarkdown(text string) string { return markdownMarks.Replace(text) }

// writeManPages writes a page for each command.
func writeManPages(root *cobra.Command, dir string) error {
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return err
	}
	for _, cmd := range documented(root) {
		page, err := manPage(cmd)
		if err != nil {
			return err
		}
		if err := os.WriteFile(filepath.Join(dir, manName(cmd)+".1"), page, 0o644); err != nil {
			return err
		}
	}
	return nil
}

func manName(cmd *cobra.Command) string { return strings.ReplaceAll(cmd.CommandPath(), " ", "-") }

// manPage is the man page of a command. It has no date, so that two builds make the same one.
func manPage(cmd *cobra.Command) ([]byte, error) {
	var b bytes.Buffer
	fmt.Fprintf(&b, ".TH \"%s\" 1 \"\" \"%s\" Annals\n", roff(strings.ToUpper(manName(cmd))), roff("Annals "+buildVersion()))
	fmt.Fprintf(&b, ".SH NAME\n%s \\- %s\n.SH SYNOPSIS\n", roff(manName(cmd)), roff(cmd.Short))
	roffLines(&b, cmd.UseLine())
	b.WriteString(".SH DESCRIPTION\n")
	for i, part := range blocks(cmp.Or(cmd.Long, cmd.Short+".")) {
		if i > 0 {
			b.WriteString(".PP\n")
		}
		if part.asIs {
			roffLines(&b, part.lines...)
		} else {
			b.WriteString(roff(strings.Join(part.lines, "\n")) + "\n")
		}
	}
	rows := flagRows(cmd)
	if len(rows) > 0 || takesOptions(cmd) {
		b.WriteString(".SH OPTIONS\n")
	}
	for _, row := range rows {
		fmt.Fprintf(&b, ".TP\n\\fB%s\\fR\n%s\n", roff(row[0]), roff(row[1]))
	}
	if cmd.Name() == "node" {
		var options bytes.Buffer
		if err := config.WriteHelp(&options, nil); err != nil {
			return nil, err
		}
		b.WriteString(".PP\n")
		roffLines(&b, strings.Split(strings.TrimRight(options.String(), "\n"), "\n")...)
	} else if takesOptions(cmd) {
		b.WriteString(".PP\nThe options of a node are those of\n.BR annals\\-node (1).\n")
	}
	if cmd.Example != "" {
		b.WriteString(".SH EXAMPLES\n")
		roffLines(&b, strings.Split(strings.TrimRight(cmd.Example, "\n"), "\n")...)
	}
	var others []string
	if cmd.HasParent() {
		others = append(others, manName(cmd.Parent()))
	}
	for _, below := range cmd.Commands() {
		if below.IsAvailableCommand() && below.Name() != "help" {
			others = append(others, manName(below))
		}
	}
	b.WriteString(".SH SEE ALSO\n")
	for i, name := range others {
		end := ","
		if i == len(others)-1 {
			end = ""
		}
		fmt.Fprintf(&b, ".BR %s (1)%s\n", roff(name), end)
	}
	return b.Bytes(), nil
}

// roffLines writes lines that stay as they are.
func roffLines(b *bytes.Buffer, lines ...string) {
	b.WriteString(".nf\n")
	for _, line := range lines {
		b.WriteString(roff(line) + "\n")
	}
	b.WriteString(".fi\n")
}

var roffMarks = strings.NewReplacer(`\`, `\e`, "-", `\-`, "\n.", "\n\\&.", "\n'", "\n\\&'", `"`, `\(dq`)

// roff has a text shown as it is.
func roff(text string) string {
	return strings.TrimPrefix(roffMarks.Replace("\n"+text), "\n")
}
