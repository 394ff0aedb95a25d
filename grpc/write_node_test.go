package grpcapi_test

import (
	"fmt"
	"io"
	"strings"
	"testing"

	"github.com/kurrent-io/KurrentDB-Client-Go/protos/kurrentdb/protocols/v1/shared"
	"github.com/kurrent-io/KurrentDB-Client-Go/protos/kurrentdb/protocols/v1/streams"
	"google.golang.org/protobuf/proto"
)

// states bring a stream that was never written into a state.
var states = []struct {
	name string
	make func(t *testing.T, c streams.StreamsClient, stream string)
}{
	{"none", func(*testing.T, streams.StreamsClient, string) {}},
	{"two events", twoEvents},
	{"soft-deleted", func(t *testing.T, c streams.StreamsClient, stream string) {
		twoEvents(t, c, stream)
		if word := deleteWord(c.Delete(t.Context(), deletion(stream, anyVersion))); word != "ok" {
			t.Fatal(word)
		}
	}},
	{"hard-deleted", func(t *testing.T, c streams.StreamsClient, stream string) {
		twoEvents(t, c, stream)
		if word := deleteWord(c.Tombstone(t.Context(), tombstone(stream, anyVersion))); word != "ok" {
			t.Fatal(word)
		}
	}},
	{"only metadata", func(t *testing.T, c streams.StreamsClient, stream string) {
		_, _, err := appendTo(t.Context(), c, appendOptions("$$"+stream, noStream), message(newID(), "$metadata", []byte(`{"a":1}`)))
		if err != nil {
			t.Fatal(err)
		}
	}},
}

func twoEvents(t *testing.T, c streams.StreamsClient, stream string) {
	t.Helper()
	for i, want := range []string{"ok 0", "ok 1"} {
		if got := one(t, c, stream, int64(i)-1); got != want {
			t.Fatal(got)
		}
	}
}

func deletion(stream string, expected int64) *streams.DeleteReq {
	o := &streams.DeleteReq_Options{StreamIdentifier: identifier(stream)}
	switch expected {
	case anyVersion:
		o.ExpectedStreamRevision = &streams.DeleteReq_Options_Any{Any: &shared.Empty{}}
	case noStream:
		o.ExpectedStreamRevision = &streams.DeleteReq_Options_NoStream{NoStream: &shared.Empty{}}
	case exists:
		o.ExpectedStreamRevision = &streams.DeleteReq_Options_StreamExists{StreamExists: &shared.Empty{}}
	default:
		o.ExpectedStreamRevision = &streams.DeleteReq_Options_Revision{Revision: uint64(expected)}
	}
	return &streams.DeleteReq{Options: o}
}

func tombstone(stream string, expected int64) *streams.TombstoneReq {
	o := &streams.TombstoneReq_Options{StreamIdentifier: identifier(stream)}
	switch expected {
	case anyVersion:
		o.ExpectedStreamRevision = &streams.TombstoneReq_Options_Any{Any: &shared.Empty{}}
	case noStream:
		o.ExpectedStreamRevision = &streams.TombstoneReq_Options_NoStream{NoStream: &shared.Empty{}}
	case exists:
		o.ExpectedStreamRevision = &streams.TombstoneReq_Options_StreamExists{StreamExists: &shared.Empty{}}
	default:
		o.ExpectedStreamRevision = &streams.TombstoneReq_Options_Revision{Revision: uint64(expected)}
	}
	return &streams.TombstoneReq{Options: o}
}

// deleteWord says what came of a deletion.
func deleteWord[R any](r R, err error) string {
	if err != nil {
		return errorWord(err)
	}
	var commit, prepare uint64
	switch r := any(r).(type) {
	case *streams.DeleteResp:
		commit, prepare = r.GetPosition().GetCommitPosition(), r.GetPosition().GetPreparePosition()
	case *streams.TombstoneResp:
		commit, prepare = r.GetPosition().GetCommitPosition(), r.GetPosition().GetPreparePosition()
	}
	if commit != prepare || commit == 0 {
		return fmt.Sprint("positions ", commit, prepare)
	}
	return "ok"
}

var expectations = []struct {
	name    string
	version int64
}{{"any", anyVersion}, {"no stream", noStream}, {"exists", exists}, {"0", 0}, {"1", 1}, {"5", 5}}

// Every expected version against every state.
func TestExpectedVersions(t *testing.T) {
	c := streams.NewStreamsClient(dial(t, address))
	batch, err := c.BatchAppend(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	ways := []struct {
		name string
		do   func(stream string, expected int64) string
		want map[string][]string // by state, in the order of expectations
	}{
		{"append", func(stream string, expected int64) string { return one(t, c, stream, expected) }, appendWords("deleted")},
		{"append of nothing", func(stream string, expected int64) string {
			answer, _, err := appendTo(t.Context(), c, appendOptions(stream, expected))
			return appendWord(t, answer, err)
		}, nothingWords("deleted")},
		{"batch", func(stream string, expected int64) string {
			if err := batch.Send(batchOf(newID(), batchOptions(stream, expected), "x")); err != nil {
				return err.Error()
			}
			return batchWord(batch.Recv())
		}, appendWords("StreamDeleted")},
		{"batch of nothing", func(stream string, expected int64) string {
			if err := batch.Send(batchOf(newID(), batchOptions(stream, expected))); err != nil {
				return err.Error()
			}
			return batchWord(batch.Recv())
		}, nothingWords("StreamDeleted")},
		{"delete", func(stream string, expected int64) string {
			return deleteWord(c.Delete(t.Context(), deletion(stream, expected)))
		}, map[string][]string{
			"none":          {"wrong -1", "wrong -1", "wrong -1", "wrong -1", "wrong -1", "wrong -1"},
			"two events":    {"ok", "wrong 1", "ok", "wrong 1", "ok", "wrong 1"},
			"soft-deleted":  {"ok", "ok", "deleted", "wrong 1", "ok", "wrong 1"},
			"hard-deleted":  {"deleted", "deleted", "deleted", "deleted", "deleted", "deleted"},
			"only metadata": {"ok", "ok", "ok", "wrong -1", "wrong -1", "wrong -1"},
		}},
		{"tombstone", func(stream string, expected int64) string {
			return deleteWord(c.Tombstone(t.Context(), tombstone(stream, expected)))
		}, map[string][]string{
			"none":          {"ok", "ok", "wrong -1", "wrong -1", "wrong -1", "wrong -1"},
			"two events":    {"ok", "wrong 1", "ok", "wrong 1", "ok", "wrong 1"},
			"soft-deleted":  {"ok", "ok", "deleted", "wrong 1", "ok", "wrong 1"},
			"hard-deleted":  {"deleted", "deleted", "deleted", "deleted", "deleted", "deleted"},
			"only metadata": {"ok", "ok", "ok", "wrong -1", "wrong -1", "wrong -1"},
		}},
	}
	for _, way := range ways {
		for _, state := range states {
			for i, e := range expectations {
				stream := fmt.Sprintf("%s-%s-%s-%s", way.name, state.name, e.name, newID().GetString_())
				state.make(t, c, stream)
				got := way.do(stream, e.version)
				if want := way.want[state.name]; want == nil || want[i] != got {
					t.Errorf("%s: %q, expected %q", stream, got, want)
				}
			}
		}
	}
	if err := batch.CloseSend(); err != nil {
		t.Fatal(err)
	}
	if _, err := batch.Recv(); err != io.EOF {
		t.Error(err)
	}
}

// Metadata after a tombstone: appends are done, whatever they expect, and reads do not change.
func TestLateMetadata(t *testing.T) {
	c := streams.NewStreamsClient(dial(t, address))
	batch, err := c.BatchAppend(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	stream := "late-" + newID().GetString_()
	twoEvents(t, c, stream)
	if word := deleteWord(c.Tombstone(t.Context(), tombstone(stream, anyVersion))); word != "ok" {
		t.Fatal(word)
	}
	given := map[string]bool{}
	for _, e := range expectations {
		if err := batch.Send(batchOf(newID(), batchOptions("$$"+stream, e.version), "x")); err != nil {
			t.Fatal(err)
		}
		for _, got := range []string{one(t, c, "$$"+stream, e.version), batchWord(batch.Recv())} {
			if given[got] || !strings.HasPrefix(got, "ok ") {
				t.Errorf("expected %s: %s", e.name, got)
			}
			given[got] = true
		}
		if got := one(t, c, stream, e.version); got != "deleted" {
			t.Errorf("the stream, expected %s: %s", e.name, got)
		}
	}
	if err := batch.CloseSend(); err != nil {
		t.Fatal(err)
	}
}

func appendWords(deleted string) map[string][]string {
	return map[string][]string{
		"none":          {"ok 0", "ok 0", "wrong -1", "wrong -1", "wrong -1", "wrong -1"},
		"two events":    {"ok 2", "wrong 1", "ok 2", "wrong 1", "ok 2", "wrong 1"},
		"soft-deleted":  {"ok 2", "ok 2", deleted, "wrong 1", "ok 2", "wrong 1"},
		"hard-deleted":  {deleted, deleted, deleted, deleted, deleted, deleted},
		"only metadata": {"ok 0", "ok 0", "ok 0", "wrong -1", "wrong -1", "wrong -1"},
	}
}

func nothingWords(deleted string) map[string][]string {
	return map[string][]string{
		"none":          {"none", "none", "wrong -1", "wrong -1", "wrong -1", "wrong -1"},
		"two events":    {"nothing 1", "wrong 1", "nothing 1", "wrong 1", "nothing 1", "wrong 1"},
		"soft-deleted":  {"nothing 1", "nothing 1", deleted, "wrong 1", "nothing 1", "wrong 1"},
		"hard-deleted":  {deleted, deleted, deleted, deleted, deleted, deleted},
		"only metadata": {"none", "none", "none", "wrong -1", "wrong -1", "wrong -1"},
	}
}

// What is written again is answered with the position of what there is.
func TestRepetitions(t *testing.T) {
	c := streams.NewStreamsClient(dial(t, address))
	a, b := newID(), newID()
	stream := "repetitions-" + a.GetString_()
	write := func(expected int64) *streams.AppendResp {
		t.Helper()
		answer, end, err := appendTo(t.Context(), c, appendOptions(stream, expected), message(a, "t", nil), message(b, "t", nil))
		if err != nil {
			t.Fatal(end)
		}
		return answer
	}
	first := write(noStream)
	if got := one(t, c, stream, 1); got != "ok 2" {
		t.Fatal(got)
	}
	for _, expected := range []int64{anyVersion, noStream, exists} {
		if again := write(expected); !proto.Equal(first, again) {
			t.Errorf("%d: %v, first %v", expected, again, first)
		}
	}
	last, err := c.Delete(t.Context(), deletion(stream, anyVersion))
	if err != nil {
		t.Fatal(err)
	}
	if again, err := c.Delete(t.Context(), deletion(stream, anyVersion)); !proto.Equal(last, again) || err != nil {
		t.Errorf("%v, %v, first %v", again, err, last)
	}
	if last.GetPosition().CommitPosition <= first.GetSuccess().GetPosition().CommitPosition {
		t.Errorf("deleted at %v, written at %v", last, first)
	}
}

// The writes of a batch to one stream are done in their order, even if the client does not wait for
// them.
func TestBatchOrder(t *testing.T) {
	c := streams.NewStreamsClient(dial(t, address))
	batch, err := c.BatchAppend(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	const writes = 3000
	stream := "batch-order-" + newID().GetString_()
	sent := make(chan error, 1)
	go func() {
		for i := range int64(writes) {
			if err := batch.Send(batchOf(textID(fmt.Sprintf("00000000-0000-0000-0000-%012x", i)), batchOptions(stream, i-1), "x")); err != nil {
				sent <- err
				return
			}
		}
		sent <- batch.CloseSend()
	}()
	seen := map[string]bool{}
	for {
		answer, err := batch.Recv()
		if err == io.EOF {
			break
		}
		id := answer.GetCorrelationId().GetString_()
		want := fmt.Sprintf("00000000-0000-0000-0000-%012x", answer.GetSuccess().GetCurrentRevision())
		if err != nil || id != want || seen[id] || string(answer.StreamIdentifier.StreamName) != stream {
			t.Fatal(answer, err)
		}
		seen[id] = true
	}
	if err := <-sent; err != nil || len(seen) != writes {
		t.Error(len(seen), err)
	}
}
