package ui_test

import (
	"context"
	"fmt"
	"net/url"
	"strings"
	"testing"

	"github.com/google/uuid"

	"github.com/annalsdb/annals/internal/testkit"
)

// markup runs when it becomes a part of a page.
const markup = `<img src=x onerror="window.ran=1"><script>window.ran=1</script>'"&`

// TestHostile shows names, types and payloads that are markup, or too large, or odd, as
// text, and runs none of them.
func TestHostile(t *testing.T) {
	n := startNode(t)
	for _, stream := range []string{markup, "a/b", "%2F", "a b?c#d", "../..", "ünï"} {
		ask(t, n, "POST", "/streams/"+url.PathEscape(stream), `[{"eventId":"`+uuid.NewString()+`","eventType":`+quote(markup)+`,"data":{`+quote(markup)+`:`+quote(markup)+`,"n":9223372036854775807},"metadata":{"$correlationId":`+quote(markup)+`}}]`,
			"Content-Type", "application/vnd.eventstore.events+json")
	}
	deep := strings.Repeat(`{"a":[`, 5000) + "1" + strings.Repeat("]}", 5000)
	appendTo(t, n, "deep", "T", deep)
	appendTo(t, n, "large", "T", `{"text":"`+strings.Repeat("x", 1_000_000)+`","list":[`+strings.Repeat("1,", 100_000)+`1]}`)
	ask(t, n, "POST", "/streams/html", `<html><script>window.ran=1</script></html>`, "Content-Type", "application/octet-stream", "ES-EventType", "html", "ES-EventId", uuid.NewString())
	ask(t, n, "POST", "/users/", `{"loginName":`+quote(markup)+`,"fullName":`+quote(markup)+`,"groups":[`+quote(markup)+`],"password":"p"}`)
	ask(t, n, "PUT", "/subscriptions/"+url.PathEscape("a/b")+"/"+url.PathEscape("<b>g"), `{"startFrom":0}`)

	p := newBrowser(t).open(t, n.URL(), "admin", "#/streams").mayRefuse(404)
	p.h1("Streams")
	for _, stream := range []string{markup, "a/b", "%2F", "a b?c#d", "../..", "ünï"} {
		p.goTo("#/")
		p.h1("Overview")
		p.enter("searchbox", "Go to stream or event", stream)
		p.h1(stream)
		p.click("link", "0@"+stream)
		p.h1("0@" + stream)
		p.find("tree", "Data")
		p.sees("9223372036854775807")
		p.click("link", "Append like this")
		p.h1("Append event")
		p.goTo(address("streams", stream, "metadata"))
		p.h1("Access and limits")
	}
	for _, c := range []struct{ hash, h1 string }{
		{"#/streams", "Streams"}, {"#/streams/%24all", "$all"}, {address("correlation", markup), "Correlation"}, {"#/users", "Users"}, {address("users", markup), markup}, {"#/subscriptions", "Subscriptions"},
		{address("subscriptions", "a/b", "<b>g"), "<b>g"}, {address("subscriptions", "a/b", "<b>g", "parked"), "Parked messages"}, {"#/streams/deep/0", "0@deep"}, {"#/streams/large/0", "0@large"}, {"#/search?types=" + url.QueryEscape(markup) + "&run=1", "Search"},
		{"#/streams/html/0", "0@html"}, {"#/streams/deep/99999999999999999999", "99999999999999999999@deep"}, {"#/%E0%A4%A", "Not found"},
	} {
		p.mayRefuse(400)
		p.goTo(c.hash)
		p.h1(c.h1)
		p.clean()
		p.picture("hostile " + c.h1)
		p.fits("hostile " + c.h1)
		if nodes := value[int](p, "document.querySelectorAll('*').length"); nodes > 3000 {
			t.Errorf("%s has %d elements, at most 3000 are wanted", c.hash, nodes)
		}
	}
	if value[bool](p, "window.ran === 1") {
		t.Error("stored content was run")
	}
	p.check()

	// What is stored, opened in a tab as it is.
	for _, path := range []string{"/streams/html/0?format=html", "/streams/html/0", "/streams/" + url.PathEscape(markup) + "/0"} {
		r, err := n.Do(context.Background(), testkit.Request{Path: path, Header: map[string]string{"Accept": "*/*"}})
		if err != nil {
			t.Fatal(err)
		}
		if r.Header.Get("X-Content-Type-Options") != "nosniff" || !strings.Contains(r.Header.Get("Content-Security-Policy"), "default-src 'none'") {
			t.Errorf("%s: %v", path, r.Header)
		}
	}
}

// TestLib tests the pure functions in the browser, by import.
func TestLib(t *testing.T) {
	n := startNode(t)
	p := newBrowser(t).open(t, n.URL(), "", "#/")
	p.h1("Overview")
	folder := value[string](p, "document.querySelector('script[type=module]').src.replace('main.js', 'lib/')")
	check := func(module, expression, want string) {
		t.Helper()
		got := value[string](p, fmt.Sprintf("import(%q).then(async (m) => String(await (%s)))", folder+module, expression))
		if got != want {
			t.Errorf("%s: %s is %q, not %q", module, expression, got, want)
		}
	}
	for _, c := range [][2]string{
		{`m.print(m.parse('{"b":1,"a":9223372036854775807.10,"b":[]}')).replace(/\s+/g, " ")`, `{ "b": 1, "a": 9223372036854775807.10, "b": [] }`},
		{`m.read('{"n":9223372036854775807}').n`, "9223372036854775807"}, {`m.read('{"n":1.5}').n`, "1.5"}, {`m.read('{"__proto__":{"x":12345678901234567}}').x`, "undefined"},
		{`m.check('{"a":1,}')`, "Line 1, column 8: A name in double quotes was expected here."}, {`m.check('[1,\n 2')`, "Line 2, column 3: The text ends too early."}, {`m.check('01')`, "Line 1, column 2: The text should end here."}, {`m.check('')`, "Line 1, column 1: The text ends too early."},
		{`m.print(m.parse("[".repeat(100000) + "]".repeat(100000))).length > 0`, "true"}, {`m.pretty("no json")`, "no json"}, {`m.parse('"\\u00e4\\n"').value`, "ä\n"}, {`m.check('"a\nb"') !== ""`, "true"},
		{`m.parse('"' + "x".repeat(5000000) + '"').value.length`, "5000000"},
		{`m.short(m.prefix('{"a":1,"b":{"c":[1,{"d":12'))`, "{ a, b }"}, {`m.print(m.prefix('{"a":1,"b":12')).replace(/\s+/g, "")`, `{"a":1}`}, {`m.print(m.prefix('[1,"x')).replace(/\s+/g, "")`, `[1]`}, {`m.prefix("plain")`, "null"},
	} {
		check("json.js", c[0], c[1])
	}
	for _, c := range [][2]string{
		{`m.oneLine('{\n "a" : 1, "b":"x ,\\" y" }')`, `{"a": 1, "b": "x ,\" y"}`}, {`m.oneLine("two\nlines, of  text")`, "two lines, of text"},
		{`JSON.stringify(m.preview('{"a":"<b>"}', "", "<b>").parts)`, `[{"text":"{\"a\": \"","hit":false},{"text":"<b>","hit":true},{"text":"\"}","hit":false}]`},
		{`m.preview('{"a":"' + "x".repeat(500) + 'needle"}', "", "needle").parts.map((p) => p.text).join("")`, "…" + strings.Repeat("x", 30) + `needle"}`},
		{`m.preview("{}", '{"by":"me"}', "me").where`, "metadata"}, {`m.preview("{}", "", "me").where`, "further on"}, {`m.preview("\u0000\u0001a").where`, "binary"}, {`m.preview("").where`, "none"},
		{`m.preview('{"t":"' + "x".repeat(500)).parts[0].text.length`, "121"}, {`m.mark("aXbX", "X").map((p) => p.hit + p.text).join()`, "falsea,trueX,falseb,trueX"},
		{`m.fields(['{"a":1,"b":{"c":1,"d":[1]}}', '{"b":{"c":3}}', "no JSON", undefined]).map(m.pathText).join()`, "b.c,a,b.d"}, {`m.pathText(["a b", "c"])`, `["a b"].c`},
		{`import("` + folder + `json.js").then((j) => m.field(j.parse('{"a":{"b":9223372036854775807}}'), ["a", "b"]))`, "9223372036854775807"},
		{`JSON.stringify(m.readChosen('{"s":[["a"]],"t":[1],"u":"x"}'))`, `{"s":[["a"]]}`}, {`JSON.stringify(m.readChosen("no JSON"))`, "{}"}, {`JSON.stringify(m.choose({a: [["x"]], b: [["y"]]}, "a", [["z"]]))`, `{"b":[["y"]],"a":[["z"]]}`}, {`JSON.stringify(m.choose({a: [["x"]]}, "a", []))`, "{}"},
	} {
		check("preview.js", c[0], c[1])
	}
	for _, c := range [][2]string{
		{`m.readTime("2026-11-24 14:05", true, new Date())`, "2026-11-24T14:05:00.000Z"}, {`m.readTime("2026-11-24 14:05", false, new Date())`, "2026-11-24T13:05:00.000Z"}, {`m.readTime("2026-11-24T14:05:00+02:00", true, new Date())`, "2026-11-24T12:05:00.000Z"},
		{`m.readTime("Tuesday 14:05", true, new Date("2026-11-26T10:00:00Z"))`, "2026-11-24T14:05:00.000Z"}, {`m.readTime("Thu 14:05", true, new Date("2026-11-26T10:00:00Z"))`, "2026-11-19T14:05:00.000Z"}, {`m.readTime("14:05", true, new Date("2026-11-26T10:00:00Z"))`, "2026-11-26T14:05:00.000Z"},
		{`m.readTime("soon", true, new Date())`, "null"}, {`m.readTime("7", true, new Date())`, "null"}, {`m.time("2026-11-24T14:05:00.123456Z", true)`, "2026-11-24 14:05:00.123 UTC"},
		{`m.bytes(1536)`, "1.5 KiB"}, {`m.count(1234567)`, "1,234,567"}, {`m.span(90061000)`, "25 h"}, {`m.plural(1, "event")`, "1 event"}, {`m.isGuid("00000000-0000-4000-8000-000000000001")`, "true"},
	} {
		check("format.js", c[0], c[1])
	}
	for _, c := range [][2]string{
		{`m.lines("a\nb\nc", "a\nx\nc").map((l) => l.sign + l.text).join("|")`, " a|-b|+x| c"}, {`m.lines("", "a").map((l) => l.sign + l.text).join("|")`, "+a"}, {`m.lines("a\nb\na", "b\na\nb").filter((l) => l.sign !== " ").length`, "2"}, {`m.lines("x", "x").length`, "1"},
	} {
		check("diff.js", c[0], c[1])
	}
	for _, c := range [][2]string{
		{`m.to(["streams", "a/b", 3], {from: "", live: 1})`, "#/streams/a%2Fb/3?live=1"}, {`m.parse("#/streams/a%2Fb/3?live=1").parts.join("|")`, "streams|a/b|3"}, {`m.parse("#/%E0%A4%A").parts[0]`, "%E0%A4%A"},
		{`m.official(["streams", "s", "head", "backward", "20"])`, "#/streams/s?size=20"}, {`m.official(["dashboard"])`, "#/"}, {`m.official(["streams", "s", "addEvent"])`, "#/streams/s/append"}, {`m.eventName("7@a@b").stream`, "a@b"}, {`m.path("$a/ä")`, "$a%2F%C3%A4"},
	} {
		check("address.js", c[0], c[1])
	}
	const known = `{step: 10, from: "2026-11-24T14:00:00Z", series: {a: [1, 2, null], b: [7, 8, 9]}}`
	for _, c := range [][2]string{
		{"JSON.stringify(m.join(" + known + `, {step: 10, from: "2026-11-24T14:00:20Z", series: {a: [3, 4], b: [5, 6]}}, 3))`, `{"step":10,"from":"2026-11-24T14:00:10.000Z","series":{"a":[2,3,4],"b":[8,5,6]}}`},
		{"m.join(" + known + `, {step: 10, from: "2026-11-24T14:00:40Z", series: {a: [3], b: [5]}}, 3)`, "null"}, {"m.join(" + known + `, {step: 10, from: "2026-11-24T14:00:20Z", series: {c: [3]}}, 3)`, "null"},
		{`[m.last([1, 0, null]), m.last([null]), m.last(), m.peak([1, null, 3]), m.peak([])].join()`, "0,,,3,0"},
		{`m.trace([1, null, 2, 4, null], 8, 4).line`, "M0 6.0h.6M2 4.0L3 0.0"}, {`m.trace([1, null, 2, 4], 8, 4).area`, "M0 8V6.0h.6V8ZM2 8V4.0L3 0.0V8Z"}, {`m.trace([], 8, 0).line`, ""},
		{`[m.scale(7, false), m.scale(0, false), m.scale(0.3, false), m.scale(5000, true), m.scale(1, true)].map((s) => s.step + " " + s.top).join()`, "2.5 7.5,0.5 0.5,0.1 0.30000000000000004,2048 6144,1 1"},
		{`m.beats(7, 61, 4).join()`, "30,60"}, {`m.beats(0, 3600, 6).join()`, "0,600,1200,1800,2400,3000,3600"}, {`m.beats(5, 5, 4).join()`, "5"},
	} {
		check("series.js", c[0], c[1])
	}
	for _, c := range [][2]string{
		{`m.ticks(1800, 5).join()`, "0,500,1000,1500"}, {`m.ticks(0, 5).join()`, "0"}, {`m.ticks(90 * 60000, 5).join()`, "0,1800000,3600000,5400000"}, {`(m.instant("2026-11-24T14:05:00.123456Z") % 1000).toFixed(3)`, "123.456"}, {`m.instant("2026-11-24T14:05:00Z") % 1000`, "0"},
		// Two at once are below each other; a third has room in the first row.
		{`m.layout([{key: "a", at: 0, lane: "s", label: "A"}, {key: "b", at: 0, lane: "s", label: "B", cause: "a"}, {key: "c", at: 1000, lane: "s", label: "C", cause: "gone"}], 100, 1000).marks.map((p) => p.x + ":" + p.y).join()`, "100:52,100:78,844:52"},
		{`m.layout([{key: "b", at: 5, lane: "t", label: "B", cause: "a"}, {key: "a", at: 0, lane: "s", label: "A"}], 100, 1000, true).arrows.length`, "1"}, {`m.layout([], 100, 1000).marks.length`, "0"},
	} {
		check("timeline.js", c[0], c[1])
	}
	check("curl.js", `m.curl("POST", "http://h/streams/a", {Accept: "x", Authorization: "secret"}, "it's", "o'neil")`, `curl -i -u 'o'\''neil' -X POST -H 'Accept: x' --data-binary 'it'\''s' http://h/streams/a`)
}
