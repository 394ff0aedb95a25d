package config

import (
	"slices"
	"strings"
	"testing"

	"github.com/annalsdb/annals/internal/check"
)

// TestEnvironmentIsExplained: one line names the variables of other products, one those of a
// service. Any other variable with a prefix that is not an option still stops the start.
func TestEnvironmentIsExplained(t *testing.T) {
	const other, service = "options were read from variables with the prefix of another product: ", "variables that Kubernetes makes for a service were ignored: "
	serviceCalled := func(name string) []string {
		return strings.Fields(strings.ReplaceAll("X_SERVICE_HOST=10.1.2.3 X_SERVICE_PORT=2113 X_SERVICE_PORT_HTTP=2113 X_PORT=tcp://10.1.2.3:2113 "+
			"X_PORT_2113_TCP=tcp://10.1.2.3:2113 X_PORT_2113_TCP_PROTO=tcp X_PORT_2113_TCP_PORT=2113 X_PORT_2113_TCP_ADDR=10.1.2.3", "X", name))
	}
	cases := []struct {
		name    string
		env     []string
		lines   []string // beginnings
		refused string
	}{
		{"own alone", []string{"STORE_CLUSTER_DNS=x"}, nil, ""},
		{"of two products", []string{"KURRENTDB_NODE_PORT=1", "EVENTSTORE_CLUSTER_DNS=x", "STORE_CLUSTER_DNS=y"},
			[]string{other + "EVENTSTORE_CLUSTER_DNS, KURRENTDB_NODE_PORT; STORE_"}, ""},
		{"without text", []string{"KURRENTDB_NODE_PORT="}, nil, ""},
		{"service store", serviceCalled("STORE"),
			[]string{service + "STORE_PORT, STORE_PORT_2113_TCP, STORE_PORT_2113_TCP_ADDR, STORE_PORT_2113_TCP_PORT, STORE_PORT_2113_TCP_PROTO, " +
				"STORE_SERVICE_HOST, STORE_SERVICE_PORT, STORE_SERVICE_PORT_HTTP (enableServiceLinks: false"}, ""},
		{"service store-node", serviceCalled("STORE_NODE"), []string{service + "STORE_NODE_PORT, "}, ""},
		{"service eventstore", serviceCalled("EVENTSTORE"), []string{service + "EVENTSTORE_PORT, "}, ""},
		{"service kurrentdb", serviceCalled("KURRENTDB"), []string{service + "KURRENTDB_PORT, "}, ""},
		{"service of IPv6", []string{"STORE_SERVICE_HOST=fd00::1", "STORE_PORT=tcp://[fd00::1]:2113"}, []string{service}, ""},
		{"service, and an option", append(serviceCalled("STORE"), "STORE_NODE_PORT=7"), []string{service}, ""},
		{"no option of any product", []string{"KURRENTDB_NODE_PROT=1"}, nil, `unknown option "NODE_PROT"`},
		{"no option", []string{"STORE_PORT=2113"}, nil, `unknown option "PORT"`},
		{"host by name", []string{"STORE_SERVICE_HOST=store"}, nil, `unknown option "SERVICE_HOST"`},
		{"port of a node", []string{"STORE_NODE_PORT=tcp:2113"}, nil, "option NODE_PORT"},
	}
	for _, c := range cases {
		t.Run(c.name, func(t *testing.T) {
			got, err := given{env: c.env}.load()
			if c.refused != "" {
				if err == nil || !strings.Contains(err.Error(), c.refused) || strings.Contains(err.Error(), "\n") {
					t.Fatalf("refused with %v", err)
				}
				return
			}
			check.Must(t, err)
			if !slices.EqualFunc(got.Warnings(), c.lines, strings.HasPrefix) {
				t.Errorf("said %q", got.Warnings())
			}
		})
	}
}

// TestLookupEnv: commands that read single options go by the same prefixes.
func TestLookupEnv(t *testing.T) {
	set := map[string]string{"KURRENTDB_A": "3"}
	lookup := func(name string) (string, bool) { v, ok := set[name]; return v, ok }
	for _, next := range []struct{ variable, want string }{{"KURRENTDB_A", "3"}, {"EVENTSTORE_A", "2"}, {"STORE_A", "1"}} {
		set[next.variable] = next.want
		if got, ok := LookupEnv("A", lookup); got != next.want || !ok {
			t.Errorf("with %s: %q, %t", next.variable, got, ok)
		}
	}
	if _, ok := LookupEnv("B", lookup); ok {
		t.Error("a variable that is not set was found")
	}
}
