package httpapi_test

import (
	"fmt"
	"strings"
	"testing"

	"github.com/annalsdb/annals/internal/check"
)

// taken writes that a seat was taken, unless that happened after a position.
func (n *node) taken(stream, id, condition string) string {
	return fmt.Sprintf(`{"stream":%q,"events":[{"eventId":%q,"eventType":"SeatTaken","metadata":{"$tags":["seat:12"]}}],%s}`, stream, id, condition)
}

const seat12 = `{"items":[{"types":["SeatTaken"],"tags":["seat:12"]}]}`

// TestConditions: a condition fails by the first event that its query asks for, and a repeated
// write is known as what it is before its condition is looked at.
func TestConditions(t *testing.T) {
	n := newNode(t)
	n.many(manyOf([]string{n.to("other")})).is(t, 201)
	first := n.id()
	body := n.taken("show-7", first, `"condition":{"failIfEventsMatch":`+seat12+`}`)
	done := parsed[doneMany](t, n.many(body).is(t, 201))
	again := parsed[doneMany](t, n.many(body).is(t, 201))
	check.Equal(t, fmt.Sprint(again.Repeated, again.Position), fmt.Sprint(true, done.Position), "repeated")

	after := func(p int64) string {
		return fmt.Sprintf(`"conditions":[{"failIfEventsMatch":{"items":[{"tags":["seat:13"]}]},"after":0},{"failIfEventsMatch":%s,"after":%d}]`, seat12, p)
	}
	a := n.many(n.taken("show-8", n.id(), after(done.Position-1))).is(t, 409)
	want := fmt.Sprintf(`"conditions":[{"index":1,"event":{"position":%d,"stream":"show-7","number":0,"eventId":%q,"eventType":"SeatTaken"}}],"position":`, done.Position, first)
	if !strings.Contains(a.body, want) {
		t.Errorf("got %s, want %s", a.body, want)
	}
	n.many(n.taken("show-8", n.id(), after(done.Position))).is(t, 201)

	// Who may not read the event learns where it is, and no more.
	n.meta("show-7", `{"$acl":{"$r":["$admins"]}}`)
	n.meta("$idx", `{"$acl":{"$r":["$all"]}}`)
	jane := as("jane", "changeit")
	jane.Set("Content-Type", appJSON)
	a = n.do("POST", "/streams", n.taken("open", n.id(), after(done.Position-1)), jane).is(t, 409)
	if !strings.Contains(a.body, fmt.Sprintf(`{"index":1,"event":{"position":%d}}`, done.Position)) {
		t.Errorf("got %s", a.body)
	}
	n.meta("$idx", `{"$acl":{"$r":["$admins"]}}`)
	n.do("POST", "/streams", n.taken("open", n.id(), after(done.Position)), jane).is(t, 401)
}

func TestConditionsThatCannotBe(t *testing.T) {
	n := newNode(t)
	one := `{"failIfEventsMatch":` + seat12 + `}`
	for condition, text := range map[string]string{
		`"condition":` + one + `,"conditions":[]`:                                "condition and conditions exclude each other.",
		`"conditions":[` + strings.Repeat(one+",", 8) + one + `]`:                "conditions[8]: at most 8 conditions are possible",
		`"conditions":[{"after":1}]`:                                             "conditions[0]: failIfEventsMatch is missing.",
		`"conditions":[{"failIfEventsMatch":{"items":[]}}]`:                      "conditions[0]: failIfEventsMatch: query.items: empty",
		`"conditions":[{"failIfEventsMatch":{"all":true},"until":1}]`:            `conditions[0]: "until" is not a member that is known here.`,
		`"conditions":[{"failIfEventsMatch":{"all":true},"after":-1}]`:           "conditions[0]: after must be a position.",
		`"conditions":[{"failIfEventsMatch":{"all":true},"after":1.5}]`:          "conditions[0]: after must be a position.",
		`"conditions":[{"failIfEventsMatch":{"all":true},"after":99999999}]`:     "Position 99999999 lies beyond the end of the log.",
		`"conditions":[{"failIfEventsMatch":{"items":[{"types":["a"],"x":1}]}}]`: "",
	} {
		a := n.many(n.taken("s", n.id(), condition)).is(t, 400)
		if text != "" {
			check.Equal(t, a.body, text, condition)
		}
	}
}
