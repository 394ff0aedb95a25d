package simulation

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/annalsdb/annals/torture"
)

const longHelp = `

--simulate runs whole clusters in this process, in virtual time: an hour of a cluster takes
seconds to minutes. With more than two --hours, clients and faults come in spells of
minutes, with up to hours of quiet between them, as in most clusters. Disks and the
network are in memory; power cuts, torn and lost writes, disks that fail and links of every
quality come on top of the faults above. The seed decides on everything, also on the number
of nodes. Only --seed, --rounds, --hours, --nodes, --faults and --fail-fast, which ends no
round early here, belong to it. A seed brings back the plan, not each interleaving: after a
violation the last events of all nodes, of the network and of the disks are printed.`

// AddTo gives the command torture the flag --simulate.
func AddTo(cmd *cobra.Command) {
	var on bool
	var hours float64
	cmd.Long += longHelp
	flags := cmd.Flags()
	flags.BoolVar(&on, "simulate", false, "simulate clusters in virtual time, in this process")
	flags.Float64Var(&hours, "hours", 1, "virtual hours in which faults strike in each round of --simulate")
	other := cmd.RunE
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		if on {
			return simulate(cmd, hours)
		}
		if flags.Changed("hours") {
			return errors.New("--hours belongs to --simulate")
		}
		return other(cmd, args)
	}
}

// simulate runs as many rounds as the flags say.
func simulate(cmd *cobra.Command, hours float64) error {
	var foreign []string
	cmd.Flags().Visit(func(f *pflag.Flag) {
		if !slices.Contains([]string{"simulate", "hours", "seed", "rounds", "nodes", "faults", "fail-fast"}, f.Name) {
			foreign = append(foreign, "--"+f.Name)
		}
	})
	flags := cmd.Flags()
	seed, err := flags.GetUint64("seed")
	rounds, roundsErr := flags.GetInt("rounds")
	nodes, nodesErr := flags.GetInt("nodes")
	faults, faultsErr := flags.GetStringSlice("faults")
	failFast, failFastErr := flags.GetBool("fail-fast")
	if err := errors.Join(err, roundsErr, nodesErr, faultsErr, failFastErr); err != nil {
		return err
	}
	switch {
	case len(foreign) > 0:
		return fmt.Errorf("%s cannot be used with --simulate: the seed decides", strings.Join(foreign, ", "))
	case !(hours > 0 && hours <= 10_000):
		return fmt.Errorf("--hours %g is not between 0 and 10,000", hours)
	case rounds < 1 || nodes < 1 || nodes > 9:
		return errors.New("--rounds must be positive, and --nodes between 1 and 9")
	}
	if !flags.Changed("nodes") {
		nodes = 0
	}
	if seed == 0 {
		seed = uint64(time.Now().UnixNano()) % 1_000_000_000
	}
	var all Totals
	for i := range uint64(rounds) {
		o := Options{Seed: seed + i, Nodes: nodes, Faults: faults, Length: time.Duration(hours * float64(time.Hour)), Progress: cmd.ErrOrStderr()}
		r, err := all.Run(o)
		if err != nil {
			return err
		}
		if _, err := fmt.Fprintln(cmd.OutOrStdout(), r); err != nil {
			return err
		}
		if failFast && len(all.failed) > 0 {
			break
		}
	}
	if _, err := fmt.Fprint(cmd.OutOrStdout(), &all); err != nil {
		return err
	}
	if len(all.failed) > 0 {
		return torture.ErrViolated
	}
	return nil
}
