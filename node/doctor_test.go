package node_test

import (
	"encoding/json"
	"slices"
	"testing"

	"github.com/annalsdb/annals/internal/check"
)

// TestDoctor: a node on its own examines itself. The machine may have little space or a slow disk,
// which is not what is tested.
func TestDoctor(t *testing.T) {
	n := open(t, options(t.TempDir()))
	password := map[string]string{"admin": "changeit", "ops": "changeit"}
	passwords := func() (check struct {
		Check, Text, Remedy string
		OK                  bool
	}) {
		var d struct {
			Checks []struct {
				Check, Text, Remedy string
				OK                  bool
			}
		}
		status, body := call(t, n, "GET", "/admin/doctor", "", append(as("admin", password["admin"]), "Accept", "application/json")...)
		if status != 200 || json.Unmarshal([]byte(body), &d) != nil {
			t.Fatalf("%d %s", status, body)
		}
		for _, c := range d.Checks {
			switch {
			case c.OK != (c.Remedy == "") || c.Text == "":
				t.Errorf("%+v", c)
			case c.Check == "backup" && c.Remedy != "": // No one has set one up.
			case c.Check == "passwords":
				check = c
			case !c.OK && !slices.Contains([]string{"disk space", "fsync", "limits"}, c.Check):
				t.Errorf("%+v", c)
			}
		}
		return check
	}
	for _, want := range []string{
		"the default password still lets in admin and ops", "the default password still lets in ops", "admin and ops have passwords of their own",
	} {
		check.Equal(t, passwords().Text, want)
		login := "admin"
		if password[login] != "changeit" {
			login = "ops"
		}
		status, body := call(t, n, "POST", "/users/"+login+"/command/reset-password", `{"newPassword":"new"}`,
			append(as("admin", password["admin"]), "Content-Type", "application/json")...)
		check.MustEqual(t, status, 200, body)
		password[login] = "new"
	}
	if status, _ := call(t, n, "GET", "/admin/doctor", ""); status != 401 {
		t.Errorf("without credentials: %d", status)
	}
}
