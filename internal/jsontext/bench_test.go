package jsontext_test

import (
	"bytes"
	"encoding/json"
	"fmt"
	"testing"

	"github.com/annalsdb/annals/internal/check"
	"github.com/annalsdb/annals/internal/jsontext"
)

func document() []byte {
	return []byte(`{"orderId":"0f9fad5b-d9cb-469f-a165-70867728950e","customer":{"id":18273,"name":"Ada Lovelace","vip":true},` +
		`"lines":[{"sku":"A-1001","quantity":3,"price":12.50},{"sku":"B-2002","quantity":1,"price":199.99}],"note":"leave at the door, please","total":237.49}`)
}

func batch() []byte {
	var b bytes.Buffer
	b.WriteByte('[')
	for i := range 100 {
		if i > 0 {
			b.WriteByte(',')
		}
		fmt.Fprintf(&b, `{"eventId":"0f9fad5b-d9cb-469f-a165-%012d","eventType":"OrderPlaced","data":%s}`, i, document())
	}
	b.WriteByte(']')
	return b.Bytes()
}

func BenchmarkValid(b *testing.B) {
	var indented bytes.Buffer
	check.Must(b, json.Indent(&indented, batch(), "", "  "))
	for _, in := range []struct {
		name string
		text []byte
	}{{"document", document()}, {"batch", batch()}, {"indented", indented.Bytes()}} {
		for _, by := range []struct {
			name  string
			valid func([]byte) bool
		}{{"jsontext", jsontext.Valid}, {"encoding", json.Valid}} {
			b.Run(in.name+"/"+by.name, func(b *testing.B) {
				b.SetBytes(int64(len(in.text)))
				b.ReportAllocs()
				for b.Loop() {
					if !by.valid(in.text) {
						b.Fatal("not valid")
					}
				}
			})
		}
	}
}

func BenchmarkAppendString(b *testing.B) {
	s := string(document())
	buf := make([]byte, 0, 1024)
	b.Run("jsontext/escapes", func(b *testing.B) {
		b.SetBytes(int64(len(s)))
		b.ReportAllocs()
		for b.Loop() {
			buf = jsontext.AppendString(buf[:0], s)
		}
	})
	b.Run("jsontext/plain", func(b *testing.B) {
		plain := bytes.Repeat([]byte("plain text "), 24)
		b.SetBytes(int64(len(plain)))
		b.ReportAllocs()
		for b.Loop() {
			buf = jsontext.AppendString(buf[:0], plain)
		}
	})
	b.Run("encoding/escapes", func(b *testing.B) {
		b.SetBytes(int64(len(s)))
		b.ReportAllocs()
		for b.Loop() {
			check.Must(b, check.Err(json.Marshal(s)))
		}
	})
}

func BenchmarkUnquote(b *testing.B) {
	raw := jsontext.AppendString(nil, document())
	buf := make([]byte, 1024)
	b.SetBytes(int64(len(raw)))
	b.ReportAllocs()
	for b.Loop() {
		jsontext.Unquote(buf, raw)
	}
}
