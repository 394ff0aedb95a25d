package bench

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"slices"
	"strconv"
	"strings"
	"time"
)

// round is one run against the bare server and one against the node.
type round struct {
	Bare  *result `json:"bare"`
	Node  *result `json:"node"`
	Ratio float64 `json:"ratio"` // operations per second, node to bare
}

// medians are over the rounds of one side.
type medians struct {
	OperationsPerSecond float64 `json:"operationsPerSecond"`
	EventsPerSecond     float64 `json:"eventsPerSecond"`
	PayloadMBPerSecond  float64 `json:"payloadMBPerSecond"`
	P50Ms               float64 `json:"p50Ms"`
	P99Ms               float64 `json:"p99Ms"`
	ServerUsPerOp       float64 `json:"serverUsPerOperation,omitempty"`
	ServerUsPerEvent    float64 `json:"serverUsPerEvent,omitempty"`
}

// comparison is what comparing with the bare server came to.
type comparison struct {
	Workload    string  `json:"workload"`
	Rounds      []round `json:"rounds"`
	Bare        medians `json:"bareMedians"`
	Node        medians `json:"nodeMedians"`
	Ratio       float64 `json:"ratio"` // of the medians of operations per second, node to bare
	Interrupted bool    `json:"interrupted"`
}

// bareChild is a bare server in a process of its own, so that it does not share a heap and a
// scheduler with the driver.
type bareChild struct {
	cmd   *exec.Cmd
	input io.Closer
	base  string
}

// childPatience is how long a child may take to start or to end.
const childPatience = 10 * time.Second

// startBare starts this same binary with the given arguments.
func startBare(o *options, args []string) (*bareChild, error) {
	self, err := os.Executable()
	if err != nil {
		return nil, fmt.Errorf("start bare server: %w", err)
	}
	args = append(slices.Clone(args), "--listen", "127.0.0.1:0", "--until-eof",
		"--log-size", strconv.FormatInt(o.streamEvents, 10),
		"--event-bytes", strconv.Itoa(o.size+bareEventOver), "--entry-bytes", strconv.Itoa(o.size+bareEntryOver))
	cmd := exec.Command(self, args...)
	cmd.Stderr = os.Stderr
	input, err := cmd.StdinPipe()
	if err != nil {
		return nil, fmt.Errorf("start bare server: %w", err)
	}
	output, err := cmd.StdoutPipe()
	if err != nil {
		return nil, fmt.Errorf("start bare server: %w", err)
	}
	if err := cmd.Start(); err != nil {
		return nil, fmt.Errorf("start bare server: %w", err)
	}
	b := &bareChild{cmd: cmd, input: input}
	// A child that says nothing is killed, which ends the read.
	hung := time.AfterFunc(childPatience, func() { _ = cmd.Process.Kill() })
	line, err := bufio.NewReader(output).ReadString('\n')
	hung.Stop()
	address, ok := strings.CutPrefix(strings.TrimSpace(line), bareGreeting)
	if !ok {
		return nil, errors.Join(fmt.Errorf("start bare server: it said %q", line), err, b.close())
	}
	b.base = "http://" + address
	return b, nil
}

// close ends the child and waits for it.
func (b *bareChild) close() error {
	err := b.input.Close()
	hung := time.AfterFunc(childPatience, func() { _ = b.cmd.Process.Kill() })
	defer hung.Stop()
	if waitErr := b.cmd.Wait(); waitErr != nil {
		err = errors.Join(err, fmt.Errorf("end bare server: %w", waitErr))
	}
	return err
}

// compare runs a workload alternately against a bare server and the node.
func compare(ctx context.Context, k *kind, o *options, bareArgs []string, log io.Writer) (c *comparison, err error) {
	child, err := startBare(o, bareArgs)
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, child.close()) }()
	bareOptions := *o
	bareOptions.bases = []string{child.base}
	bareOptions.pids = []int{child.cmd.Process.Pid}
	bareOptions.prepare = false
	bareOptions.user, bareOptions.password = "", ""

	open := func(o *options, name string) (*session, error) {
		work, err := k.make(o)
		if err != nil {
			return nil, err
		}
		return openSession(ctx, o, name, work, log)
	}
	node, err := open(o, k.name)
	if err != nil {
		return nil, err
	}
	defer node.close()
	bare, err := open(&bareOptions, "bare "+k.name)
	if err != nil {
		return nil, err
	}
	defer bare.close()

	c = &comparison{Workload: k.name}
	bareResults, nodeResults, err := alternate(ctx, o.rounds,
		func(int) (*result, error) { return bare.measure(ctx, o.duration, o.warmup, o.count) },
		func(int) (*result, error) { return node.measure(ctx, o.duration, o.warmup, o.count) })
	if err != nil {
		return nil, err
	}
	for i, r := range nodeResults {
		b := bareResults[i]
		c.Rounds = append(c.Rounds, round{Bare: b, Node: r, Ratio: ratio(r.OperationsPerSecond, b.OperationsPerSecond)})
	}
	c.Interrupted = ctx.Err() != nil
	c.Bare, c.Node = mediansOf(bareResults), mediansOf(nodeResults)
	c.Ratio = ratio(c.Node.OperationsPerSecond, c.Bare.OperationsPerSecond)
	return c, nil
}

// alternate measures two sides in rounds, and returns the results of every whole round.
func alternate(ctx context.Context, rounds int, one, other func(round int) (*result, error)) (ones, others []*result, err error) {
	sides := []func(int) (*result, error){one, other}
	for n := range rounds {
		var results [2]*result
		for i := range sides {
			// The order changes with every round, so that neither side always comes first.
			side := (n + i) % len(sides)
			if ctx.Err() != nil {
				return ones, others, nil // Half a round would bend the ratio.
			}
			r, err := sides[side](n)
			if err == nil {
				err = r.useless()
			}
			switch {
			case errors.Is(err, context.Canceled):
				return ones, others, nil
			case err != nil:
				return nil, nil, err
			}
			results[side] = r
		}
		if ctx.Err() == nil {
			ones, others = append(ones, results[0]), append(others, results[1])
		}
	}
	return ones, others, nil
}

func ratio(a, b float64) float64 {
	if b == 0 {
		return 0
	}
	return a / b
}

func median(values []float64) float64 {
	if len(values) == 0 {
		return 0
	}
	slices.Sort(values)
	middle := len(values) / 2
	if len(values)%2 == 1 {
		return values[middle]
	}
	return (values[middle-1] + values[middle]) / 2
}

func mediansOf(results []*result) medians {
	of := func(value func(*result) float64) float64 {
		var all []float64
		for _, r := range results {
			all = append(all, value(r))
		}
		return median(all)
	}
	return medians{
		OperationsPerSecond: of(func(r *result) float64 { return r.OperationsPerSecond }),
		EventsPerSecond:     of(func(r *result) float64 { return r.EventsPerSecond }),
		PayloadMBPerSecond:  of(func(r *result) float64 { return r.PayloadMBPerSecond }),
		P50Ms:               of(func(r *result) float64 { return r.LatencyMs.P50 }),
		P99Ms:               of(func(r *result) float64 { return r.LatencyMs.P99 }),
		ServerUsPerOp:       of(func(r *result) float64 { return r.CPU.ServerUsPerOp }),
		ServerUsPerEvent:    of(func(r *result) float64 { return r.CPU.ServerUsPerEvent }),
	}
}

// microseconds writes processor time, which is not always measured.
func microseconds(us float64) string {
	if us == 0 {
		return "-"
	}
	return fmt.Sprintf("%.1f", us)
}

const onlyWholeRounds = "\ninterrupted: only whole rounds are shown\n"

// table is the comparison for people.
func (c *comparison) table() string {
	var rows strings.Builder
	rows.WriteString("\tbare ops/s\tnode ops/s\tratio\tbare p99 ms\tnode p99 ms\tbare cpu us/op\tnode cpu us/op\terrors\t\n")
	var errorTotal int64
	for i := range c.Rounds {
		r := &c.Rounds[i]
		errorTotal += r.Bare.ErrorTotal + r.Node.ErrorTotal
		fmt.Fprintf(&rows, "round %d\t%.0f\t%.0f\t%.3f\t%.3f\t%.3f\t%s\t%s\t%d\t\n", i+1, r.Bare.OperationsPerSecond, r.Node.OperationsPerSecond,
			r.Ratio, r.Bare.LatencyMs.P99, r.Node.LatencyMs.P99, microseconds(r.Bare.CPU.ServerUsPerOp), microseconds(r.Node.CPU.ServerUsPerOp), r.Bare.ErrorTotal+r.Node.ErrorTotal)
	}
	fmt.Fprintf(&rows, "median\t%.0f\t%.0f\t%.3f\t%.3f\t%.3f\t%s\t%s\t%d\t\n", c.Bare.OperationsPerSecond, c.Node.OperationsPerSecond,
		c.Ratio, c.Bare.P99Ms, c.Node.P99Ms, microseconds(c.Bare.ServerUsPerOp), microseconds(c.Node.ServerUsPerOp), errorTotal)
	text := fmt.Sprintf("%s, %d rounds against a bare server and the node\n\n", c.Workload, len(c.Rounds)) + aligned(rows.String())
	if c.Interrupted {
		text += onlyWholeRounds
	}
	return text
}
