package wire

import (
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"strings"
	"unicode"

	"github.com/annalsdb/annals/event"
)

// Parts of the preamble. Do not change.
const (
	magic         = "\xa9ANNALS\n"
	formatVersion = 1
	headSize      = 10 // of a request: what is the same in every format version
	requestSize   = 48
	answerSize    = 48 // without the reason
	maxReason     = 512

	tlsAlert     = 0x15 // first byte of a record with which TLS turns something down
	tlsHandshake = 0x16 // first byte of every TLS connection
)

// Status says how a request was answered. The numbers are part of the preamble: do not change.
type Status byte

// The answers to a request.
const (
	StatusAccepted     Status = 0
	StatusOtherFormat  Status = 1 // another format version
	StatusOtherCluster Status = 2 // the nodes belong to different clusters
	// a kind for members of a cluster, and one of the nodes is in none
	StatusNoCluster        Status = 3
	StatusNoListener       Status = 4  // connections of the kind are not accepted at the moment
	StatusSameNode         Status = 5  // both nodes have the same id
	StatusBusy             Status = 6  // too many connections
	StatusWantsTLS         Status = 7  // a plain connection to a port with TLS
	StatusWantsPlain       Status = 8  // TLS to a plain port
	StatusOtherIncarnation Status = 9  // the nodes follow different histories of one cluster
	StatusProve            Status = 10 // a challenge follows; to a request that offers a proof only
	// one of the nodes does not prove that it is run by the same user
	StatusUnproven Status = 11
)

var (
	errNotOurs = errors.New("the other side is not an Annals node, or its version is not one that this node understands")
	errTLS     = errors.New("the other side speaks TLS, this node plain TCP")
)

// request is what the side that dialled says.
type request struct {
	version byte
	kind    Kind
	proves  bool // it offers a proof
	Identity

	proof *proof // once it was given
}

func (q *request) encode() []byte {
	b := make([]byte, requestSize)
	copy(b, magic)
	b[8], b[9] = q.version, byte(q.kind)
	binary.BigEndian.PutUint32(b[10:], q.Incarnation)
	if q.proves {
		b[14] = 1
	}
	copy(b[16:], q.Cluster[:])
	copy(b[32:], q.Node[:])
	return b
}

// readRequest reads a request whose first bytes, if any, were read already.
// Of a request with another format version only version and kind are valid.
func readRequest(r io.Reader, begun []byte) (request, error) {
	b := make([]byte, requestSize)
	n := copy(b, begun)
	if _, err := io.ReadFull(r, b[n:headSize]); err != nil {
		return request{}, unexpected(err)
	}
	if string(b[:8]) != magic {
		return request{}, errNotOurs
	}
	q := request{version: b[8], kind: Kind(b[9])}
	if q.version != formatVersion {
		return q, nil
	}
	if _, err := io.ReadFull(r, b[headSize:]); err != nil {
		return request{}, unexpected(err)
	}
	q.proves = b[14] == 1
	q.Incarnation, q.Cluster, q.Node = binary.BigEndian.Uint32(b[10:]), event.ID(b[16:32]), event.ID(b[32:48])
	if q.Node.IsZero() {
		return request{}, errNotOurs
	}
	return q, nil
}

// answer is what the side that was dialled says.
type answer struct {
	version byte
	status  Status
	Identity
	reason string
}

func (a *answer) encode() []byte {
	reason := a.reason
	if len(reason) > maxReason {
		reason = strings.ToValidUTF8(reason[:maxReason], "")
	}
	b := make([]byte, answerSize, answerSize+len(reason))
	copy(b, magic)
	b[8], b[9] = a.version, byte(a.status)
	binary.BigEndian.PutUint16(b[10:], uint16(len(reason)))
	binary.BigEndian.PutUint32(b[12:], a.Incarnation)
	copy(b[16:], a.Cluster[:])
	copy(b[32:], a.Node[:])
	return append(b, reason...)
}

// readAnswer reads an answer, and nothing beyond it.
func readAnswer(r io.Reader) (answer, error) {
	var b [answerSize]byte
	if _, err := io.ReadFull(r, b[:1]); err != nil {
		return answer{}, unexpected(err)
	}
	switch b[0] {
	case magic[0]:
	case tlsAlert, tlsHandshake:
		return answer{}, errTLS
	default:
		return answer{}, errNotOurs
	}
	if _, err := io.ReadFull(r, b[1:]); err != nil {
		return answer{}, unexpected(err)
	}
	length := binary.BigEndian.Uint16(b[10:])
	if string(b[:8]) != magic || length > maxReason {
		return answer{}, errNotOurs
	}
	reason := make([]byte, length)
	if _, err := io.ReadFull(r, reason); err != nil {
		return answer{}, unexpected(err)
	}
	return answer{
		version: b[8], status: Status(b[9]), reason: printable(string(reason)),
		Identity: Identity{Incarnation: binary.BigEndian.Uint32(b[12:]), Cluster: event.ID(b[16:32]), Node: event.ID(b[32:48])},
	}, nil
}

// unexpected makes the end of a connection within a preamble an error that says so.
func unexpected(err error) error {
	if errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF) {
		return fmt.Errorf("the other side closed the connection: %w", io.ErrUnexpectedEOF)
	}
	return err
}

// printable makes text of another node fit for a log line.
func printable(s string) string {
	return strings.Map(func(r rune) rune {
		if unicode.IsPrint(r) {
			return r
		}
		return '?'
	}, strings.ToValidUTF8(s, "?"))
}
