// Package wire is the one port between the nodes of a cluster. Raft, the
// services that nodes offer each other over HTTP, and the requests of clients
// that one node relays to another share it, each on connections of its own
// kind. With TLS both sides show their certificates.
//
// # The preamble
//
// A connection begins, after TLS if there is any, with a request of the side that dialled and an
// answer of the other side. Nothing else is sent before the answer was read. Numbers are big
// endian. Do not change: nodes of different versions must be able to refuse each other with a
// reason.
//
//	request                        answer
//	 0  8  magic a9 "ANNALS" 0a     0  8  magic a9 "ANNALS" 0a
//	 8  1  format version, 1        8  1  format version, 1
//	 9  1  kind                     9  1  status, 0 = accepted
//	10  4  incarnation             10  2  length of the reason, at most 512
//	14  1  1: offers a proof       12  4  incarnation
//	15  1  zero
//	16 16  cluster id, zero: none  16 16  cluster id, zero: none
//	32 16  node id                 32 16  node id
//	                               48  n  reason, UTF-8; empty if accepted
//
// The first ten bytes of the request and the whole answer are the same in every
// format version, so that a refusal is understood by any version. The
// first byte of the magic is neither that of a TLS record nor text: each side
// recognizes a peer that disagrees about TLS. A port that wants TLS answers a
// plain request with a plain refusal, and a plain port a TLS hello.
//
// The incarnation is the first four bytes of the id of the node's cluster incarnation: which of the
// histories of the cluster it follows. It is zero for the first one, for a node that follows none
// yet, and for a node of a version that knew of none. Nodes of different incarnations accept only
// services of each other.
//
// # Proofs
//
// Without TLS, any process of the machine could say the preamble. So ports with a Secret (package
// peersecret) have each other prove, between request and answer, that they know one:
//
//	dialler                                 acceptor
//	request, with byte 14 = 1
//	                                        answer of status 10, and the challenge:
//	                                         0 32  nonce
//	                                        32  8  id of the acceptor's secret
//	                                        40  2  length of a path, at most 4096
//	                                        42  n  path of the file with that secret
//	 0 32  nonce
//	32 16  IPv6 address dialled (or IPv4, mapped)
//	48  2  port dialled
//	50 32  code of the dialler
//	                                        answer, and if the code was right
//	                                         0 32  code of the acceptor
//
// A code is HMAC-SHA256 with the acceptor's secret. That of the dialler is of "annals dialler", the
// request, the challenge, and what stands before it; that of the acceptor of "annals acceptor", the
// same, and its answer. The dialler has the secret from the file, which must be of its own user and
// readable by no other, or has a copy of it in its own. So either knows that the same user runs the
// other, and a code is worth nothing for another connection. The address is included because
// another process may listen at the address of a missing node, and forward what it hears to another
// node: the acceptor takes only its own address. After that no other process of another user can
// put itself between two ends of a loopback connection.
//
// A node without a Secret and one with it refuse each other, with status 11.
//
// # Installing snapshots
//
// Raft's messages are those of raft.NetworkTransport, except InstallSnapshot,
// which has connections of a kind of its own, one for each snapshot, so that a
// snapshot can be looked at, waited for and refused without raft. A frame is
// four bytes of length and as many bytes of JSON:
//
//	dialler                                  acceptor
//	frame: raft.InstallSnapshotRequest
//	                                         frame: {} continue, or {"error": ...}
//	request.Size bytes of the snapshot
//	                                         frame: {"response": raft.InstallSnapshotResponse}
//	                                                or {"error": ...}
//
// # Renewing connections
//
// Certificates change while a node runs, and a connection shows those of its beginning. So a
// connection is renewed at the age of Options.Renew, plus at most a tenth and the messages in
// flight. No message is lost and no error logged:
//
//   - Raft's plain messages: the side that dials exchanges its pool of
//     connections for an empty one. Those that are idle are closed at once, those in
//     use when the answer has come.
//   - Raft's pipelines: the side that dials ends its direction after a whole message and reads the
//     answers in flight until the other side ends too. To raft the next message looks refused; it
//     leaves the pipeline, sends that message again and opens a new pipeline.
//   - HTTP: a server from HTTPServer answers the first request on a connection
//     that is due with "Connection: close", so that the client, which alone
//     knows whether it is about to send something, closes it. Idle connections
//     are closed by the client of HTTPTransport, earlier than by the server.
//   - A dialler of Raft that does not do its part is cut off, between two
//     messages, after five quarters of Renew and the time for one message.
package wire
