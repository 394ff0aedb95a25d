package bench

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"strconv"
	"strings"
)

// mixing is the workload mixed: with every operation a worker draws which of the others it does.
type mixing struct {
	o       *options
	works   []workload
	names   []string
	weights []int // cumulated
}

// maxWeight bounds the weight of one part of a mix.
const maxWeight = 1_000_000

func newMixing(o *options) (*mixing, error) {
	m := &mixing{o: o}
	total := 0
	seen := map[string]bool{}
	for item := range strings.SplitSeq(o.mix, ",") {
		name, text, _ := strings.Cut(strings.TrimSpace(item), "=")
		weight, err := strconv.Atoi(text)
		if err != nil || weight < 0 || weight > maxWeight {
			return nil, fmt.Errorf("--mix: %q is not of the form workload=weight", item)
		}
		if seen[name] {
			return nil, fmt.Errorf("--mix: %s comes twice", name)
		}
		seen[name] = true
		if weight == 0 {
			continue
		}
		part := len(m.works)
		switch i := slices.Index(readNames[:], name); {
		case o.grpc && name == readNames[notModified]:
			return nil, fmt.Errorf("--mix: gRPC has no call for %s: leave it out", name)
		case i >= 0:
			m.works = append(m.works, &reading{o: o, kind: readKind(i), part: part})
		case name == "append":
			m.works = append(m.works, &appending{o: o, part: part})
		case name == "append-batch":
			m.works = append(m.works, &appending{o: o, batch: o.batch, part: part})
		default:
			return nil, fmt.Errorf("--mix: %q cannot be part of a mix", name)
		}
		m.names = append(m.names, name)
		total += weight
		m.weights = append(m.weights, total)
	}
	if total == 0 {
		return nil, errors.New("--mix has no weight")
	}
	return m, nil
}

func (m *mixing) parts() []string { return m.names }

func (m *mixing) setup(ctx context.Context, s *session) error {
	ensured := false // All reads share one layout, which is looked at once.
	for _, w := range m.works {
		r, reads := w.(*reading)
		if reads {
			r.ensured = ensured
		}
		if err := w.setup(ctx, s); err != nil {
			return err
		}
		ensured = ensured || reads
	}
	return nil
}

func (m *mixing) operation(worker, workers int) operation {
	op := &mixedOp{m: m, rng: newRand(m.o, worker, 255)}
	for _, w := range m.works {
		op.ops = append(op.ops, w.operation(worker, workers))
	}
	return op
}

type mixedOp struct {
	m   *mixing
	rng *rand.Rand
	ops []operation
}

func (op *mixedOp) do(ctx context.Context, c *sender) (outcome, error) {
	draw := op.rng.IntN(op.m.weights[len(op.m.weights)-1])
	for i, upTo := range op.m.weights {
		if draw < upTo {
			return op.ops[i].do(ctx, c)
		}
	}
	panic("a draw beyond all weights")
}
