package wire

import (
	"bytes"
	"encoding/hex"
	"io"
	"strings"
	"testing"

	"github.com/annalsdb/annals/event"
	"github.com/annalsdb/annals/internal/check"
)

// The bytes on the wire never change.
func TestPreambleBytes(t *testing.T) {
	id := Identity{Node: event.ID([]byte("nodenodenodenode")), Cluster: event.ID([]byte("clusterclusterXX")), Incarnation: 0x01020304}
	ids := hex.EncodeToString(id.Cluster[:]) + hex.EncodeToString(id.Node[:])
	q := request{version: 1, kind: KindRelay, Identity: id}
	if got, want := hex.EncodeToString(q.encode()), "a9414e4e414c530a"+"01"+"03"+"010203040000"+ids; got != want {
		t.Errorf("request\n%s, want\n%s", got, want)
	}
	a := answer{version: 1, status: StatusOtherCluster, Identity: id, reason: "no"}
	if got, want := hex.EncodeToString(a.encode()), "a9414e4e414c530a"+"01"+"02"+"0002"+"01020304"+ids+"6e6f"; got != want {
		t.Errorf("answer\n%s, want\n%s", got, want)
	}
	if KindRaft != 1 || KindService != 2 || KindRelay != 3 || kindInstall != 4 || StatusWantsPlain != 8 {
		t.Error("numbers of the preamble changed")
	}
}

func TestReasonIsBounded(t *testing.T) {
	a := answer{version: 1, status: StatusBusy, reason: strings.Repeat("x", maxReason-1) + "\u00e9\u00e9\n"}
	got, err := readAnswer(bytes.NewReader(a.encode()))
	if want := strings.Repeat("x", maxReason-1); err != nil || got.reason != want {
		t.Errorf("%d bytes, %v", len(got.reason), err)
	}
	a.reason = "line\none\x1b[31m \xff"
	if got, err := readAnswer(bytes.NewReader(a.encode())); err != nil || got.reason != "line?one?[31m ?" {
		t.Errorf("%q, %v", got.reason, err)
	}
}

// Whatever comes is an error or what its sender encoded, and nothing beyond it is read.
func FuzzPreamble(f *testing.F) {
	q := request{version: 1, kind: KindRaft, Identity: Identity{Node: event.ID{1}, Cluster: event.ID{2}}}
	a := answer{version: 1, status: StatusBusy, reason: "full"}
	f.Add(q.encode())
	f.Add(a.encode())
	f.Add([]byte("GET / HTTP/1.1\r\n\r\n"))
	f.Add([]byte(magic + "\x02"))
	f.Fuzz(func(t *testing.T, b []byte) {
		r := bytes.NewReader(b)
		if q, err := readRequest(r, nil); err == nil {
			again, err := readRequest(bytes.NewReader(q.encode()), nil)
			if err != nil && !q.Node.IsZero() || err == nil && again != q {
				t.Errorf("%+v, again %+v, %v", q, again, err)
			}
			want := requestSize
			if q.version != formatVersion {
				want = headSize
			}
			check.Equal(t, len(b)-r.Len(), want, "read ... bytes")
		}
		r = bytes.NewReader(b)
		if a, err := readAnswer(r); err == nil {
			if len(a.reason) > 3*maxReason {
				t.Errorf("a reason of %d bytes", len(a.reason))
			}
			if again, err := readAnswer(bytes.NewReader(a.encode())); err != nil || again.status != a.status || again.Identity != a.Identity {
				t.Errorf("%+v, again %+v, %v", a, again, err)
			}
			if _, err := readAnswer(r); err == nil && r.Len() == len(b) {
				t.Error("nothing was read")
			}
		}
	})
}

func TestShortPreambles(t *testing.T) {
	q := request{version: 1, kind: KindRaft, Identity: Identity{Node: event.ID{1}}}
	a := answer{version: 1, reason: "x"}
	for n := range requestSize {
		if _, err := readRequest(bytes.NewReader(q.encode()[:n]), nil); err == nil {
			t.Errorf("a request of %d bytes", n)
		}
	}
	for n := range len(a.encode()) {
		if _, err := readAnswer(bytes.NewReader(a.encode()[:n])); err == nil {
			t.Errorf("an answer of %d bytes", n)
		}
	}
	if _, err := readRequest(io.MultiReader(strings.NewReader(magic[:3]), strings.NewReader("xxxxxxxxxxxxx")), nil); err == nil {
		t.Error("other magic")
	}
}
