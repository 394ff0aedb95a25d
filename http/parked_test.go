package httpapi_test

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/annalsdb/annals/internal/check"
)

func TestParkedDesk(t *testing.T) {
	running(t, func(s *subscriber) {
		s.events(0, 4)
		s.create("")
		for _, e := range s.takes(4, "0 1 2 3") {
			s.answers(e, "nack", "?action=park")
		}
		at := s.group + "/parked"
		post := func(path, body string) answer { return s.manages("POST", at+path, body) }
		view := "/subscriptions/viewparkedmessages/s/g/head/backward/5?embed=tryharder"
		viewed := func(want string) {
			t.Helper()
			v := s.viewed(view)
			check.Equal(t, fmt.Sprint(v.numbers()), want, "viewed")
		}
		viewed("3 2 1 0")
		for path, body := range map[string]string{"/replay": "", "/replay?numbers=": "", "/drop?numbers=1,x": "", "/drop?numbers=-1": "", "/drop?numbers=" + strings.Repeat("1,", 100) + "1": "",
			"/note?number=x": "{}", "/note?number=0": `{"text":1}`, "/note?number=1": `{"text":"` + strings.Repeat("ä", 1001) + `"}`} {
			if post(path, body).is(t, 400).body == "" {
				t.Errorf("%s: nothing is said", path)
			}
		}
		for _, query := range []string{"?from=x", "?from=9223372036854775808", "?count=0", "?count=501"} {
			s.get(at+query, appJSON).is(t, 400)
		}
		post("/drop?numbers=0,9223372036854775807", "").is(t, 404).says(t, "Message 9223372036854775807 is not parked.")
		s.do("POST", at+"/drop?numbers=0", "", as("jane", "changeit")).is(t, 401)
		s.do("POST", at+"/note?number=0", `{"text":"x"}`, as("jane", "changeit")).is(t, 401)
		s.do("GET", at, "", nil).is(t, 401)
		post("/note?number=1", `{"text":"ours"}`).is(t, 200)
		post("/drop?numbers=0", "").is(t, 200)
		post("/replay?numbers=2", "").is(t, 200)
		check.Equal(t, s.info().ParkedMessageCount, 2, "count")
		body := s.get(at+"?count=1", appJSON).is(t, 200).body
		for _, part := range []string{`"total": 2`, `"number": 1`, `"next": 3`, `"text": "ours"`, `"by": "admin"`, `"streamId": "s"`, `"data": "{\"n\":1}"`} {
			check.Contains(t, body, part, "lacks")
		}
		viewed("3 1")
		post("/drop?numbers=1,3", "").is(t, 200)
		viewed("")
		s.takes(9, "2")
	})
}

func TestParkedForward(t *testing.T) {
	running(t, func(s *subscriber) {
		s.events(0, 4)
		s.create("")
		for _, e := range s.takes(4, "0 1 2 3") {
			s.answers(e, "nack", "?action=park")
		}
		at := s.group + "/parked"
		for path, text := range map[string]string{
			"/forward": "to must be", "/forward?to=": "to must be", "/forward?to=$all": "to must be", "/forward?to=$$s": "to must be", "/forward?to=$idx-et-x": "to must be",
			"/forward?to=$persistentsubscription-s::g-parked": "to must be", "/forward?to=$persistentsubscription-s::g-desk": "to must be",
			"/forward?to=$persistentsubscription-s::g-checkpoint": "to must be",
			"/forward?to=d&numbers=":                              "numbers must be", "/forward?to=d&from=x": "from must be", "/replay?rate=0": "rate must be", "/replay?rate=1&numbers=1": "rate is for all",
		} {
			s.manages("POST", at+path, "").is(t, 400).says(t, text)
		}
		s.manages("POST", s.group+"/replayParked?rate=10001", "").is(t, 400).says(t, "rate must be")
		s.manages("POST", s.group+"x/parked/forward?to=d", "").results(t, 404, "DoesNotExist", "Group 'gx' does not exist.")
		s.do("POST", at+"/forward?to=$dead", "", as("ops", "changeit")).is(t, 401)
		s.do("POST", at+"/forward?to=d", "", as("jane", "changeit")).is(t, 401)
		check.Equal(t, s.manages("POST", at+"/forward?to=d&numbers=1,2", "").is(t, 200).body, "{\n  \"forwarded\": 2,\n  \"to\": \"d\"\n}", "answer")
		s.manages("POST", at+"/forward?to=d&numbers=1", "").is(t, 404).says(t, "Message 1 is not parked.")
		s.manages("POST", at+"/replay?rate=1", "").is(t, 200)
		s.takes(9, "0")
		check.Contains(t, s.get(s.group+"/info", appJSON).body, `"messagesPerSecond": 1`, "lacks")
		time.Sleep(time.Minute)
		s.takes(9, "0 3")
	})
}

// TestParkedDeskFull: what is kept of settled messages and notes is bounded.
func TestParkedDeskFull(t *testing.T) {
	running(t, func(s *subscriber) {
		const parked = 140
		s.events(0, parked)
		s.create("")
		for range parked / 70 {
			for _, e := range s.read(70).Entries {
				s.answers(e, "nack", "?action=park")
			}
		}
		note := `{"text":"` + strings.Repeat("\U0001F4DD", 1000) + `"}`
		leave := func(number int) answer {
			return s.manages("POST", fmt.Sprintf("%s/parked/note?number=%d", s.group, number), note)
		}
		number := 1
		for ; number < parked; number++ {
			if r := leave(number); r.status != 200 {
				r.is(t, 400).says(t, "The desk is full: replay or drop the oldest messages, or take notes away")
				break
			}
		}
		if number == parked {
			t.Fatal("the desk is never full")
		}
		s.manages("POST", s.group+"/parked/note?number=1", `{"text":""}`).is(t, 200)
		leave(number).is(t, 200)
	})
}
