package torture

import (
	"fmt"
	"slices"
	"testing"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/annalsdb/annals/internal/check"
)

// TestTransfers feeds the checks of writes to several streams with histories made by hand.
func TestTransfers(t *testing.T) {
	type part = []int // of the events of a transfer, in the order of the log
	all := func(n int) (p part) {
		for i := range n {
			p = append(p, i)
		}
		return p
	}
	for name, c := range map[string]struct {
		outcome outcome
		shown   func(n int) part // of the first transfer
		between string           // the stream of another event, after the first one
		edit    func(*transfer)
		checks  []accountCheck
		want    []string
	}{
		"done":                {done, all, "", nil, nil, nil},
		"there":               {pending, all, "", nil, nil, nil},
		"not there":           {pending, func(int) part { return nil }, "", nil, nil, nil},
		"lost":                {done, func(int) part { return nil }, "", nil, nil, []string{kindLost}},
		"refused":             {conflict, func(int) part { return nil }, "", func(t *transfer) { t.broken = []accountCheck{{0, noStream}} }, []accountCheck{{0, 3}}, nil},
		"refused for nothing": {conflict, func(int) part { return nil }, "", func(t *transfer) { t.broken = []accountCheck{{0, 3}} }, []accountCheck{{0, noStream}}, []string{kindLinear}},
		"refused and there":   {refused, all, "", nil, nil, []string{kindUnwanted}},
		"in part":             {pending, func(n int) part { return all(n)[:n-1] }, "", nil, nil, []string{kindTorn, kindSum}},
		"an event between":    {done, all, "s", nil, nil, []string{kindTorn, kindSum}},
		"one that may go":     {done, all, shedStream + "1", nil, nil, []string{kindTorn}},
		"another number":      {done, all, "", func(t *transfer) { t.numbers[0]++ }, nil, []string{kindOrder, kindLinear}},
		"another position":    {done, all, "", func(t *transfer) { t.position = 1 << 40 }, nil, []string{kindOrder}},
		"a check of others":   {done, all, "", nil, []accountCheck{{bankAccounts - 1, 0}}, []string{kindLinear}},
	} {
		t.Run(name, func(t *testing.T) {
			s := newScene(t)
			j := s.client()
			s.ids.firstTransferer, s.ids.transferers = j.client, 1
			s.book.ids = s.ids
			b := &bank{name: "bank"}
			for i := range b.accounts {
				b.accounts[i] = s.stream(fmt.Sprint("bank-", i))
			}
			n := s.ids.moves(j.next())
			tr := &transfer{bank: b, checks: c.checks, position: eventSize - 1}
			for i := range n {
				tr.events = append(tr.events, i)
				tr.numbers = append(tr.numbers, 0)
			}
			if c.edit != nil {
				c.edit(tr)
			}
			ret := int64(20)
			if c.outcome == pending {
				ret = never
			}
			first, _ := j.begin(op{kind: opTransfer, outcome: c.outcome, transfer: tr, stream: tr.stream(0), count: uint16(n), call: 10, ret: ret})
			var entries []entry
			for _, i := range c.shown(n) {
				entries = append(entries, s.shown(first+ref(i), fmt.Sprint("bank-", i), 0))
			}
			if c.between != "" {
				entries = slices.Insert(entries, 1, s.shown(s.wrote(s.client(), c.between, -2, 0, 10, 20), c.between, 0))
			}
			s.log("node 0", entries...)
			l := newLedger(s.hist, s.book)
			l.check()
			l.linearizable(t.Context(), time.Minute, nil)
			s.expect(c.want...)
		})
	}
}

// TestJudgeStatus: a call that failed within the node may have written, as one over HTTP.
func TestJudgeStatus(t *testing.T) {
	for code, want := range map[codes.Code]outcome{codes.OK: done, codes.Internal: pending, codes.Unavailable: pending} {
		got, odd := judgeStatus(status.New(code, "Internal Server Error"), false, Target{})
		check.Equal(t, got, want, code)
		check.Equal(t, odd, "", code)
	}
	_, odd := judgeStatus(status.New(codes.InvalidArgument, "no"), false, Target{Name: "node 0"})
	check.Contains(t, odd, "from node 0")
}
