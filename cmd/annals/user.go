package main

import (
	"bufio"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"os"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"golang.org/x/term"

	"github.com/annalsdb/annals/client"
)

const userHelp = `List users, add and remove them, and change their passwords.

You can ask any node: the request follows its redirect to the leader. Only administrators
may do this, but every user may change the own password. The command asks for passwords at
the terminal. Without a terminal it takes your password from the environment variable
ANNALS_PASSWORD, and a new password from the first line of standard input.`

const userAddHelp = `Add a user. The command asks for the password twice at the terminal. Without a terminal the
password is the first line of standard input.

A user who exists with the same password stays unchanged.`

const userPasswdHelp = `Change your own password (that of --user, by default admin), or as an administrator that
of another LOGIN. The command asks for the new password twice at the terminal. Without a
terminal it is the first line of standard input.

The node that changes the password uses it at once, the others within about a second.`

// userFlags are the flags that all commands under user have.
type userFlags struct {
	clusterFlags
	secrets secrets
}

// secrets asks for passwords.
type secrets struct {
	stdin io.Reader
	// hidden reads a line that is not shown; nil without a terminal.
	hidden func(prompt string) (string, error)
}

// terminalSecrets asks at the terminal if standard input is one.
func terminalSecrets(stdin *os.File, stderr io.Writer) secrets {
	s := secrets{stdin: stdin}
	fd := int(stdin.Fd())
	if !term.IsTerminal(fd) {
		return s
	}
	s.hidden = func(prompt string) (string, error) {
		if _, err := fmt.Fprint(stderr, prompt); err != nil {
			return "", err
		}
		line, err := term.ReadPassword(fd)
		_, end := fmt.Fprintln(stderr) // The typed text did not end the line.
		return string(line), errors.Join(err, end)
	}
	return s
}

// chosen returns a new password.
func (s *secrets) chosen(login string) (string, error) {
	if s.hidden == nil {
		line, err := bufio.NewReader(s.stdin).ReadString('\n')
		if err != nil && !errors.Is(err, io.EOF) {
			return "", fmt.Errorf("read the new password from standard input: %w", err)
		}
		password := strings.TrimSuffix(strings.TrimSuffix(line, "\n"), "\r")
		if password == "" {
			return "", errors.New("no terminal, and no new password on standard input")
		}
		return password, nil
	}
	password, err := s.hidden("New password of " + login + ": ")
	if err != nil {
		return "", err
	}
	again, err := s.hidden("Again: ")
	switch {
	case err != nil:
		return "", err
	case password == "":
		return "", errors.New("the password is empty")
	case password != again:
		return "", errors.New("the two passwords differ; nothing was changed")
	}
	return password, nil
}

func userCommand(ask secrets, stdout io.Writer) *cobra.Command {
	f := userFlags{secrets: ask}
	root := group("user", "List, add and remove users, and change passwords", userHelp)
	f.add(root.PersistentFlags(), "address of a node of the cluster", "print JSON in place of text")
	root.AddCommand(
		userListCommand(&f, stdout),
		userAddCommand(&f, stdout),
		userPasswdCommand(&f, stdout),
		userDeedCommand(&f, stdout, "disable", "Refuse a user until it is enabled again", http.MethodPost, "/command/disable"),
		userDeedCommand(&f, stdout, "enable", "Accept a disabled user again", http.MethodPost, "/command/enable"),
		userDeedCommand(&f, stdout, "remove", "Remove a user", http.MethodDelete, ""),
	)
	return root
}

// userClient asks a node about users, and the leader after it.
type userClient struct {
	*nodeClient
	secrets *secrets
	login   *url.Userinfo // once it was asked for
}

// on runs what a command does with a node.
func (f *userFlags) on(do func(ctx context.Context, c *userClient) error) error {
	return f.clusterFlags.on(func(ctx context.Context, node *nodeClient) error {
		return do(ctx, &userClient{nodeClient: node, secrets: &f.secrets})
	})
}

// current returns the password of the user who asks. It prompts for it if it is not given.
func (c *userClient) current() (string, error) {
	if c.flags.password == "" && c.secrets.hidden != nil {
		password, err := c.secrets.hidden("Password of " + c.flags.user + ": ")
		if err != nil {
			return "", err
		}
		c.flags.password, c.login = password, url.UserPassword(c.flags.user, password)
	}
	return c.flags.password, nil
}

// call sends a request. If the node wants credentials and none were given, it asks for
// the password and sends it again.
func (c *userClient) call(ctx context.Context, method, path string, in map[string]any) (client.Response, error) {
	q := client.Request{Method: method, Path: path, Header: map[string]string{"Accept": client.MediaJSON}, Login: c.login}
	if in != nil {
		body, err := json.Marshal(in)
		if err != nil {
			return client.Response{}, err
		}
		q.Body, q.Header["Content-Type"] = body, client.MediaJSON
	}
	answer, err := c.Do(ctx, q)
	if err == nil && answer.Status == http.StatusUnauthorized && c.flags.password == "" {
		if _, err := c.current(); err != nil {
			return answer, err
		}
		if c.login != nil {
			q.Login = c.login
			answer, err = c.Do(ctx, q)
		}
	}
	if err == nil {
		err = answer.Err()
	}
	if _, broken := errors.AsType[*client.UnreachableError](err); broken && method != http.MethodGet {
		err = fmt.Errorf("%w; see whether it was done with annals user list%s", err, c.nodeFlag())
	}
	return answer, c.explain(err)
}

// change changes a user, and prints what was done.
func (c *userClient) change(ctx context.Context, stdout io.Writer, method, login, command string, in map[string]any, done string) error {
	answer, err := c.call(ctx, method, "/users/"+url.PathEscape(login)+command, in)
	switch {
	case client.HasStatus(err, http.StatusNotFound):
		return fmt.Errorf("there is no user %q", login)
	case err != nil:
		return err
	case c.flags.json && len(answer.Body) > 0:
		return printIndented(stdout, answer.Body)
	}
	return c.say(stdout, login, done)
}

func (c *userClient) say(stdout io.Writer, login, done string) error {
	_, err := fmt.Fprintf(stdout, "%s %s\n", visible(login), done)
	return err
}

func userListCommand(f *userFlags, stdout io.Writer) *cobra.Command {
	return &cobra.Command{
		Use: "list", Short: "List the users", Args: cobra.NoArgs,
		RunE: func(*cobra.Command, []string) error {
			return f.on(func(ctx context.Context, c *userClient) error {
				answer, err := c.call(ctx, http.MethodGet, "/users/", nil)
				if err != nil {
					return err
				}
				if f.json {
					return printIndented(stdout, answer.Body)
				}
				var list struct {
					Data []client.UserInfo `json:"data"`
				}
				if err := answer.Decode(&list); err != nil {
					return err
				}
				return printUsers(stdout, list.Data)
			})
		},
	}
}

func printUsers(stdout io.Writer, users []client.UserInfo) error {
	var t table
	t.row("LOGIN\tNAME\tGROUPS\tSTATE\tCHANGED")
	for _, u := range users {
		state, changed := "enabled", "-"
		if u.Disabled {
			state = "disabled"
		}
		if !u.Changed.IsZero() {
			changed = u.Changed.UTC().Format(time.DateTime)
		}
		t.row("%s\t%s\t%s\t%s\t%s", visible(u.Login), cmp.Or(visible(u.FullName), "-"),
			cmp.Or(visible(strings.Join(u.Groups, ", ")), "-"), state, changed)
	}
	return t.print(stdout)
}

func userAddCommand(f *userFlags, stdout io.Writer) *cobra.Command {
	var name string
	var groups []string
	cmd := &cobra.Command{
		Use: "add LOGIN", Short: "Add a user", Long: userAddHelp, Args: cobra.ExactArgs(1),
		Example: "  annals user add jane --name \"Jane Doe\" --groups billing,'$ops'",
		RunE: func(_ *cobra.Command, args []string) error {
			return f.on(func(ctx context.Context, c *userClient) error {
				password, err := f.secrets.chosen(args[0])
				if err != nil {
					return err
				}
				in := map[string]any{"loginName": args[0], "fullName": name, "groups": append([]string{}, groups...), "password": password}
				answer, err := c.call(ctx, http.MethodPost, "/users/", in)
				switch {
				case client.HasStatus(err, http.StatusConflict):
					return fmt.Errorf("the user %q exists with another password: see annals user passwd", args[0])
				case err != nil:
					return err
				case f.json && len(answer.Body) > 0:
					return printIndented(stdout, answer.Body)
				}
				return c.say(stdout, args[0], "was added")
			})
		},
	}
	cmd.Flags().StringVar(&name, "name", "", "the full name")
	cmd.Flags().StringSliceVar(&groups, "groups", nil, "the groups, separated by commas; $admins may do everything, $ops operates nodes")
	return cmd
}

func userPasswdCommand(f *userFlags, stdout io.Writer) *cobra.Command {
	return &cobra.Command{
		Use: "passwd [LOGIN]", Short: "Change a password", Long: userPasswdHelp, Args: cobra.MaximumNArgs(1),
		RunE: func(_ *cobra.Command, args []string) error {
			login := append(args, f.user)[0]
			return f.on(func(ctx context.Context, c *userClient) error { return c.passwd(ctx, stdout, login) })
		},
	}
}

// passwd changes the password of a user. Users need the current one to change their own.
func (c *userClient) passwd(ctx context.Context, stdout io.Writer, login string) error {
	in, command := map[string]any{}, "/command/reset-password"
	if login == c.flags.user {
		current, err := c.current()
		if err != nil {
			return err
		}
		if current == "" {
			return fmt.Errorf("your current password is needed to change it: set %s, or see --password", passwordVariable)
		}
		in["currentPassword"], command = current, "/command/change-password"
	}
	password, err := c.secrets.chosen(login)
	if err != nil {
		return err
	}
	in["newPassword"] = password
	return c.change(ctx, stdout, http.MethodPost, login, command, in, "has a new password")
}

func userDeedCommand(f *userFlags, stdout io.Writer, use, short, method, command string) *cobra.Command {
	confirm := atTerminal(os.Stderr)
	cmd := &cobra.Command{
		Use: use + " LOGIN", Short: short, Args: cobra.ExactArgs(1),
		RunE: func(_ *cobra.Command, args []string) error {
			if method == http.MethodDelete {
				if err := confirm.given(fmt.Sprintf("This removes the user %s", visible(args[0]))); err != nil {
					return err
				}
			}
			return f.on(func(ctx context.Context, c *userClient) error {
				return c.change(ctx, stdout, method, args[0], command, nil, "was "+strings.TrimSuffix(use, "e")+"ed")
			})
		},
	}
	if method == http.MethodDelete {
		confirm.add(cmd.Flags())
	}
	return cmd
}
