// Package gossip keeps the list of a cluster's nodes: which there are, alive or dead, with which
// addresses and attributes. It makes no decision with it: its users form a cluster and choose a
// leader.
//
// Membership is serf's, over memberlist: nodes probe each other, pass on what they learn, and
// exchange their whole lists now and then. A node's attributes travel in its tags. This package
// adds the admission of members (admit.go), the search for lost ones (join.go) and the transport
// (transport.go).
//
// All traffic uses the port between nodes (package wire), which authenticates nodes by certificates
// and refuses those of another cluster. A stream of memberlist is a connection of wire.KindGossip.
// Its packets travel on connections of wire.KindPackets, three to each peer in turn, each packet
// after its length:
//
//	0  2  length of the packet, big endian, not 0
//	2  .  packet of memberlist
//
// Like datagrams, packets may be lost: one that finds no room in a queue, or waited too long, is
// dropped.
package gossip
