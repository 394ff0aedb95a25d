package main

import (
	"bytes"
	"testing"

	"github.com/annalsdb/annals/internal/check"
)

func runGroup(args ...string) (code int, stdout, stderr string) {
	var out, complaints bytes.Buffer
	cmd := group("annals", "", "", groupCommand(&out))
	cmd.SilenceErrors, cmd.SilenceUsage = true, true
	cmd.SetOut(&out)
	code = execute(cmd, append([]string{"group"}, args...), &complaints)
	return code, port.ReplaceAllString(out.String(), "127.0.0.1:1"), port.ReplaceAllString(complaints.String(), "127.0.0.1:1")
}

// TestGroupCommands: what reaches the node, what is printed, and the exit code.
func TestGroupCommands(t *testing.T) {
	const at = "/subscriptions/o%2Fs/g"
	const info = `{"eventStreamId":"o/s","groupName":"g","status":"Paused","lastCheckpointedEventPosition":"7","lastKnownEventPosition":null,"totalItemsProcessed":9,"totalInFlightMessages":1,` +
		`"parkedMessageCount":2,"paused":{"by":"ops","at":"2026-01-02T03:04:05Z"},"replaying":{"remaining":4,"messagesPerSecond":2},` +
		`"config":{"resolveLinktos":true,"startFrom":3,"startPosition":"3","messageTimeoutMilliseconds":1500,"maxRetryCount":5,"new":1,"retryBackoff":{"factor":3,"atMostMilliseconds":70},"filter":{"of":"type","regex":"^x"}}}`
	const moved = `{"from":"6","to":"2","again":4,"leftOut":0,"atLeast":true}`
	const parked = `{"total":9,"messages":[{"number":3,"added":"2026-01-02T03:04:05.6Z","reason":"Client explicitly NAK'ed message.\nno","retryCount":1,"streamId":"s","eventNumber":8,"eventType":"t"},` +
		`{"number":4,"added":"2026-01-02T03:04:05.6Z","reason":"r","retryCount":null,"streamId":"s","eventNumber":9,"eventType":""}],"next":5}`
	done := map[string]string{
		"POST " + at + "/pause": "{}", "POST " + at + "/resume": "{}", "PUT " + at: "{}", "POST " + at: "{}", "DELETE " + at: "{}", "GET " + at + "/info": info,
		"GET " + at + "/reset": moved, "POST " + at + "/reset": moved, "GET " + at + "/parked": parked, "POST " + at + "/replayParked": "{}",
		"POST " + at + "/parked/replay": "{}", "POST " + at + "/parked/drop": "404 Message 4 is not parked.", "POST " + at + "/parked/forward": `{"forwarded":3,"gone":1,"to":"d"}`,
		"GET /subscriptions": "[" + info + "]",
	}
	for _, c := range []struct {
		name           string
		args           []string
		asked          string
		code           int
		stdout, stderr string
	}{
		{
			name: "list", args: []string{"list"}, asked: "admin:p GET /subscriptions",
			stdout: "STREAM  NAME  STATUS  CHECKPOINT  LAST EVENT  UNANSWERED\no/s     g     Paused  7           -           1\n",
		},
		{
			name: "show", args: []string{"show", "o/s", "g"}, asked: "admin:p GET " + at + "/info",
			stdout: "stream               o/s\nname                 g\nstatus               Paused\ncheckpoint           7\nlast event           -\nhanded out           9\n" +
				"unanswered           1\nread ahead           0\nto be retried        0\nof those delayed     0\nparked               2\nconsumers over gRPC  0\n" +
				"paused               by ops at 2026-01-02 03:04:05\nbeing replayed       4 remain, 2 a second\nstart-from           3\nresolve-links        true\nmessage-timeout      1.5s\nmax-retries          5\n" +
				"retry-backoff        3\nretry-delay-at-most  70ms\nfilter               type:/^x/\n",
		},
		{
			name: "show one that is not there", args: []string{"show", "x", "g"}, asked: "admin:p GET /subscriptions/x/g/info", code: 1,
			stderr: "annals: there is no group \"g\" of the stream \"x\"\n",
		},
		{
			name: "create", args: []string{"create", "o/s", "g", "--start-from", "-1", "--message-timeout", "1500ms", "--resolve-links", "--retry-backoff", "2", "--source", "$all", "--filter", "stream:a,b"},
			asked: "admin:p PUT " + at + ` application/json {"filter":{"of":"stream","prefixes":["a","b"]},"messageTimeoutMilliseconds":1500,"resolveLinktos":true,` +
				`"retryBackoff":{"factor":2},"source":"$all","startFrom":-1}`, stdout: "o/s::g was made\n",
		},
		{
			name: "update keeps the rest", args: []string{"update", "o/s", "g", "--start-from", "4", "--filter", "type:/^a,/"},
			asked: "admin:p GET " + at + "/info\nadmin:p POST " + at +
				` application/json {"filter":{"of":"type","regex":"^a,"},"maxRetryCount":5,"messageTimeoutMilliseconds":1500,"new":1,"resolveLinktos":true,"retryBackoff":{"atMostMilliseconds":70,"factor":3},"source":"o/s","startFrom":4}`, stdout: "o/s::g was updated\n",
		},
		{
			name: "update of the factor alone", args: []string{"update", "o/s", "g", "--retry-backoff", "4"},
			asked: "admin:p GET " + at + "/info\nadmin:p POST " + at + ` application/json {"maxRetryCount":5,"messageTimeoutMilliseconds":1500,"new":1,"resolveLinktos":true,` +
				`"retryBackoff":{"atMostMilliseconds":70,"factor":4},"source":"o/s","startFrom":3,"startPosition":"3"}`, stdout: "o/s::g was updated\n",
		},
		{
			name: "update without a factor", args: []string{"update", "o/s", "g", "--retry-backoff", "0"},
			asked: "admin:p GET " + at + "/info\nadmin:p POST " + at + ` application/json {"maxRetryCount":5,"messageTimeoutMilliseconds":1500,"new":1,"resolveLinktos":true,` +
				`"retryBackoff":null,"source":"o/s","startFrom":3,"startPosition":"3"}`, stdout: "o/s::g was updated\n",
		},
		{
			name: "a delay that the wire cannot have", args: []string{"create", "o/s", "g", "--retry-delay", "500us"}, code: 2,
			stderr: "annals: --retry-delay 500µs is not in whole milliseconds\n",
		},
		{name: "no name", args: []string{"create", "o/s", ""}, code: 2, stderr: "annals: STREAM and NAME must not be empty\n"},
		{name: "update of nothing", args: []string{"update", "o/s", "g"}, code: 2, stderr: "annals: nothing to change: give flags of settings\n"},
		{
			name: "a filter that is none", args: []string{"create", "o/s", "g", "--filter", "x"}, code: 2,
			stderr: "annals: --filter \"x\" is neither none nor stream: or type: with prefixes or /expression/\n",
		},
		{name: "pause", args: []string{"pause", "o/s", "g"}, asked: "admin:p POST " + at + "/pause", stdout: "o/s::g was paused\n"},
		{name: "resume", args: []string{"resume", "o/s", "g", "--json"}, asked: "admin:p POST " + at + "/resume", stdout: "{\n  \"group\": \"g\",\n  \"stream\": \"o/s\"\n}\n"},
		{
			name: "preview", args: []string{"reset", "o/s", "g", "--to", "2026-01-02T03:04:05+01:00", "--preview"},
			asked: "admin:p GET " + at + "/reset?to=2026-01-02T03%3A04%3A05%2B01%3A00", stdout: "from 6 to 2: events that come again: at least 4; left out: 0\n",
		},
		{
			name: "reset", args: []string{"reset", "o/s", "g", "--to", "2", "--yes"},
			asked: "admin:p GET " + at + "/reset?to=2\nadmin:p POST " + at + "/reset?to=2", stdout: "from 6 to 2: events that come again: at least 4; left out: 0\n",
		},
		{name: "reset to nowhere", args: []string{"reset", "o/s", "g"}, code: 2, stderr: "annals: --to is missing: start, end, a number, a position or a time\n"},
		{name: "delete", args: []string{"delete", "o/s", "g", "--yes"}, asked: "admin:p DELETE " + at, stdout: "o/s::g was deleted\n"},
		{
			name: "parked list", args: []string{"parked", "list", "o/s", "g", "--from", "3"}, asked: "admin:p GET " + at + "/parked?from=3&count=50",
			stdout: "NUMBER  PARKED               RETRIES  EVENT  TYPE    REASON\n3       2026-01-02 03:04:05  1        8@s    t       Client explicitly NAK'ed message. no\n" +
				"4       2026-01-02 03:04:05  -        9@s    (gone)  r\n9 in all; more with --from 5\n",
		},
		{name: "parked replay", args: []string{"parked", "replay", "o/s", "g", "1", "2,3"}, asked: "admin:p POST " + at + "/parked/replay?numbers=1,2,3", stdout: "o/s::g replays parked messages\n"},
		{name: "parked replay at a rate", args: []string{"parked", "replay", "o/s", "g", "--rate", "7"}, asked: "admin:p POST " + at + "/replayParked?rate=7", stdout: "o/s::g replays parked messages\n"},
		{name: "both", args: []string{"parked", "replay", "o/s", "g", "1", "--rate", "7"}, code: 2, stderr: "annals: --rate is for all parked messages, without numbers\n"},
		{
			name: "parked drop", args: []string{"parked", "drop", "o/s", "g", "4", "--yes"}, asked: "admin:p POST " + at + "/parked/drop?numbers=4", code: 1,
			stderr: "annals: 127.0.0.1:1 refuses: Message 4 is not parked. (status 404)\n",
		},
		{name: "parked drop of none", args: []string{"parked", "drop", "o/s", "g"}, code: 2, stderr: "annals: the numbers of the messages are missing\n"},
		{
			name: "parked forward", args: []string{"parked", "forward", "o/s", "g", "d"}, asked: "admin:p POST " + at + "/parked/forward?to=d&from=0",
			stdout: "messages forwarded to d: 3; parked still, because their events are gone: 1\n",
		},
		{
			name: "parked forward of some", args: []string{"parked", "forward", "o/s", "g", "d", "1", "--json"}, asked: "admin:p POST " + at + "/parked/forward?to=d&numbers=1&from=0",
			stdout: "{\n  \"forwarded\": 3,\n  \"gone\": 1\n}\n",
		},
		{name: "parked forward to nowhere", args: []string{"parked", "forward", "o/s", "g"}, code: 2, stderr: "annals: the stream that the messages go to is missing\n"},
		{name: "not a number", args: []string{"parked", "replay", "o/s", "g", "x"}, code: 2, stderr: "annals: \"x\" is not the number of a message\n"},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Setenv(passwordVariable, "p")
			n, address := projector(t, done)
			code, stdout, stderr := runGroup(append(c.args, "--node", address)...)
			if code != c.code || stdout != c.stdout || stderr != c.stderr {
				t.Errorf("code %d\n%s%s\nwant %d\n%s%s", code, stdout, stderr, c.code, c.stdout, c.stderr)
			}
			check.Equal(t, n.asked(), c.asked, "asked ... want")
		})
	}
}
