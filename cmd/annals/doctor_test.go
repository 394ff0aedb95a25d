package main

import (
	"bytes"
	"strings"
	"testing"
)

func TestDoctor(t *testing.T) {
	t.Setenv(passwordVariable, "")
	const fine = `{"check":"fsync","ok":true,"text":"8 ms","remedy":""}`
	for _, c := range []struct {
		name, answer string
		code         int
		want         string
	}{
		{"fine", `{"ok":true,"findings":0,"checks":[` + fine + `]}`, 0, "ok    fsync: 8 ms\n"},
		{"wrong", `{"ok":false,"findings":1,"checks":[` + fine + `,{"check":"clock","ok":false,"text":"2 s ahead","remedy":"run chrony"}]}`, 1,
			"ok    fsync: 8 ms\nWRONG clock: 2 s ahead\n      run chrony\n"},
		{"no node", `{}`, 2, ""},
		{"not permitted", `401 `, 2, ""},
		{"older node", `404 `, 2, ""},
	} {
		t.Run(c.name, func(t *testing.T) {
			_, address := scavenger(t, map[string][]string{"GET " + doctorPath: {c.answer}})
			var out, complaints bytes.Buffer
			if code := run([]string{"doctor", "--node", address}, &out, &complaints, nil); code != c.code || out.String() != c.want || (code == 2) == (complaints.Len() == 0) {
				t.Errorf("code %d, %q, %q", code, out.String(), complaints.String())
			}
			out.Reset()
			if code := run([]string{"doctor", "--json", "--node", address}, &out, &complaints, nil); code != c.code || code < 2 && !strings.Contains(out.String(), `"ok": `) {
				t.Errorf("JSON: code %d, %q", code, out.String())
			}
		})
	}
	var out, complaints bytes.Buffer
	if code := run([]string{"doctor", "--node", "127.0.0.1:1"}, &out, &complaints, nil); code != 2 || !strings.Contains(complaints.String(), "127.0.0.1:1") {
		t.Errorf("nobody there: code %d, %q", code, complaints.String())
	}
}
