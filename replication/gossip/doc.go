// Package gossip keeps the list of a cluster's nodes: which there are, alive or
// dead, with which addresses and attributes. It decides nothing with it; forming
// a cluster and choosing a leader are the work of those who read the list.
//
// Membership is serf's, over memberlist: nodes probe each other, pass on what
// they learn, and exchange their whole lists now and then. What a node says of itself
// travels in its tags. What is our own is the admission of members (admit.go), the
// finding of lost ones (join.go) and the transport, whose bytes are described here.
//
// # Streams
//
// A TCP connection, inside TLS if the node has certificates, begins with one
// byte from the side that dialled:
//
//	0x01  a stream of memberlist follows
//	0x02  both sides exchange one hello, the dialling side first, then it ends
//
// A hello has a fixed length of 59 bytes:
//
//	 0  1  version: 0xA1
//	 1 16  id of the node
//	17  2  port of its gossip, big endian: where it can be asked in turn
//	19  8  id of its sending key
//	27 32  the sending key; id and key are zero without TLS
//
// # Packets
//
// A UDP packet begins with one byte that says how it is protected. Without
// certificates:
//
//	0  1  0xE0
//	1  .  packet of memberlist
//
// With certificates:
//
//	 0  1  0xE1
//	 1  8  id of the sender's key
//	 9  8  counter of the sender, big endian, never used twice with one key
//	17  .  packet of memberlist, sealed with AES-256-GCM
//	 .  16 its tag
//
// The nonce is four zero bytes and the counter. What is authenticated beside the
// packet is its first 17 bytes followed by the 16 bytes of the id of the node that
// it is meant for, which do not travel: a packet cannot be turned to another node.
//
// Each node has one sending key, made at random and kept in memory alone. It
// reaches others in hellos only, whose TLS demands certificates of both sides, so
// that gossip needs no secret that somebody would have to distribute. A node sends a hello
// before its first packet to a node; one that gets a packet with an unknown
// key sends a hello to the packet's source and drops the packet. A new key is made every 10
// minutes; the old one serves for one more minute and is then forgotten by
// its receivers. A node whose certificate is no longer accepted thus cannot take part
// for longer than 11 minutes.
package gossip
