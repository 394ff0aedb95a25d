package grpcapi

import (
	"encoding/base64"
	"slices"
	"strings"

	"google.golang.org/grpc/codes"
	"google.golang.org/protobuf/encoding/protowire"
)

// Clients of the methods that append to several streams know an error by the details of its status:
// google.rpc.Status in a trailer, which has google.rpc.ErrorInfo first and the message of the error
// last. They are encoded by hand: the stubs of these messages would register names of google.rpc a
// second time.

// keyDetails is the trailer. Names and numbers below are part of the wire contract: do not change.
const keyDetails = "grpc-status-details-bin"

// detail is a message that a status carries.
type detail struct {
	name string // of its type
	body []byte
}

// Domains of errors.
const (
	domainStreams = "streams"
	domainServer  = "server"
)

const streamErrors = "kurrentdb.protocol.v2.streams.errors."

// maxProblemText is how much of its text an error tells in its trailers, which has it twice.
const maxProblemText = 4 << 10

// maxDetails bounds what details say of checks, in bytes: they are in a header.
const maxDetails = 64 << 10

func appendText(b []byte, field protowire.Number, text string) []byte {
	if text == "" {
		return b
	}
	return append(appendHeader(b, field, len(text)), text...)
}

// appendSigned appends a number of type sint64.
func appendSigned(b []byte, field protowire.Number, v int64) []byte {
	return appendNumber(b, field, protowire.EncodeZigZag(v))
}

func appendMessage(b []byte, field protowire.Number, message []byte) []byte {
	return append(appendHeader(b, field, len(message)), message...)
}

// refusal is a problem with details: why, and what the message of the error says, if it has one.
func refusal(code codes.Code, domain, reason, text string, typed ...detail) *problem {
	return plain(code, shortened(text)).because(domain, reason, typed...)
}

func shortened(text string) string {
	if len(text) > maxProblemText {
		text = strings.ToValidUTF8(text[:maxProblemText], "") + " ..."
	}
	return text
}

// because returns a problem with details.
func (p *problem) because(domain, reason string, typed ...detail) *problem {
	status := appendText(appendNumber(nil, 1, uint64(p.code)), 2, p.text)
	why := detail{"google.rpc.ErrorInfo", appendText(appendText(nil, 1, reason), 2, domain)}
	for _, d := range append([]detail{why}, typed...) {
		status = appendMessage(status, 3, appendMessage(appendText(nil, 1, "type.googleapis.com/"+d.name), 2, d.body))
	}
	with := *p
	with.fields = append(slices.Clone(p.fields), keyDetails, base64.RawStdEncoding.EncodeToString(status))
	return &with
}

// badField is the answer to a field of a request that is not right. Its name may be empty.
func badField(field, text string) *problem {
	return refusal(codes.InvalidArgument, domainServer, "BAD_REQUEST", text, badRequest(field, text))
}

func badRequest(field, text string) detail {
	return detail{"google.rpc.BadRequest", appendMessage(nil, 1, appendText(appendText(nil, 1, field), 2, shortened(text)))}
}

// detailed gives a problem the details that it has in all methods which append to several streams.
func detailed(p *problem) *problem {
	switch {
	case slices.Contains(p.fields, keyDetails):
	case p.code == codes.InvalidArgument:
		return p.because(domainServer, "BAD_REQUEST", badRequest("", p.text))
	case p.code == codes.PermissionDenied:
		return p.because(domainServer, "ACCESS_DENIED")
	case p.exception == exceptionNotLeader:
		return p.because(domainServer, "NOT_LEADER_NODE")
	case p == problemBusy:
		return p.because(domainServer, "SERVER_OVERLOADED")
	case p.code == codes.Unavailable:
		return p.because(domainServer, "SERVER_NOT_READY")
	case p.code == codes.Aborted:
		return p.because(domainServer, "OPERATION_TIMEOUT")
	}
	return p
}
