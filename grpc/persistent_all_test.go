package grpcapi_test

import (
	"fmt"
	"testing"

	"github.com/kurrent-io/KurrentDB-Client-Go/protos/kurrentdb/protocols/v1/persistent"
	"github.com/kurrent-io/KurrentDB-Client-Go/protos/kurrentdb/protocols/v1/shared"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/metadata"
	"google.golang.org/protobuf/proto"

	"github.com/annalsdb/annals/internal/check"
	"github.com/annalsdb/annals/internal/testkit"
)

// groupOfAll are the options of a group on $all that starts at the first event.
func groupOfAll(group string) *persistent.CreateReq_Options {
	return &persistent.CreateReq_Options{GroupName: group, Settings: plainSettings(), StreamOption: &persistent.CreateReq_Options_All{
		All: &persistent.CreateReq_AllOptions{AllOption: &persistent.CreateReq_AllOptions_Start{Start: &shared.Empty{}}},
	}}
}

// prefixes are a filter.
func prefixes(ofStream bool, all ...string) *persistent.CreateReq_AllOptions_Filter {
	e := &persistent.CreateReq_AllOptions_FilterOptions_Expression{Prefix: all}
	f := &persistent.CreateReq_AllOptions_FilterOptions{Filter: &persistent.CreateReq_AllOptions_FilterOptions_EventType{EventType: e}}
	if ofStream {
		f.Filter = &persistent.CreateReq_AllOptions_FilterOptions_StreamIdentifier{StreamIdentifier: e}
	}
	return &persistent.CreateReq_AllOptions_Filter{Filter: f}
}

// TestPersistentAll: a group on $all, filtered, from creation to deletion.
func TestPersistentAll(t *testing.T) {
	g := newGroups(t)
	g.appends("a-1", 0, 2)
	g.append("b-1", testkit.Event{Type: "Other", Data: []byte(`{"n":2}`)})
	g.appends("a-2", 3, 1)
	o := groupOfAll("g")
	o.GetAll().FilterOption = prefixes(true, "a-")
	if _, err := g.Create(g.ctx, &persistent.CreateReq{Options: o}); err != nil {
		t.Fatal(err)
	}
	read := &persistent.ReadReq{Content: &persistent.ReadReq_Options_{Options: &persistent.ReadReq_Options{
		GroupName: "g", BufferSize: 10, StreamOption: &persistent.ReadReq_Options_All{All: &shared.Empty{}},
	}}}
	r := g.opens(g.ctx)
	r.sends(read)
	r.confirmed("$all")
	var last uint64
	for _, want := range []string{"0@a-1", "1@a-1", "0@a-2"} {
		e := r.receives().GetEvent()
		check.Equal(t, fmt.Sprintf("%d@%s", e.GetEvent().GetStreamRevision(), e.GetEvent().GetStreamIdentifier().GetStreamName()), want, "event")
		last = e.GetCommitPosition()
		r.sends(&persistent.ReadReq{Content: &persistent.ReadReq_Ack_{Ack: &persistent.ReadReq_Ack{Ids: []*shared.UUID{e.GetEvent().GetId()}}}})
	}
	behind := func(text string) bool { // the last message, as texts have positions
		var commit, prepare uint64
		n, err := fmt.Sscanf(text, "C:%d/P:%d", &commit, &prepare)
		return n == 2 && err == nil && commit >= last && prepare == commit
	}
	g.until("$all", func(i *persistent.SubscriptionInfo) bool {
		return i.EventSource == "$all" && i.StartFrom == "C:0/P:0" && i.OutstandingMessagesCount == 0 &&
			behind(i.LastCheckpointedEventPosition) && behind(i.LastKnownEventPosition)
	})

	u := &persistent.UpdateReq_Options{GroupName: "g", Settings: updateOf(plainSettings()), StreamOption: &persistent.UpdateReq_Options_All{
		All: &persistent.UpdateReq_AllOptions{AllOption: &persistent.UpdateReq_AllOptions_End{End: &shared.Empty{}}},
	}}
	if _, err := g.Update(g.ctx, &persistent.UpdateReq{Options: u}); err != nil {
		t.Fatal(err)
	}
	check.Equal(t, r.end(), ended{codes.Canceled, "Subscription group g on stream $all was dropped.",
		"exception=persistent-subscription-dropped;group-name=g;stream-name=$all;"}, "end")
	check.Equal(t, g.info("$all").StartFrom, "C:-1/P:-1", "start")
	r = g.consumes("$all", 10) // By its name, which is the same.
	g.appends("b-2", 4, 1)
	g.appends("a-3", 5, 1)
	r.takes("5/0") // The filter is still there.

	list := &persistent.ListReq{Options: &persistent.ListReq_Options{ListOption: &persistent.ListReq_Options_ListForStream{
		ListForStream: &persistent.ListReq_StreamOption{StreamOption: &persistent.ListReq_StreamOption_All{All: &shared.Empty{}}},
	}}}
	groups, err := g.List(g.ctx, list)
	if err != nil || len(groups.Subscriptions) != 1 {
		t.Errorf("list: %v %v", groups, err)
	}
	_, err = g.Delete(g.ctx, &persistent.DeleteReq{Options: &persistent.DeleteReq_Options{GroupName: "g", StreamOption: &persistent.DeleteReq_Options_All{All: &shared.Empty{}}}})
	if err != nil {
		t.Fatal(err)
	}
	check.Equal(t, r.end(), ended{codes.NotFound, "Subscription group g on stream $all does not exist.",
		"exception=persistent-subscription-does-not-exist;group-name=g;stream-name=$all;"}, "end")
	var trailers metadata.MD
	_, err = g.List(g.ctx, list, grpc.Trailer(&trailers))
	check.Equal(t, endOf(err, trailers), ended{codes.NotFound, "Subscription group  on stream $all does not exist.",
		"exception=persistent-subscription-does-not-exist;group-name=;stream-name=$all;"}, "list")
}

// TestPersistentAllSettings: where groups on $all start, and what they filter by.
func TestPersistentAllSettings(t *testing.T) {
	g := newGroups(t)
	at := func(commit, prepare uint64) func(o *persistent.CreateReq_AllOptions) {
		return func(o *persistent.CreateReq_AllOptions) {
			o.AllOption = &persistent.CreateReq_AllOptions_Position{Position: &persistent.CreateReq_Position{CommitPosition: commit, PreparePosition: prepare}}
		}
	}
	failed := func(reason string) ended {
		return ended{codes.Internal, "Subscription group g on stream $all failed: '" + reason + "'",
			"exception=persistent-subscription-failed;group-name=g;reason=" + reason + ";stream-name=$all;"}
	}
	for name, c := range map[string]struct {
		change func(*persistent.CreateReq_AllOptions)
		start  string // of a group that is made
		want   ended
	}{
		"start": {func(*persistent.CreateReq_AllOptions) {}, "C:0/P:0", ended{}},
		"end": {func(o *persistent.CreateReq_AllOptions) {
			o.AllOption = &persistent.CreateReq_AllOptions_End{End: &shared.Empty{}}
		}, "C:-1/P:-1", ended{}},
		"first event":   {at(0, 0), "C:0/P:0", ended{}},
		"end, position": {at(1<<64-1, 1<<64-1), "C:-1/P:-1", ended{}},
		"prepare":       {at(1, 2), "", failed("Invalid Start From position: prepare position must be less than or equal to the commit position.")},
		"beyond the log": {at(1<<40, 0), "",
			failed("Invalid Start From position: commit position must be less than or equal to the last commit position in the transaction file.")},
		"nowhere":    {func(o *persistent.CreateReq_AllOptions) { o.AllOption = nil }, "", ended{code: codes.InvalidArgument, text: "the start position of the group is missing"}},
		"types":      {func(o *persistent.CreateReq_AllOptions) { o.FilterOption = prefixes(false, "A", "B") }, "C:0/P:0", ended{}},
		"unfiltered": {func(o *persistent.CreateReq_AllOptions) { o.FilterOption = &persistent.CreateReq_AllOptions_NoFilter{} }, "C:0/P:0", ended{}},
		"no filter": {func(o *persistent.CreateReq_AllOptions) {
			o.FilterOption = &persistent.CreateReq_AllOptions_Filter{Filter: &persistent.CreateReq_AllOptions_FilterOptions{}}
		}, "", ended{code: codes.InvalidArgument}},
		"no expression": {func(o *persistent.CreateReq_AllOptions) {
			o.FilterOption = prefixes(true)
			o.GetFilter().GetStreamIdentifier().Regex = "("
		}, "", ended{code: codes.InvalidArgument}},
	} {
		t.Run(name, func(t *testing.T) {
			o := groupOfAll("g")
			c.change(o.GetAll())
			var trailers metadata.MD
			_, err := g.Create(g.ctx, &persistent.CreateReq{Options: proto.Clone(o).(*persistent.CreateReq_Options)}, grpc.Trailer(&trailers))
			got := endOf(err, trailers)
			if c.want.text == "" {
				got.text = ""
			}
			check.Equal(t, got, c.want, "created")
			if err != nil {
				return
			}
			check.Equal(t, g.info("$all").StartFrom, c.start, "start")
			if err := g.remove("$all"); err != nil {
				t.Fatal(err)
			}
		})
	}
}

// TestPersistentIndex: a group reads an index, as a filter of $all or as a stream of that name.
func TestPersistentIndex(t *testing.T) {
	for name, s := range map[string]struct {
		stream string
		create func(o *persistent.CreateReq_Options)
	}{
		"a filter": {"$all", func(o *persistent.CreateReq_Options) { o.GetAll().FilterOption = prefixes(true, "$idx-ce-a") }},
		"a stream": {"$idx-ce-a", func(o *persistent.CreateReq_Options) {
			o.StreamOption = &persistent.CreateReq_Options_Stream{Stream: &persistent.CreateReq_StreamOptions{
				StreamIdentifier: &shared.StreamIdentifier{StreamName: []byte("$idx-ce-a")},
				RevisionOption:   &persistent.CreateReq_StreamOptions_Start{Start: &shared.Empty{}},
			}}
		}},
	} {
		t.Run(name, func(t *testing.T) {
			g := newGroups(t)
			g.appends("a-1", 0, 2)
			g.appends("b-1", 2, 1)
			g.appends("a-2", 3, 1)
			o := groupOfAll("g")
			s.create(o)
			if _, err := g.Create(g.ctx, &persistent.CreateReq{Options: o}); err != nil {
				t.Fatal(err)
			}
			r := g.consumes(s.stream, 10)
			for i, want := range []string{"0@a-1", "1@a-1", "0@a-2", "0@a-3"} {
				if i == 3 {
					g.appends("b-2", 4, 1)
					g.appends("a-3", 5, 1)
				}
				e := r.receives().GetEvent()
				check.Equal(t, fmt.Sprintf("%d@%s", e.GetEvent().GetStreamRevision(), e.GetEvent().GetStreamIdentifier().GetStreamName()), want, "event")
				r.sends(&persistent.ReadReq{Content: &persistent.ReadReq_Ack_{Ack: &persistent.ReadReq_Ack{Ids: []*shared.UUID{e.GetEvent().GetId()}}}})
			}
		})
	}
	g := newGroups(t)
	o := groupOfAll("g")
	o.GetAll().FilterOption = prefixes(true, "$idx-user-x")
	_, err := g.Create(g.ctx, &persistent.CreateReq{Options: o})
	check.Equal(t, endOf(err, nil).text, "Subscription group g on stream $all failed: 'Index '$idx-user-x' not found.'", "no index")
}
