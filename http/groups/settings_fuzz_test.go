package groups

import (
	"encoding/json"
	"errors"
	"strings"
	"testing"

	"github.com/annalsdb/annals/http/args"
	"github.com/annalsdb/annals/http/media"
	"github.com/annalsdb/annals/http/problem"
	"github.com/annalsdb/annals/subscription"
)

func FuzzSettings(f *testing.F) {
	for _, s := range []string{
		``, `{}`, `{"bufferSize":"500","RESOLVELINKTOS":"True","startFrom":-1}`, `{"startPosition":"x"}`, `{"namedConsumerStrategy":"","preferRoundRobin":true}`,
		`{"maxRetryCount":99999999999999999999}`, `[]`, `{`, "\xef\xbb\xbf{}", `<SubscriptionConfigData><BufferSize>5</BufferSize></SubscriptionConfigData>`, `<SubscriptionConfigData/>`, `<a>`,
	} {
		f.Add([]byte(s))
	}
	f.Fuzz(func(t *testing.T, body []byte) {
		for _, form := range []media.Form{media.FormJSON, media.FormTextXML} {
			m := decodeSettings(form, body)
			err := m.Err
			if err == nil && form == media.FormJSON && strings.TrimSpace(strings.TrimPrefix(string(body), string(args.ByteOrderMark))) != "" {
				var want map[string]json.RawMessage
				if err := json.Unmarshal([]byte(strings.TrimPrefix(string(body), string(args.ByteOrderMark))), &want); err != nil {
					t.Fatalf("%q was taken: %v", body, err)
				}
			}
			var s subscription.Settings
			if err == nil {
				s, err = settings(m)
			}
			var plain *subscription.SettingsError
			switch {
			case err == nil:
				if s.ValidateSizes() != nil || s.Strategy == "" {
					t.Fatalf("%q became %+v", body, s)
				}
			case errors.As(err, &plain) && !plain.Plain:
				t.Fatalf("%q was judged too early: %v", body, err)
			default:
				if p, known := problem.Of(err, problem.Writing); !known || p.Status != 400 || p.Text == "" {
					t.Fatalf("%v became %+v", err, p)
				}
			}
		}
	})
}
