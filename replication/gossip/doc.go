// Package gossip keeps the list of a cluster's nodes: which there are, alive or
// dead, with which addresses and attributes. It decides nothing with it; forming
// a cluster and choosing a leader are the work of those who read the list.
//
// Membership is serf's, over memberlist: nodes probe each other, pass on what
// they learn, and exchange their whole lists now and then. What a node says of itself
// travels in its tags. What is our own is the admission of members (admit.go), the
// finding of lost ones (join.go) and the transport (transport.go).
//
// All goes over the port between nodes (package wire), which proves by certificates who is a node
// and refuses those of another cluster. A stream of memberlist is a connection of
// wire.KindGossip. Its packets travel on connections of wire.KindPackets, three to each peer in
// turn, each packet behind its length:
//
//	0  2  length of the packet, big endian, not 0
//	2  .  packet of memberlist
//
// Like datagrams, packets may be lost: what finds no room in a queue, or waited too long, is
// dropped.
package gossip
