// Package bench is the load driver: it measures any node that speaks the HTTP
// interface of streams or the gRPC services, ours or another.
//
// The driver shares the machine with what it measures, so it must be cheap.
// Every worker owns one keep-alive connection, writes a request with one system
// call out of a reused buffer, and reads the answer with a parser that looks at
// the few headers the workloads need. Nothing is allocated per request while all
// goes well; redirects, lost connections and refusals take slower paths.
//
// A workload gives each worker an operation. A session owns the connections and
// runs the operations for a phase: the warm-up, or one measured run. Latencies go
// into one histogram per worker, which the session drains once a second.
package bench
