package position_test

import (
	"encoding/json"
	"errors"
	"math"
	"reflect"
	"testing"

	"github.com/annalsdb/annals/internal/check"
	"github.com/annalsdb/annals/projection/position"
)

func streams(pairs ...any) position.Position {
	p := position.Position{Numbers: []position.Number{}}
	for i := 0; i < len(pairs); i += 2 {
		p.Numbers = append(p.Numbers, position.Number{Name: pairs[i].(string), Number: int64(pairs[i+1].(int))})
	}
	return p
}

func inLog(c, p int64, types ...string) position.Position {
	at := position.OfLog(types...)
	at.Commit, at.Prepare = c, p
	return at
}

func TestForms(t *testing.T) {
	for _, c := range []struct {
		name       string
		p          position.Position
		json, text string
		isZero     bool
	}{
		{"one stream", streams("a", 7), `{"$s":{"a":7}}`, "a: 7", false},
		{"one stream at its start", position.Of("a"), `{"$s":{"a":-1}}`, "a: -1", true},
		{"streams", streams("a", 7, "b", -1), `{"$s":{"a":7,"b":-1}}`, "a: 7; b: -1; ", false},
		{"streams at their start", position.Of("a", "b"), `{"$s":{"a":-1,"b":-1}}`, "a: -1; b: -1; ", true},
		{"a name to be escaped", streams("a\"\\\n\u00e9", 1), `{"$s":{"a\"\\\né":1}}`, "a\"\\\n\u00e9: 1", false},
		{"log", inLog(math.MaxInt64, math.MaxInt64-1), `{"$c":9223372036854775807,"$p":9223372036854775806}`, "C:9223372036854775807/P:9223372036854775806", false},
		{"start of the log", position.OfLog(), `{"$c":0,"$p":-1}`, "C:0/P:-1", true},
		{"first record", inLog(0, 0), `{"$c":0,"$p":0}`, "C:0/P:0", false},
		{"named types", inLog(5, 5, "T", "U"), `{"$c":5,"$p":5,"$s":{"T":-1,"U":-1}}`, "C:5/P:5; T: -1; U: -1; ", false},
		{"one named type", position.OfLog("T"), `{"$c":0,"$p":-1,"$s":{"T":-1}}`, "C:0/P:-1; T: -1; ", true},
		{"second phase", position.Finished(), `{"$ph":1,"$cp":true}`, "Phase: 1 (completed)", false},
		{"second phase begun", position.Position{Phase: 1}, `{"$ph":1,"$cp":false}`, "Phase: 1", true},
	} {
		t.Run(c.name, func(t *testing.T) {
			got := check.Value(json.Marshal(c.p)).Must(t)
			check.Equal(t, string(got), c.json)
			if c.p.String() != c.text || c.p.IsZero() != c.isZero {
				t.Errorf("%q, zero %t", c.p, c.p.IsZero())
			}
			if back, err := position.Parse([]byte(c.json)); err != nil || !reflect.DeepEqual(back, c.p) {
				t.Errorf("%#v, %v", back, err)
			}
			v := position.Version{Projection: 12, Epoch: -1, Version: 3}
			stored := c.p.AppendJSON(nil, &v)
			check.Equal(t, string(stored), `{"$v":"12:-1:3:4",`+c.json[1:], "stored as")
			if back, w, err := position.ParseStored(stored); err != nil || w != v || !reflect.DeepEqual(back, c.p) {
				t.Errorf("%#v, %v, %v", back, w, err)
			}
		})
	}
}

func TestParse(t *testing.T) {
	for _, c := range []struct {
		name, text string
		want       position.Position
		err        error
	}{
		{"plain names", `{"c":5,"p":6,"s":{"T":1}}`, position.Position{Log: true, Commit: 5, Prepare: 6, Numbers: streams("T", 1).Numbers}, nil},
		{"long names", `{"commitPosition":5,"preparePosition":6}`, inLog(5, 6), nil},
		{"streams", ` { "streams" : { "a" : 1 , "b" : 2 } } `, streams("a", 1, "b", 2), nil},
		{"members of others", `{"$v":"1:-1:1:4","$s":{"a":1},"c":"x","s":3,"p":null,"$causedBy":"y"}`, streams("a", 1), nil},
		{"one of two", `{"$c":5}`, inLog(5, 5), nil},
		{"the last of two of one name", `{"$s":{"a":1,"b":2,"a":3}}`, streams("a", 3, "b", 2), nil},
		{"null is as absent", `{"$c":null,"$p":null,"$s":{"a":1}}`, streams("a", 1), nil},
		{"no stream", `{"$s":{}}`, streams(), nil},
		{"phase 0", `{"$ph":0,"$cp":false,"$s":{"a":1}}`, streams("a", 1), nil},
		{"nothing", `{}`, position.Position{}, position.ErrNoPosition},
		{"empty", ``, position.Position{}, position.ErrNoPosition},
		{"no object", `[1]`, position.Position{}, position.ErrNoPosition},
		{"more behind it", `{"$c":1}x`, position.Position{}, position.ErrNoPosition},
		{"beyond 64 bits", `{"$c":9223372036854775808,"$p":1}`, position.Position{}, position.ErrMalformed},
		{"a fraction", `{"$c":1.5,"$p":1}`, position.Position{}, position.ErrMalformed},
		{"a text", `{"$s":{"a":"1"}}`, position.Position{}, position.ErrMalformed},
		{"streams that are a list", `{"$s":[1]}`, position.Position{}, position.ErrMalformed},
		{"an unknown phase", `{"$ph":2}`, position.Position{}, position.ErrMalformed},
	} {
		t.Run(c.name, func(t *testing.T) {
			got, err := position.Parse([]byte(c.text))
			check.MustBe(t, err, c.err)
			check.Deep(t, got, c.want)
		})
	}
}

func TestVersion(t *testing.T) {
	for _, c := range []struct {
		text string
		want position.Version
		ok   bool
	}{
		{"1:2:3:4", position.Version{Projection: 1, Epoch: 2, Version: 3}, true},
		{"1:-1:3", position.Version{Projection: 1, Epoch: -1, Version: 3}, true},
		{"1:2", position.Version{}, false},
		{"1:2:3:4:5", position.Version{}, false},
		{"1:2:x:4", position.Version{}, false},
		{"", position.Version{}, false},
	} {
		if got, err := position.ParseVersion(c.text); got != c.want || (err == nil) != c.ok {
			t.Errorf("%q: %v, %v", c.text, got, err)
		}
	}
	for text, want := range map[string]error{`{"$s":{"a":1}}`: position.ErrNoVersion, `{"$v":"x","$s":{"a":1}}`: position.ErrMalformed,
		`{"$v":1,"$s":{"a":1}}`: position.ErrMalformed, `{"$v":"1:2:3:4"}`: position.ErrNoPosition, `{"v":"1:2:3:4","s":{"a":1}}`: nil} {
		if _, _, err := position.ParseStored([]byte(text)); !errors.Is(err, want) {
			t.Errorf("%s: %v", text, err)
		}
	}
	we := position.Version{Projection: 5, Epoch: 7, Version: 9}
	for _, c := range []struct {
		other position.Version
		ours  bool
	}{
		{position.Version{Projection: 5, Epoch: -1, Version: 6}, false},
		{position.Version{Projection: 5, Epoch: -1, Version: 7}, true},
		{position.Version{Projection: 5, Epoch: 7, Version: 8}, true},
		{position.Version{Projection: 4, Epoch: 7, Version: 9}, false},
	} {
		if we.IsOurs(c.other) != c.ours {
			t.Errorf("%v is ours: %t", c.other, !c.ours)
		}
	}
}

func TestCompare(t *testing.T) {
	for _, c := range []struct {
		name string
		a, b position.Position
		want int
		ok   bool
	}{
		{"log", inLog(5, 5), inLog(9, 9), -1, true},
		{"log by the second", inLog(5, -1), inLog(5, 5), -1, true},
		{"the numbers beside a place do not count", inLog(5, 5, "T"), inLog(5, 5), 0, true},
		{"a stream", streams("a", 2), streams("a", 1), 1, true},
		{"streams", streams("a", 1, "b", 2), streams("a", 1, "b", 3), -1, true},
		{"streams in another order", streams("a", 1, "b", 2), streams("b", 2, "a", 1), 0, true},
		{"ahead and behind", streams("a", 1, "b", 2), streams("a", 2, "b", 1), 0, false},
		{"ahead and behind by more", streams("a", 1, "b", 9), streams("a", 2, "b", 1), 0, false},
		{"beyond 64 bits in all", streams("a", math.MaxInt64, "b", 1), streams("a", 1, "b", math.MaxInt64), 0, false},
		{"other streams", streams("a", 1), streams("b", 1), 0, false},
		{"other kinds", streams("a", 1), inLog(1, 1), 0, false},
		{"phases", position.Finished(), inLog(1, 1), 1, true},
		{"second phases", position.Finished(), position.Position{Phase: 1}, 1, true},
	} {
		t.Run(c.name, func(t *testing.T) {
			if got, ok := position.Compare(c.a, c.b); got != c.want || ok != c.ok {
				t.Errorf("%d, %t", got, ok)
			}
			if got, ok := position.Compare(c.b, c.a); got != -c.want || ok != c.ok {
				t.Errorf("reversed %d, %t", got, ok)
			}
			check.Equal(t, c.a.Equal(c.b), c.ok && c.want == 0, "equal")
		})
	}
}

func TestConvert(t *testing.T) {
	for _, c := range []struct {
		name    string
		p, zero position.Position
		want    position.Position
		ok      bool
	}{
		{"more streams", streams("a", 3), position.Of("b", "a"), streams("b", -1, "a", 3), true},
		{"fewer streams", streams("a", 3, "b", 4), position.Of("b"), streams("b", 4), true},
		{"other streams", streams("a", 3), position.Of("b"), streams("b", -1), true},
		{"named types", inLog(5, 5), position.OfLog("T"), inLog(5, 5, "T"), true},
		{"all types", inLog(5, 5, "T"), position.OfLog(), inLog(5, 5), true},
		{"streams to log", streams("a", 3), position.OfLog(), position.Position{}, false},
		{"log to streams", inLog(5, 5, "a"), position.Of("a"), position.Position{}, false},
		{"a second phase", position.Finished(), position.Of("a"), position.Position{}, false},
	} {
		t.Run(c.name, func(t *testing.T) {
			got, err := position.Convert(c.p, c.zero)
			if c.ok != (err == nil) || !c.ok && !errors.Is(err, position.ErrOtherSource) || !reflect.DeepEqual(got, c.want) {
				t.Errorf("%#v, %v", got, err)
			}
		})
	}
}

// FuzzParse: what is read is written in a form that is read as the same.
func FuzzParse(f *testing.F) {
	for _, s := range []string{`{"$v":"1:-1:2:4","$c":1,"$p":2,"$s":{"T":3}}`, `{"s":{"a":1}}`, `{"$ph":1,"$cp":true}`, `{"streams":{"\ud800":-1,"":5}}`, `{"c":-5}`, `{"$s":{"a":1},"$s":1}`} {
		f.Add([]byte(s))
	}
	f.Fuzz(func(t *testing.T, data []byte) {
		p, err := position.Parse(data)
		if err != nil {
			if !errors.Is(err, position.ErrNoPosition) && !errors.Is(err, position.ErrMalformed) {
				t.Fatal(err)
			}
			return
		}
		if !json.Valid(data) {
			t.Fatalf("%q was read", data)
		}
		v := position.Version{Projection: 1, Epoch: 2, Version: 3}
		back, w, err := position.ParseStored(p.AppendJSON(nil, &v))
		if err != nil || w != v || !reflect.DeepEqual(back, p) {
			t.Fatalf("%#v became %#v, %v", p, back, err)
		}
		if !p.Equal(back) {
			t.Fatalf("%v is not %v", p, back)
		}
	})
}
