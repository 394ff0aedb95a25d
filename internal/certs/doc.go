// Package certs turns an operator's certificate files into the TLS configurations of a node, and
// makes such files.
//
// A Set is one verified whole: the node's certificate with its private key and intermediates, the
// trusted roots, and the reserved common name that separates nodes from other holders of
// certificates. Load reads it from files and refuses what would fail later; Inspect lists all
// errors and warnings at once, and Reload is stricter, for a node that has a Set already. A Store
// holds the Set in force; its TLS configurations read it at every handshake, so that Replace swaps
// certificates without a restart. An Authority issues certificates where there is no other
// authority.
//
// Who is a node. A connection between nodes is authenticated on both sides. The other side is a
// node if its certificate chains to a trusted root, allows both server and client authentication,
// carries a common name that matches the reserved one, and has a DNS name or an IP address as
// alternative name (whyNoNode). Roots are only those of the configured folder: the store of the
// operating system is never consulted, nothing is downloaded, and revocation is not checked, so a
// lost key is answered by a new authority.
//
// What Replace changes. Handshakes that begin afterwards use the new Set only: sessions are never
// resumed, neither by nodes nor by clients, so that no connection rests on what was trusted before.
// A client that opens many connections pays with a full handshake for each. Connections that are
// established stay as they are; their owners renew them.
package certs
