package main

import (
	"bytes"
	"errors"
	"strings"
	"testing"

	"github.com/annalsdb/annals/internal/check"
)

// runUser runs the command. What is typed at the terminal are the lines of typed; with
// none there is no terminal, but standard input.
func runUser(stdin string, typed []string, args ...string) (code int, stdout, stderr string) {
	var out, complaints bytes.Buffer
	ask := secrets{stdin: strings.NewReader(stdin)}
	if typed != nil {
		ask.hidden = func(prompt string) (string, error) {
			out.WriteString(prompt + "\n")
			if len(typed) == 0 {
				return "", errors.New("nothing is typed")
			}
			line := typed[0]
			typed = typed[1:]
			return line, nil
		}
	}
	cmd := group("annals", "", "", userCommand(ask, &out))
	cmd.SilenceErrors, cmd.SilenceUsage = true, true
	cmd.SetOut(&out)
	code = execute(cmd, append([]string{"user"}, args...), &complaints)
	return code, port.ReplaceAllString(out.String(), "127.0.0.1:1"), port.ReplaceAllString(complaints.String(), "127.0.0.1:1")
}

// TestUserCommands: what reaches the node, what is printed, and the exit code.
func TestUserCommands(t *testing.T) {
	const users = `{"data":[{"loginName":"admin","fullName":"A B","groups":["$admins"],"dateLastUpdated":"2026-01-02T03:04:05.6+00:00"},` +
		`{"loginName":"jane","fullName":"","groups":[],"disabled":true,"dateLastUpdated":null}],"success":true}`
	const done = `{"loginName":"jane","success":true,"error":"Success"}`
	for _, c := range []struct {
		name           string
		args           []string
		password       string // in the environment
		stdin          string
		typed          []string
		answers        map[string]string
		asked          string
		code           int
		stdout, stderr string
	}{
		{
			name: "list", args: []string{"list"}, password: "p", answers: map[string]string{"GET /users/": users},
			asked:  "admin:p GET /users/",
			stdout: "LOGIN  NAME  GROUPS   STATE     CHANGED\nadmin  A B   $admins  enabled   2026-01-02 03:04:05\njane   -     -        disabled  -\n",
		},
		{
			name: "list asks for the password", args: []string{"list", "--user", "ops"}, typed: []string{"secret"},
			answers: map[string]string{"GET /users/": "401 "},
			asked:   "GET /users/\nops:secret GET /users/\nops:secret GET /users/$current", code: 1,
			stdout: "Password of ops: \n",
			stderr: "annals: 127.0.0.1:1 does not accept user \"ops\" with this password (ANNALS_PASSWORD or --password), or the user may not do this\n",
		},
		{
			name: "list without a terminal", args: []string{"list"}, answers: map[string]string{"GET /users/": "401 "},
			asked: "GET /users/", code: 1,
			stderr: "annals: 127.0.0.1:1 asks for credentials: set ANNALS_PASSWORD to the password of admin, or see --user and --password\n",
		},
		{
			name: "add", args: []string{"add", "jane", "--name", "Jane Doe", "--groups", "a,$ops"}, password: "p", typed: []string{"new", "new"},
			answers: map[string]string{"POST /users/": "201 " + done},
			asked:   `admin:p POST /users/ application/json {"fullName":"Jane Doe","groups":["a","$ops"],"loginName":"jane","password":"new"}`,
			stdout:  "New password of jane: \nAgain: \njane was added\n",
		},
		{
			name: "add without a terminal", args: []string{"add", "jane"}, password: "p", stdin: "new \r\nmore",
			answers: map[string]string{"POST /users/": "409 {}"},
			asked:   `admin:p POST /users/ application/json {"fullName":"","groups":[],"loginName":"jane","password":"new "}`, code: 1,
			stderr: "annals: the user \"jane\" exists with another password: see annals user passwd\n",
		},
		{
			name: "add without a password", args: []string{"add", "jane"}, password: "p", code: 1,
			stderr: "annals: no terminal, and no new password on standard input\n",
		},
		{
			name: "passwd of oneself", args: []string{"passwd"}, typed: []string{"old", "new", "new"},
			answers: map[string]string{"POST /users/admin/command/change-password": done},
			asked:   `admin:old POST /users/admin/command/change-password application/json {"currentPassword":"old","newPassword":"new"}`,
			stdout:  "Password of admin: \nNew password of admin: \nAgain: \nadmin has a new password\n",
		},
		{
			name: "passwd of oneself without a terminal", args: []string{"passwd"}, password: "old", stdin: "new\n",
			answers: map[string]string{"POST /users/admin/command/change-password": done},
			asked:   `admin:old POST /users/admin/command/change-password application/json {"currentPassword":"old","newPassword":"new"}`,
			stdout:  "admin has a new password\n",
		},
		{
			name: "passwd of oneself, current unknown", args: []string{"passwd"}, stdin: "new\n", code: 1,
			stderr: "annals: your current password is needed to change it: set ANNALS_PASSWORD, or see --password\n",
		},
		{
			name: "passwd of another", args: []string{"passwd", "j/ne"}, password: "p", typed: []string{"new", "new"},
			answers: map[string]string{"POST /users/j%2Fne/command/reset-password": done},
			asked:   `admin:p POST /users/j%2Fne/command/reset-password application/json {"newPassword":"new"}`,
			stdout:  "New password of j/ne: \nAgain: \nj/ne has a new password\n",
		},
		{
			name: "passwd, mistyped", args: []string{"passwd", "jane"}, password: "p", typed: []string{"new", "now"}, code: 1,
			stdout: "New password of jane: \nAgain: \n", stderr: "annals: the two passwords differ; nothing was changed\n",
		},
		{
			name: "disable", args: []string{"disable", "jane"}, password: "p", answers: map[string]string{"POST /users/jane/command/disable": done},
			asked: "admin:p POST /users/jane/command/disable", stdout: "jane was disabled\n",
		},
		{
			name: "enable, JSON", args: []string{"enable", "jane", "--json"}, password: "p", answers: map[string]string{"POST /users/jane/command/enable": done},
			asked: "admin:p POST /users/jane/command/enable", stdout: "{\n  \"loginName\": \"jane\",\n  \"success\": true,\n  \"error\": \"Success\"\n}\n",
		},
		{
			name: "remove", args: []string{"remove", "jane"}, password: "p", answers: map[string]string{"DELETE /users/jane": "204 "},
			asked: "admin:p DELETE /users/jane", stdout: "jane was removed\n",
		},
		{
			name: "remove who is not there", args: []string{"remove", "jane"}, password: "p", answers: nil,
			asked: "admin:p DELETE /users/jane", code: 1, stderr: "annals: there is no user \"jane\"\n",
		},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Setenv(passwordVariable, c.password)
			n, address := projector(t, c.answers)
			code, stdout, stderr := runUser(c.stdin, c.typed, append(c.args, "--node", address)...)
			if code != c.code || stdout != c.stdout || stderr != c.stderr {
				t.Errorf("code %d\n%s%s\nwant %d\n%s%s", code, stdout, stderr, c.code, c.stdout, c.stderr)
			}
			check.Equal(t, n.asked(), c.asked, "asked ... want")
		})
	}
}
