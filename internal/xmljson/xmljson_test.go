package xmljson_test

import (
	"encoding/json"
	"encoding/xml"
	"errors"
	"io"
	"strconv"
	"strings"
	"testing"

	"github.com/annalsdb/annals/internal/check"
	"github.com/annalsdb/annals/internal/xmljson"
)

func TestAppendXML(t *testing.T) {
	for _, c := range []struct{ name, json, want string }{
		{"object", `{"a":1}`, `<data><a>1</a></data>`},
		{"nothing", ``, `<data />`},
		{"white space", " \n", `<data />`},
		{"null", `null`, `<data />`},
		{"empty object", `{}`, `<data />`},
		{"empty string", `""`, `<data></data>`},
		{"string", ` "a<b" `, `<data>a&lt;b</data>`},
		{"number keeps its digits", `12345678901234567890.10e+5`, `<data>12345678901234567890.10e+5</data>`},
		{"boolean", `true`, `<data>true</data>`},
		{"array stays text", `[1,"<"]`, `<data>[1,"&lt;"]</data>`},
		{"no json", `0@orders-7 & more`, `<data>0@orders-7 &amp; more</data>`},
		{"members", `{"a":null,"b":{},"c":"","d":false,"e":{"f":{"g":"x"}}}`, `<data><a /><b /><c></c><d>false</d><e><f><g>x</g></f></e></data>`},
		{"array of a member", `{"a":[1,"x",{"b":2},null]}`, `<data><a>1</a><a>x</a><a><b>2</b></a><a /></data>`},
		{"empty array", `{"a":[],"b":1}`, `<data><b>1</b></data>`},
		{"array in array", `{"a":[[1,2],[3]]}`, `<data><a><a>1</a><a>2</a></a><a><a>3</a></a></data>`},
		{"attributes", `{"a":{"@id":"1 \"2\"\n","@n":null,"#text":"t","b":1}}`, `<data><a id="1 &quot;2&quot;&#xA;" n="">t<b>1</b></a></data>`},
		{"attribute only", `{"a":{"@id":7}}`, `<data><a id="7" /></data>`},
		{"attribute given twice", `{"@a":1,"@a":2}`, `<data a="1"><_x0040_a>2</_x0040_a></data>`},
		{"attribute that comes late", `{"b":1,"@a":2}`, `<data><b>1</b><_x0040_a>2</_x0040_a></data>`},
		{"attribute that is no scalar", `{"@a":[1]}`, `<data><_x0040_a>1</_x0040_a></data>`},
		{"namespaces are not declared", `{"@xmlns":"urn:x","@a:b":1}`, `<data><_x0040_xmlns>urn:x</_x0040_xmlns><_x0040_a_x003A_b>1</_x0040_a_x003A_b></data>`},
		{"escaped name", `{"a\u0020\"b":"c\u0000\ud83d\ude00\r"}`, "<data><a_x0020__x0022_b>c\uFFFD😀&#xD;</a_x0020__x0022_b></data>"},
		{"names", `{"$type":1,"1st":2,"é-1.x":3,"":4,"😀":5,"_x0041_":6,"_x":7,"-a":8}`,
			`<data><_x0024_type>1</_x0024_type><_x0031_st>2</_x0031_st><é-1.x>3</é-1.x><_>4</_><_x0001F600_>5</_x0001F600_><_x005F_x0041_>6</_x005F_x0041_><_x>7</_x><_x002D_a>8</_x002D_a></data>`},
		{"characters XML lacks", "\x01\x0b\xff\xef\xbf\xbf\ttab", "<data>\uFFFD\uFFFD\uFFFD\uFFFD\ttab</data>"},
	} {
		t.Run(c.name, func(t *testing.T) {
			got := string(xmljson.AppendXML([]byte("x"), "data", []byte(c.json)))
			check.Equal(t, got, "x"+c.want, "want", c.want)
			wellFormed(t, got[1:])
		})
	}
}

func TestAppendXMLBounded(t *testing.T) {
	name := strings.Repeat("n", 100_000)
	in := `{"` + name + `":[` + strings.Repeat("1,", 100_000) + `1]}`
	got := xmljson.AppendXML(nil, "data", []byte(in))
	if len(got) > 2*len(in) || !strings.HasPrefix(string(got), `<data>{"n`) {
		t.Errorf("%d bytes grew to %d: %.50s", len(in), len(got), got)
	}
	deep := strings.Repeat(`{"a":[`, 5000) + "1" + strings.Repeat("]}", 5000)
	got = xmljson.AppendXML(nil, "data", []byte(deep))
	if want := "<data>" + strings.Repeat("<a>", 5000) + "1" + strings.Repeat("</a>", 5000) + "</data>"; string(got) != want {
		t.Errorf("deep document became %.50s", got)
	}
}

func TestEveryNameIsAllowed(t *testing.T) {
	const step = 512
	for low := rune(0); low < 0x11000; low += step {
		in := map[string]int{}
		for r := low; r < low+step; r++ {
			if r != '@' && (r < 0xD800 || r >= 0xE000) {
				in[string(r)], in["a"+string(r)] = int(r), -int(r)
			}
		}
		quoted, err := json.Marshal(in)
		check.Must(t, err)
		d, err := xmljson.Parse(xmljson.AppendXML(nil, "data", quoted))
		if err != nil {
			t.Fatalf("from U+%04X: %v", low, err)
		}
		if len(in) == 0 {
			continue
		}
		var out map[string]json.Number
		check.Must(t, json.Unmarshal(d.Root().AppendJSON(nil), &out))
		for name, number := range in {
			if out[name].String() != strconv.Itoa(number) {
				t.Fatalf("%q comes back as %q, not %d", name, out[name], number)
			}
		}
	}
}

func TestAppendJSON(t *testing.T) {
	for _, c := range []struct{ name, xml, want string }{
		{"object", `<Data><a>1</a></Data>`, `{"a":"1"}`},
		{"text", `<Data>x &lt; &#233; "y"</Data>`, `"x < é \"y\""`},
		{"empty", `<Data></Data>`, `""`},
		{"empty tag", `<Data/>`, `""`},
		{"white space is no text", "<Data> \n\t</Data>", `""`},
		{"repeated elements", `<Data><a>1</a><b/><a>2</a><a><c>3</c></a></Data>`, `{"a":["1","2",{"c":"3"}],"b":""}`},
		{"nested repeats of one name", `<a><a><a>1</a><a>2</a></a><a>3</a></a>`, `{"a":[{"a":["1","2"]},"3"]}`},
		{"attributes", `<Data id="1" n='"'><a x="y">t</a></Data>`, `{"@id":"1","@n":"\"","a":{"@x":"y","#text":"t"}}`},
		{"mixed text", `<Data>x<b/>y<b/>z</Data>`, `{"#text":["x","y","z"],"b":["",""]}`},
		{"one text", "<Data>\n <b/>\n text\n</Data>", `{"b":"","#text":"\n text\n"}`},
		{"sections and comments", `<Data>a<![CDATA[<b>]]><!-- c -->d<?pi x?>e</Data>`, `"a<b>de"`},
		{"prefixes stay", `<p:Data xmlns:p="urn:x"><p:a>1</p:a></p:Data>`, `{"@xmlns:p":"urn:x","p:a":"1"}`},
		{"escaped names", `<Data><_x0024_type>1</_x0024_type><_x0001F600_/><_x005F_x0041_/><_xD800_/></Data>`, `{"$type":"1","😀":"","_x0041_":"","_xD800_":""}`},
		{"declaration and mark", "\ufeff<?xml version=\"1.0\" encoding=\"utf-16\"?>\n<!-- c --><Data>é</Data>\n", `"é"`},
	} {
		t.Run(c.name, func(t *testing.T) {
			d := check.Value(xmljson.Parse([]byte(c.xml))).Must(t)
			for range 2 { // Marks of an earlier call do no harm.
				check.Equal(t, string(d.Root().AppendJSON(nil)), c.want)
			}
		})
	}
}

func TestElement(t *testing.T) {
	d, err := xmljson.Parse([]byte(`<r><p:a xmlns="x" xml:space="preserve">one</p:a>text<b x="1">two</b><c><d/></c></r>`))
	check.Must(t, err)
	var got []string
	for e := range d.Root().Children {
		kind := ""
		if e.IsText() {
			kind = " text"
		}
		if e.HasChildren() {
			kind += " children"
		}
		got = append(got, e.Name()+kind+" "+string(e.Text()))
	}
	if s, want := strings.Join(got, "|"), "a text one|b two|c children "; s != want {
		t.Errorf("got %s, want %s", s, want)
	}
}

func TestParseRefuses(t *testing.T) {
	deep := func(n int) string { return strings.Repeat("<a>", n) + strings.Repeat("</a>", n) }
	if _, err := xmljson.Parse([]byte(deep(xmljson.MaxDepth))); err != nil {
		t.Errorf("the deepest document: %v", err)
	}
	for name, text := range map[string]string{
		"nothing":             "",
		"only space":          " ",
		"only a declaration":  `<?xml version="1.0"?>`,
		"text":                "hello",
		"text after":          "<a/>x",
		"two roots":           "<a/><b/>",
		"not closed":          "<a><b></b>",
		"closed wrongly":      "<a></b>",
		"closed twice":        "<a></a></a>",
		"prefix differs":      "<p:a></q:a>",
		"unknown entity":      "<a>&nbsp;</a>",
		"document type":       `<!DOCTYPE a [<!ENTITY x "y">]><a>&x;</a>`,
		"external entity":     `<!DOCTYPE a SYSTEM "file:///etc/passwd"><a/>`,
		"attribute twice":     `<a b="1" b="2"/>`,
		"not UTF-8":           "<a>\xff</a>",
		"character XML lacks": "<a>\x01</a>",
		"too deep":            deep(xmljson.MaxDepth + 1),
		"json":                `{"a":1}`,
	} {
		t.Run(name, func(t *testing.T) {
			check.Fails(t, check.Err(xmljson.Parse([]byte(text))), "was taken")
		})
	}
}

func wellFormed(t *testing.T, text string) {
	t.Helper()
	dec := xml.NewDecoder(strings.NewReader(text))
	for {
		if _, err := dec.Token(); errors.Is(err, io.EOF) {
			return
		} else if err != nil {
			t.Fatalf("%s: %v", text, err)
		}
	}
}

func FuzzAppendXML(f *testing.F) {
	for _, text := range []string{`{"a":[1,{"@b":"c","#text":"d"}],"$x y":null}`, `[1]`, "\xff<", `"a"`, `{"":{"@":1,"@@":2}}`} {
		f.Add([]byte(text))
	}
	f.Fuzz(func(t *testing.T, in []byte) {
		out := xmljson.AppendXML(nil, "data", in)
		d, err := xmljson.Parse(out)
		if err != nil && !strings.Contains(err.Error(), "too deep") {
			t.Fatalf("%q became %q: %v", in, out, err)
		}
		if err == nil && d.Root().Name() != "data" {
			t.Fatalf("%q became %q", in, out)
		}
	})
}

func FuzzParse(f *testing.F) {
	for _, text := range []string{`<Data a="b">x<c>1</c><c/>y</Data>`, `<a><![CDATA[x]]></a>`, `<a>&#x41;<b></a>`, `<_x0041_/>`} {
		f.Add([]byte(text))
	}
	f.Fuzz(func(t *testing.T, in []byte) {
		d, err := xmljson.Parse(in)
		if err != nil {
			return
		}
		out := d.Root().AppendJSON(nil)
		if !json.Valid(out) {
			t.Fatalf("%q became %q", in, out)
		}
		if d.Root().IsText() && len(d.Root().Text()) > len(in) {
			t.Fatalf("text of %q is longer than all of it", in)
		}
		wellFormed(t, string(xmljson.AppendXML(nil, "data", out)))
	})
}

func TestAppendText(t *testing.T) {
	const in = "a&b<c>\"d'\r\n\t\x00é\xff"
	if got, want := string(xmljson.AppendText([]byte("x"), in)), "xa&amp;b&lt;c&gt;\"d'&#xD;\n\t\uFFFDé\uFFFD"; got != want {
		t.Errorf("got %q, want %q", got, want)
	}
	if got, want := string(xmljson.AppendAttribute(nil, []byte(in))), "a&amp;b&lt;c&gt;&quot;d'&#xD;&#xA;&#x9;\uFFFDé\uFFFD"; got != want {
		t.Errorf("got %q, want %q", got, want)
	}
}
