package label

import (
	"fmt"
	"testing"

	"github.com/annalsdb/annals/internal/check"
)

func TestIndexQuery(t *testing.T) {
	for name, want := range map[string]string{
		"$idx-all":         "{Items:[] All:true System:false Index:true}",
		"$idx-ce-a-b":      "{Items:[{Types:[] Tags:[] Categories:[a-b] Streams:[] Correlation:}] All:false System:false Index:true}",
		"$idx-et-$b":       "{Items:[{Types:[$b] Tags:[] Categories:[] Streams:[] Correlation:}] All:false System:true Index:true}",
		"$idx-co-1":        "{Items:[{Types:[] Tags:[] Categories:[] Streams:[] Correlation:1}] All:false System:false Index:true}",
		"$idx-tag-show:-7": "{Items:[{Types:[] Tags:[show:-7] Categories:[] Streams:[] Correlation:}] All:false System:false Index:true}",
		"$idx-ce-":         "", "$idx-ce": "", "$idx-": "", "$idx": "", "$idx-all-": "", "$idx-user-x": "", "$idx-CE-x": "", "idx-ce-x": "",
	} {
		got := ""
		if q, ok := IndexQuery(name); ok {
			got = fmt.Sprintf("%+v", *q)
		}
		check.Equal(t, got, want, name)
	}
}
