package raftdisk

import (
	"encoding/binary"
	"errors"
	"slices"

	"github.com/hashicorp/go-msgpack/v2/codec"
	"github.com/hashicorp/raft"
	"go.etcd.io/bbolt"
)

// Buckets of a bbolt file, and how its entries are encoded. Do not change: they are those of
// raft-boltdb, which wrote the files of earlier versions.
var (
	boltLogs = []byte("logs") // index, 8 bytes big endian -> entry in msgpack
	boltConf = []byte("conf") // votes and the term; numbers are 8 bytes big endian
)

var boltMsgpack = codec.MsgpackHandle{}

// errNoKey says that a stable store does not have a key. raft looks for this text.
var errNoKey = errors.New("not found")

// boltStore keeps the entries of a Raft log, or its votes, in a bbolt file.
type boltStore struct{ db *bbolt.DB }

func newBoltStore(path string, o *bbolt.Options) (*boltStore, error) {
	db, err := bbolt.Open(path, 0o600, o)
	if err != nil {
		return nil, err
	}
	err = db.Update(func(tx *bbolt.Tx) error {
		_, err := tx.CreateBucketIfNotExists(boltLogs)
		if err == nil {
			_, err = tx.CreateBucketIfNotExists(boltConf)
		}
		return err
	})
	if err != nil {
		return nil, errors.Join(err, db.Close())
	}
	return &boltStore{db}, nil
}

func (b *boltStore) Close() error { return b.db.Close() }

// Sync makes what was written durable. Each write does that by itself.
func (b *boltStore) Sync() error { return b.db.Sync() }

func (b *boltStore) FirstIndex() (uint64, error) { return b.end((*bbolt.Cursor).First) }
func (b *boltStore) LastIndex() (uint64, error)  { return b.end((*bbolt.Cursor).Last) }

// end returns the index at one end of the log, 0 if it is empty.
func (b *boltStore) end(of func(*bbolt.Cursor) (key, value []byte)) (index uint64, err error) {
	err = b.db.View(func(tx *bbolt.Tx) error {
		if key, _ := of(tx.Bucket(boltLogs).Cursor()); key != nil {
			index = binary.BigEndian.Uint64(key)
		}
		return nil
	})
	return index, err
}

func boltKey(index uint64) []byte { return binary.BigEndian.AppendUint64(nil, index) }

func (b *boltStore) GetLog(index uint64, log *raft.Log) error {
	return b.db.View(func(tx *bbolt.Tx) error {
		value := tx.Bucket(boltLogs).Get(boltKey(index))
		if value == nil {
			return raft.ErrLogNotFound
		}
		return codec.NewDecoderBytes(value, &boltMsgpack).Decode(log)
	})
}

func (b *boltStore) StoreLog(log *raft.Log) error { return b.StoreLogs([]*raft.Log{log}) }

func (b *boltStore) StoreLogs(logs []*raft.Log) error {
	return b.db.Update(func(tx *bbolt.Tx) error {
		bucket := tx.Bucket(boltLogs)
		for _, log := range logs {
			var value []byte
			if err := codec.NewEncoderBytes(&value, &boltMsgpack).Encode(log); err != nil {
				return err
			}
			if err := bucket.Put(boltKey(log.Index), value); err != nil {
				return err
			}
		}
		return nil
	})
}

// DeleteRange deletes the entries from one index to another, both included.
func (b *boltStore) DeleteRange(from, to uint64) error {
	return b.db.Update(func(tx *bbolt.Tx) error {
		c := tx.Bucket(boltLogs).Cursor()
		for key, _ := c.Seek(boltKey(from)); key != nil && binary.BigEndian.Uint64(key) <= to; key, _ = c.Next() {
			if err := c.Delete(); err != nil {
				return err
			}
		}
		return nil
	})
}

func (b *boltStore) Set(key, value []byte) error {
	return b.db.Update(func(tx *bbolt.Tx) error { return tx.Bucket(boltConf).Put(key, value) })
}

func (b *boltStore) Get(key []byte) (value []byte, err error) {
	err = b.db.View(func(tx *bbolt.Tx) error {
		stored := tx.Bucket(boltConf).Get(key)
		if stored == nil {
			return errNoKey
		}
		value = slices.Clone(stored)
		return nil
	})
	return value, err
}

func (b *boltStore) SetUint64(key []byte, value uint64) error {
	return b.Set(key, binary.BigEndian.AppendUint64(nil, value))
}

func (b *boltStore) GetUint64(key []byte) (uint64, error) {
	value, err := b.Get(key)
	if err != nil {
		return 0, err
	}
	return binary.BigEndian.Uint64(value), nil
}
