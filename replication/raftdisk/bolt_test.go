package raftdisk

import (
	"path/filepath"
	"reflect"
	"testing"
	"time"

	"github.com/hashicorp/raft"
	raftboltdb "github.com/hashicorp/raft-boltdb/v2"
	"go.etcd.io/bbolt"
)

// TestBoltIsThatOfEarlierVersions: what raft-boltdb wrote is read here, and the other way round.
func TestBoltIsThatOfEarlierVersions(t *testing.T) {
	type store interface {
		raft.LogStore
		raft.StableStore
		Close() error
	}
	path := filepath.Join(t.TempDir(), "x.bolt")
	openers := map[string]func() (store, error){
		"ours": func() (store, error) { return newBoltStore(path, &bbolt.Options{NoFreelistSync: true}) },
		"theirs": func() (store, error) {
			return raftboltdb.New(raftboltdb.Options{Path: path, MsgpackUseNewTimeFormat: true})
		},
	}
	index := uint64(0)
	for _, c := range []struct{ writes, reads string }{{"theirs", "ours"}, {"ours", "theirs"}, {"ours", "ours"}} {
		s, err := openers[c.writes]()
		if err != nil {
			t.Fatal(err)
		}
		var logs []*raft.Log
		for i := range uint64(4) {
			logs = append(logs, &raft.Log{
				Index: index + 1 + i, Term: 7, Type: raft.LogConfiguration, Data: []byte{byte(i), 0xff},
				Extensions: []byte("x"), AppendedAt: time.Unix(1_700_000_000, 123_456_789).UTC(),
			})
		}
		for _, err := range []error{
			s.StoreLogs(logs), s.DeleteRange(index, index+1), s.DeleteRange(index+4, index+9),
			s.Set([]byte("LastVoteCand"), []byte(c.writes)), s.SetUint64([]byte("CurrentTerm"), 1<<40+index), s.Close(),
		} {
			if err != nil {
				t.Fatal(err)
			}
		}
		if s, err = openers[c.reads](); err != nil {
			t.Fatal(err)
		}
		for i := range logs {
			var got raft.Log
			err := s.GetLog(logs[i].Index, &got)
			kept := i == 1 || i == 2
			if kept && (err != nil || !reflect.DeepEqual(&got, logs[i])) || !kept && err != raft.ErrLogNotFound {
				t.Errorf("%+v: entry %d of %s: %+v, %v", c, i, c.writes, got, err)
			}
		}
		last, err := s.LastIndex()
		if err != nil || last != index+3 {
			t.Errorf("%+v: the last entry is %d, %v", c, last, err)
		}
		candidate, err := s.Get([]byte("LastVoteCand"))
		if err != nil || string(candidate) != c.writes {
			t.Errorf("%+v: candidate %q, %v", c, candidate, err)
		}
		if term, err := s.GetUint64([]byte("CurrentTerm")); err != nil || term != 1<<40+index {
			t.Errorf("%+v: term %d, %v", c, term, err)
		}
		if _, err := s.Get([]byte("not there")); err == nil || err.Error() != "not found" {
			t.Errorf("%+v: a key that is not there: %v", c, err)
		}
		if err := s.Close(); err != nil {
			t.Fatal(err)
		}
		index += 10
	}
}
