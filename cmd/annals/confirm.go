package main

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"os"
	"strings"

	"github.com/spf13/pflag"
	"golang.org/x/term"
)

// confirmation asks before work that cannot be undone. At a terminal the user answers. Without one
// it lets scripts work as they always could, or refuses where a mistake costs acknowledged data.
type confirmation struct {
	yes            bool
	stdin          io.Reader
	stderr         io.Writer
	isTerminal     func() bool
	refuseUnwanted bool // without a terminal, --yes is needed
}

// atTerminal is the confirmation of this process.
func atTerminal(stderr io.Writer) confirmation {
	return confirmation{stdin: os.Stdin, stderr: stderr, isTerminal: func() bool { return term.IsTerminal(int(os.Stdin.Fd())) }}
}

func (c *confirmation) add(flags *pflag.FlagSet) {
	flags.BoolVar(&c.yes, "yes", false, "do not ask for confirmation")
}

// given returns nil when the user wants what a sentence says.
func (c *confirmation) given(sentence string) error {
	switch {
	case c.yes:
		return nil
	case !c.isTerminal():
		if c.refuseUnwanted {
			return cannot(fmt.Errorf("%s: without a terminal, confirm it with --yes", sentence))
		}
		return nil
	}
	if _, err := fmt.Fprintf(c.stderr, "%s. Continue? [y/N] ", sentence); err != nil {
		return err
	}
	answer, err := bufio.NewReader(c.stdin).ReadString('\n')
	if err != nil && !errors.Is(err, io.EOF) {
		return fmt.Errorf("read the answer: %w", err)
	}
	switch strings.ToLower(strings.TrimSpace(answer)) {
	case "y", "yes":
		return nil
	}
	return cannot(errors.New("not confirmed; nothing was changed"))
}
