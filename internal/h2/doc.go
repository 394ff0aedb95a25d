// Package h2 serves a connection of HTTP/2 (RFC 9113) whose streams belong to its user: it reads
// what a stream is sent as it comes, and writes what the user says, within the windows of both
// sides. It knows nothing of methods, paths or media types.
//
// One goroutine reads a connection. There is none that writes: a stream appends its frames to what
// is to be written, and writes all that is there unless another does. So answers that are ready
// together leave together, and none of them waits for a goroutine to wake. Streams that have more
// data than the connection takes have it in turns; headers do not wait for data.
package h2
