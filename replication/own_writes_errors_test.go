package replication

import (
	"encoding/json"
	"errors"
	"fmt"
	"reflect"
	"testing"

	"github.com/annalsdb/annals/event"
)

// What the leader says arrives as the error that it was there.
func TestAnswersOfOwnWrites(t *testing.T) {
	write := &event.Write{Stream: "s", ExpectedVersion: 4}
	version := &event.WrongExpectedVersion{Stream: "s", Expected: 4, Current: 9}
	for _, c := range []struct {
		name    string
		written event.Written
		err     error
		want    error // errors.Is, or as equal
	}{
		{"done", event.Written{First: 1, Last: 2}, nil, nil},
		{"done before", event.Written{First: 1, Last: 2, Idempotent: true}, nil, nil},
		{"version", event.Written{}, version, version},
		{"version, wrapped", event.Written{}, fmt.Errorf("x: %w", version), version},
		{"deleted", event.Written{}, event.ErrStreamDeleted, event.ErrStreamDeleted},
		{"too large", event.Written{}, event.ErrTooLarge, event.ErrTooLarge},
		{"disk", event.Written{}, fmt.Errorf("%w: /data", event.ErrDiskFull), event.ErrDiskFull},
		{"busy", event.Written{}, event.ErrBusy, event.ErrBusy},
		{"unknown", event.Written{}, fmt.Errorf("%w: %w", event.ErrOutcomeUnknown, event.ErrClosed), event.ErrOutcomeUnknown},
		{"timeout", event.Written{}, event.ErrWriteTimeout, event.ErrWriteTimeout},
		{"not ready", event.Written{}, fmt.Errorf("%w: applied state", event.ErrNotReady), event.ErrNotReady},
		{"deposed", event.Written{}, &event.NotLeader{Address: "http://x"}, event.ErrNotReady},
		{"closed", event.Written{}, event.ErrClosed, event.ErrNotReady},
		{"other", event.Written{}, errors.New("strange"), errors.New("write at the leader: strange")},
	} {
		data, err := json.Marshal(answerOf(c.written, c.err))
		if err != nil {
			t.Fatal(err)
		}
		var a writeAnswer
		if err := json.Unmarshal(data, &a); err != nil {
			t.Fatal(err)
		}
		written, err := a.result(write)
		if written != c.written || !errors.Is(err, c.want) && !reflect.DeepEqual(err, c.want) && fmt.Sprint(err) != fmt.Sprint(c.want) {
			t.Errorf("%s: %+v, %v; expected %+v, %v", c.name, written, err, c.written, c.want)
		}
	}
	if _, err := (&writeAnswer{Error: "of a later version"}).result(write); !errors.Is(err, event.ErrOutcomeUnknown) {
		t.Errorf("%v", err)
	}
}

// A write is the same at the leader as it was given.
func TestOwnWriteAsRequest(t *testing.T) {
	given := writeRequest{Write: event.Write{
		Kind: event.HardDelete, Stream: "ströme/<&>\u2028", ExpectedVersion: -2,
		Events: []event.Proposed{{ID: event.ID{1, 15: 255}, Type: "t\x01", Flags: event.FlagJSON, Data: []byte{0, 255, '"'}, Metadata: []byte("{}")}, {}},
	}}
	data, err := json.Marshal(given)
	if err != nil {
		t.Fatal(err)
	}
	var got writeRequest
	if err := json.Unmarshal(data, &got); err != nil || !reflect.DeepEqual(got, given) {
		t.Errorf("%+v, %v; expected %+v", got, err, given)
	}
}
