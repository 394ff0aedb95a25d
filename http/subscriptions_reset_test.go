package httpapi_test

import (
	"fmt"
	"net/http"
	"strings"
	"testing"
	"testing/synctest"

	"github.com/annalsdb/annals/internal/check"
)

func TestResetOfAGroup(t *testing.T) {
	running(t, func(s *subscriber) {
		s.events(0, 6)
		s.create("")
		for _, e := range s.takes(4, "0 1 2 3") {
			s.answers(e, "ack", "")
		}
		at := s.group + "/reset"
		for query, text := range map[string]string{
			"": "to must be start, end, an event number, a position or a time (RFC 3339)", "?to=-1": "to must be", "?to=C:1": "to must be", "?to=C:-1/P:-1": "to must be",
			"?to=7": "7 is beyond the end, which is 6.",
		} {
			s.manages("GET", at+query, "").is(t, 400).says(t, text)
			s.manages("POST", at+query, "").is(t, 400).says(t, text)
		}
		s.manages("POST", s.group+"x/reset?to=1", "").results(t, 404, "DoesNotExist", "Group 'gx' does not exist.")
		s.do("GET", at+"?to=1", "", as("jane", "changeit")).is(t, 401)
		for query, want := range map[string]string{
			"?to=2": `"to": "2"|"again": 2|"leftOut": 0`, "?to=Start": `"to": "0"|"again": 4`, "?to=end": `"to": "6"|"leftOut": 2`,
			"?to=1970-01-01T00:00:00Z": `"to": "0"`, "?to=2999-01-01T00:00:00%2B01:00": `"to": "6"`,
			"?to=C:0/P:0": `"to": "0"`, "?to=7FFFFFFFFFFFFFFF7FFFFFFFFFFFFFFF": `"to": "6"`, "?to=00000000000000000000000000000000": `"to": "0"`,
		} {
			body := s.manages("GET", at+query, "").is(t, 200).body
			for part := range strings.SplitSeq(want, "|") {
				check.Contains(t, body, part, query+" lacks")
			}
		}
		check.Contains(t, s.manages("POST", at+"?to=2", "").is(t, 200).body, `"from": "4"`, "lacks")
		synctest.Wait()
		s.takes(9, "2 3 4 5")
		check.Equal(t, *s.info().LastCheckpointedEventPosition, "1", "checkpoint")
	})
}

func TestSourceOfAGroup(t *testing.T) {
	running(t, func(s *subscriber) {
		s.events(0, 3)
		s.create("")
		read := func(who http.Header) answer { return s.do("GET", s.group, "", who) }
		read(as("jane", "changeit")).is(t, 200)
		update := func(body string) answer {
			defer synctest.Wait()
			return s.manages("POST", s.group, body)
		}
		for body, text := range map[string]string{
			`{"source":1}`: "source must be", `{"filter":1}`: "filter must be", `{"filter":{"of":"x","regex":"y"}}`: "filter must be",
			`{"filter":{"of":"type","regex":"y","prefixes":["z"]}}`: "filter must be",
			`{"filter":{"of":"type"}}`:                              "filter must be", `{"filter":{"of":"type","prefix":["z"]}}`: "filter must be",
			`{"filter":{"prefix":["z"]}}`: "filter must be", `{"filter":{"of":"type","prefixes":["z",""]}}`: "filter must be",
			`{"filter":{"prefixes":["z"]}}`: "filter must be",
			`{"startPosition":"C:0/P:0"}`:   "startPosition must be",
		} {
			update(body).is(t, 400).says(t, text)
		}
		update(`{"filter":{"of":"type","regex":"y"}}`).results(t, 400, "Fail", "Invalid filter: only the events of $all can be filtered.")
		update(`{"source":"$all","startPosition":"C:0/P:0","filter":{"of":"stream","prefixes":["s","t"]}}`).results(t, 200, "Success", "")
		read(as("jane", "changeit")).is(t, 401)
		s.do("POST", s.group+"/ack?ids="+s.id(), "", as("jane", "changeit")).is(t, 401)
		info := s.info()
		check.Equal(t, fmt.Sprint(info.Config["source"], info.Config["filter"]), "$allmap[of:stream prefixes:[s t]]", "config")
		check.Contains(t, s.manages("GET", s.group+"/reset?to=start", "").is(t, 200).body, `"to": "C:0/P:0"`, "lacks")
		s.takes(9, "0 1 2")
		update(`{"source":"s"}`).results(t, 200, "Success", "")
		read(as("jane", "changeit")).is(t, 200)
	})
}
