package grpcapi

import (
	"encoding/binary"

	"google.golang.org/grpc/mem"
	"google.golang.org/protobuf/encoding/protowire"

	"github.com/annalsdb/annals/event"
)

// answer is a message that encodes itself.
type answer interface {
	size() int // at most
	appendTo(b []byte) []byte
}

func encodeAnswer(a answer) *[]byte {
	room := mem.DefaultBufferPool().Get(frameHead + a.size())
	b := a.appendTo((*room)[:frameHead])
	setHead(b)
	*room = b
	return room
}

// setHead writes the head of a message, which stands before it.
func setHead(b []byte) {
	b[0] = 0
	binary.BigEndian.PutUint32(b[1:], uint32(len(b)-frameHead))
}

// Numbers of fields of AppendResp; BatchAppendResp; Success, which is the same in both. They are
// part of the wire contract: do not change.
const (
	fieldAppended = 1

	fieldCorrelation, fieldBatchError, fieldBatchAppended, fieldBatchStream = 1, 2, 3, 4

	fieldCurrentRevision, fieldNoStream, fieldWrittenAt, fieldNoPosition = 1, 2, 3, 4
	fieldCommitPosition, fieldPreparePosition                            = 1, 2
)

// maxSuccess is how many bytes what was written takes at most, with the head of its field.
const maxSuccess = 64

// appendSuccess appends what was written as a field.
func appendSuccess(b []byte, field protowire.Number, w *event.Written) []byte {
	var room, at [maxSuccess]byte
	success := room[:0]
	if w.Last < 0 {
		success = appendHeader(success, fieldNoStream, 0)
	} else { // Which says so when it is 0, too.
		success = protowire.AppendTag(success, fieldCurrentRevision, protowire.VarintType)
		success = protowire.AppendVarint(success, uint64(w.Last))
	}
	if w.Position < 0 {
		success = appendHeader(success, fieldNoPosition, 0)
	} else {
		position := appendNumber(at[:0], fieldCommitPosition, uint64(w.Position))
		position = appendNumber(position, fieldPreparePosition, uint64(w.Position))
		success = append(appendHeader(success, fieldWrittenAt, len(position)), position...)
	}
	return append(appendHeader(b, field, len(success)), success...)
}

// appendAnswer is the answer to an append that was done.
type appendAnswer event.Written

func (a *appendAnswer) size() int { return maxSuccess }

func (a *appendAnswer) appendTo(b []byte) []byte {
	return appendSuccess(b, fieldAppended, (*event.Written)(a))
}

// batchAnswer is the answer to a write of a batch.
type batchAnswer struct {
	*batchWrite
	failure []byte // nil: it was done
}

func (a *batchAnswer) size() int {
	size := bytesSize(len(a.correlation)) + bytesSize(len(a.failure)) + maxSuccess
	if a.identifier != nil {
		size += bytesSize(bytesSize(len(*a.identifier)))
	}
	return size
}

func (a *batchAnswer) appendTo(b []byte) []byte {
	b = append(appendHeader(b, fieldCorrelation, len(a.correlation)), a.correlation...)
	if a.failure != nil {
		b = append(appendHeader(b, fieldBatchError, len(a.failure)), a.failure...)
	} else {
		b = appendSuccess(b, fieldBatchAppended, &a.written)
	}
	if a.identifier != nil {
		b = appendHeader(b, fieldBatchStream, bytesSize(len(*a.identifier)))
		b = append(appendHeader(b, fieldStreamName, len(*a.identifier)), *a.identifier...)
	}
	return b
}
