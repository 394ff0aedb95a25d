package bootstrap

import (
	"encoding/json"
	"reflect"
	"strings"
	"testing"

	"github.com/annalsdb/annals/event"
	"github.com/annalsdb/annals/internal/check"
)

// crowd is a proposal of so many members.
func crowd(members int) *Proposal {
	p := &Proposal{Cluster: id(50), Proposer: event.ID{1}}
	for i := range members {
		p.Members = append(p.Members, event.ID{1, byte(i)})
	}
	return p
}

func TestValidateProposal(t *testing.T) {
	cases := []struct {
		name string
		p    *Proposal
		want string // part of the error; empty: none
	}{
		{"good", proposal(50, 1, 2, 3), ""},
		{"the largest", crowd(MaxClusterSize), ""},
		{"too large", crowd(MaxClusterSize + 1), "33 members"},
		{"empty", &Proposal{Cluster: id(50), Proposer: id(1)}, "0 members"},
		{"no cluster", proposal(0, 1, 2), "cluster id"},
		{"no proposer", &Proposal{Cluster: id(50), Members: []event.ID{id(1)}}, "proposer"},
		{"a member without id", &Proposal{Cluster: id(50), Proposer: id(1), Members: []event.ID{{}, id(1)}}, "without an id"},
		{"a member twice", proposal(50, 1, 2, 2), "rising"},
		{"not in order", proposal(50, 1, 3, 2), "rising"},
	}
	for _, c := range cases {
		t.Run(c.name, func(t *testing.T) {
			err := c.p.Validate()
			if (err == nil) != (c.want == "") || err != nil && !strings.Contains(err.Error(), c.want) {
				t.Errorf("%v, want %q", err, c.want)
			}
		})
	}
}

func TestValidateMessages(t *testing.T) {
	good := proposal(50, 1, 2)
	requests := []struct {
		r  Request
		ok bool
	}{
		{Request{Kind: Ask, From: id(1)}, true},
		{Request{Kind: Ask, From: id(1), Proposal: good}, true},
		{Request{Kind: Promise, From: id(1), Proposal: good}, true},
		{Request{Kind: GaveUp, From: id(1), Proposal: good}, true},
		{Request{Kind: Promise, From: id(1)}, false},
		{Request{Kind: GaveUp, From: id(1)}, false},
		{Request{Kind: Ask}, false},
		{Request{Kind: "other", From: id(1)}, false},
		{Request{From: id(1)}, false},
		{Request{Kind: Ask, From: id(1), Proposal: proposal(0, 1)}, false},
	}
	for _, c := range requests {
		if err := c.r.Validate(); (err == nil) != c.ok {
			t.Errorf("%+v: %v", c.r, err)
		}
	}
	answers := []struct {
		a  Answer
		ok bool
	}{
		{Answer{Node: id(1), ClusterSize: 3}, true},
		{Answer{Node: id(1), ClusterSize: 3, Promise: good, Cluster: id(50), Refusal: IsBound}, true},
		{Answer{ClusterSize: 3}, false},
		{Answer{Node: id(1)}, false},
		{Answer{Node: id(1), ClusterSize: MaxClusterSize + 1}, false},
		{Answer{Node: id(3), ClusterSize: 3, Promise: good}, false},
		{Answer{Node: id(1), ClusterSize: 3, Promise: proposal(50, 2, 1)}, false},
	}
	for _, c := range answers {
		if err := c.a.Validate(); (err == nil) != c.ok {
			t.Errorf("%+v: %v", c.a, err)
		}
	}
}

// TestWire fixes the spelling that nodes of different versions share.
func TestWire(t *testing.T) {
	cases := []struct {
		value any
		want  string
	}{
		{&Request{Kind: Ask, From: id(1)}, `{"kind":"ask","from":"01000000-0000-0000-0000-000000000000"}`},
		{&Request{Kind: Promise, From: id(1), Proposal: proposal(5, 1, 2)}, `{"kind":"promise","from":"01000000-0000-0000-0000-000000000000",` +
			`"proposal":{"cluster":"05000000-0000-0000-0000-000000000000","proposer":"01000000-0000-0000-0000-000000000000",` +
			`"members":["01000000-0000-0000-0000-000000000000","02000000-0000-0000-0000-000000000000"]}}`},
		{&Answer{Node: id(1), ClusterSize: 3}, `{"node":"01000000-0000-0000-0000-000000000000","clusterSize":3}`},
		{
			&Answer{
				Node: id(1), Cluster: id(5), Promise: proposal(5, 1), GaveUp: id(6), ReadOnly: true, ClusterSize: 3, Refusal: IsMember,
			},
			`{"node":"01000000-0000-0000-0000-000000000000","cluster":"05000000-0000-0000-0000-000000000000",` +
				`"promise":{"cluster":"05000000-0000-0000-0000-000000000000","proposer":"01000000-0000-0000-0000-000000000000",` +
				`"members":["01000000-0000-0000-0000-000000000000"]},"gaveUp":"06000000-0000-0000-0000-000000000000",` +
				`"readOnly":true,"clusterSize":3,"refusal":"member"}`,
		},
	}
	for _, c := range cases {
		data := check.Value(json.Marshal(c.value)).Must(t)
		check.Equal(t, string(data), c.want)
		back := reflect.New(reflect.TypeOf(c.value).Elem()).Interface()
		if err := json.Unmarshal(data, back); err != nil || !reflect.DeepEqual(back, c.value) {
			t.Errorf("%s is read as %+v, %v", data, back, err)
		}
	}
}

func TestWireLimits(t *testing.T) {
	data, err := json.Marshal(Answer{
		Node: id(1), Cluster: id(50), Promise: crowd(MaxClusterSize), GaveUp: id(2), ReadOnly: true, ClusterSize: MaxClusterSize, Refusal: SeesCluster,
	})
	if err != nil || len(data) > MaxMessageBytes {
		t.Errorf("the largest answer has %d bytes, %v", len(data), err)
	}
	check.Fails(t, crowd(MaxClusterSize+1).Validate(), "a set above the limit was accepted")
	for _, text := range []string{`{"from":"x"}`, `{"proposal":{"members":["1"]}}`, `{"from":[1]}`, `[]`} {
		check.Fails(t, json.Unmarshal([]byte(text), &Request{}), text, "was read")
	}
}

// FuzzRequest shows that no request of another node upsets this one, and that none
// makes a bound node break its promise.
func FuzzRequest(f *testing.F) {
	for _, r := range []Request{
		{Kind: Ask, From: id(1)},
		{Kind: Promise, From: id(1), Proposal: proposal(51, 1, 2, 3)},
		{Kind: Promise, From: id(1), Proposal: proposal(50, 1, 2, 4)},
		{Kind: GaveUp, From: id(3), Proposal: proposal(50, 1, 2, 3)},
	} {
		data := check.Value(json.Marshal(r)).Must(f)
		f.Add(data)
	}
	bond := proposal(50, 1, 2, 3)
	f.Fuzz(func(t *testing.T, data []byte) {
		var r Request
		if json.Unmarshal(data, &r) != nil {
			return
		}
		b := newBench(t, 2, Options{}, bond, false, fresh(1), fresh(3))
		a := b.ask(r)
		released := r.Kind == GaveUp && r.From == bond.Proposer && bond.is(r.Proposal)
		if !released && (!bond.is(a.Promise) || !bond.is(b.core.record.Promise)) || len(only[save](b)) > 0 != released {
			t.Errorf("after %s: %+v, %+v", data, a, b.effects)
		}
	})
}
