package event_test

import (
	"testing"

	"github.com/annalsdb/annals/event"
	"github.com/annalsdb/annals/internal/check"
)

var metadataTexts = []string{
	`{}`, ` { } `, `{"$maxCount":5}`, `{"$maxCount":0}`, `{"$maxCount": 12 , "$tb":3,"$maxAge":7}`, `{"$maxCount":5,"$maxCount":6}`,
	`{"$maxCount":-1}`, `{"$maxCount":1.5}`, `{"$maxCount":1e3}`, `{"$maxCount":05}`, `{"$maxCount":"5"}`, `{"$maxCount":null,"$tb":4}`, `{"$maxCount":true}`,
	`{"$tb":9223372036854775807}`, `{"$tb":999999999999999999}`, `{"$tb":9999999999999999999}`, `{"$maxAge":9223372036}`, `{"$maxAge":9223372037}`, `{"$maxAge":0}`,
	`{"$acl":{"$r":"x","$w":["a","b"],"$d":[]},"$tb":3}`, `{"$acl":{"$r":5},"$tb":3}`, `{"$acl":{"$r":["a",]},"$tb":3}`, `{"$acl":null,"$tb":3}`, `{"$acl":{},"$tb":3}`,
	`{"$acl":{"$r":null},"$tb":3}`, `{"$acl":"x","$tb":3}`, `{"$acl":{"x":{}},"$tb":3}`, `{"$acl":{"$r":"\u0041"},"$tb":3}`, `{"$acl":{"$r":"ä"},"$tb":3}`, "{\"$acl\":{\"$r\":\"\xff\"},\"$tb\":3}",
	`{"$cacheControl":3,"$tb":1}`, `{"$cacheControl":"x","$tb":1}`, `{"other":3,"$tb":1}`, `{"other":{"$tb":2},"$tb":1}`, `{"other":"x","$tb":1}`, `{"\u0024tb":2}`,
	`{"maxCount":5}`, `{"maxCount":5,"$maxCount":6}`, `{"$maxCount":6,"maxCount":5}`, `{"truncateBefore":3,"maxAge":7}`, `{"maxCount":"5","$tb":3}`, `{"cacheControl":5,"$tb":3}`,
	`{"acl":{"r":5},"$tb":3}`, `{"acl":5,"$tb":3}`, `{"$maxCount":1e21,"$tb":3}`, `{"$maxCount":99999999999999999999,"$tb":99999999999999999999}`,
	``, ` `, `[]`, `5`, `"x"`, `null`, `{`, `{"$tb":1`, `{"$tb":1,}`, `{,}`, `{"$tb":1}x`, `{"$tb":1} {}`, `{"$tb"}`, `{"$tb":}`, `{"$TB":3}`, "{\"$tb\":1}\x00", "\ufeff{\"$tb\":1}", `no metadata`,
}

func checkRetention(t *testing.T, text []byte) {
	t.Helper()
	want := event.ParseMetadata(text).Retention
	check.Equal(t, event.ParseRetention(text), want, text)
}

func TestParseRetention(t *testing.T) {
	for _, text := range metadataTexts {
		checkRetention(t, []byte(text))
	}
}

func FuzzParseRetention(f *testing.F) {
	for _, text := range metadataTexts {
		f.Add([]byte(text))
	}
	f.Fuzz(func(t *testing.T, text []byte) { checkRetention(t, text) })
}

func BenchmarkParseRetention(b *testing.B) {
	for name, text := range map[string]string{"plain": `{"$maxCount":10}`, "acl": `{"$maxCount":10,"$acl":{"$r":"x","$w":["a","b"]}}`, "parsed": `{"$maxCount":10,"owner":"x"}`} {
		b.Run(name, func(b *testing.B) {
			data := []byte(text)
			for b.Loop() {
				event.ParseRetention(data)
			}
		})
	}
}
