package xmljson_test

import (
	"fmt"
	"strings"
	"testing"

	"github.com/annalsdb/annals/internal/xmljson"
)

// Documents that are nothing but markup are refused before they are parsed, whatever the
// markup is and whatever hides it; large texts are not.
func TestSize(t *testing.T) {
	attributes := func(n int) string {
		var b strings.Builder
		for i := range n {
			fmt.Fprintf(&b, " a%d='>'", i)
		}
		return b.String()
	}
	const many = 2 * xmljson.MaxElements
	for _, c := range []struct {
		name, text string
		refused    bool
	}{
		{"elements", "<r>" + strings.Repeat("<a/>", many) + "</r>", true},
		{"pairs of tags", "<r>" + strings.Repeat("<a></a>", many) + "</r>", true},
		{"attributes of one element", "<r" + attributes(xmljson.MaxAttributes+1) + "/>", true},
		{"attributes of all", "<r>" + strings.Repeat("<a"+attributes(100)+"/>", many/100) + "</r>", true},
		{"after a quoted bracket", `<r a=">" ` + attributes(xmljson.MaxAttributes+1) + "/>", true},
		{"after a comment", "<r><!-- <a b=' -->" + strings.Repeat("<a/>", many) + "</r>", true},
		{"after a section", "<r><![CDATA[<a b=']]>" + strings.Repeat("<a/>", many) + "</r>", true},
		{"after an instruction", "<?x <a b=' ?><r>" + strings.Repeat("<a/>", many) + "</r>", true},
		{"deep", strings.Repeat("<a>", xmljson.MaxDepth+1), true},

		{"as many as can be", "<r>" + strings.Repeat("<a/>", xmljson.MaxElements) + "</r>", false},
		{"attributes as many as can be", "<r" + attributes(xmljson.MaxAttributes) + "/>", false},
		{"markup in a section", "<r><![CDATA[" + strings.Repeat("<a/>", many) + "]]></r>", false},
		{"markup in a comment", "<r><!--" + strings.Repeat("<a/>", many) + "--></r>", false},
		{"long text", "<r>" + strings.Repeat("x", 1<<20) + "</r>", false},
		{"quotes in a text", "<r>" + strings.Repeat(`'"`, many) + "</r>", false},
	} {
		t.Run(c.name, func(t *testing.T) {
			if _, err := xmljson.Parse([]byte(c.text)); (err != nil) != c.refused {
				t.Errorf("got %v", err)
			}
		})
	}
}
