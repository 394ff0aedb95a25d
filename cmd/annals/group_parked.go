package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"
)

const parkedForwardHelp = `Append copies of parked messages to the stream TO, and take the messages out of the parked
ones: those with the NUMBERS, or all. No message is copied twice, so the command can be
repeated when it fails. You need the right to append to the stream, too.`

const parkedReplayHelp = `Hand parked messages out again: those with the NUMBERS, or all. With --rate so many a second
are; if such a replay is not done yet, the command changes its rate.`

func parkedCommand(f *groupFlags, stdout io.Writer) *cobra.Command {
	root := group("parked", "Look at parked messages, and hand them on", "Look at the messages that a group gave up, and hand them on.")
	root.AddCommand(parkedListCommand(f, stdout), parkedForwardCommand(f, stdout), parkedReplayCommand(f, stdout), parkedDropCommand(f, stdout))
	return root
}

func parkedListCommand(f *groupFlags, stdout io.Writer) *cobra.Command {
	var from int64
	count := 50
	cmd := f.named("list", "List parked messages", "", 0, func(ctx context.Context, g *groupClient, _ []string) error {
		p, err := g.Parked(ctx, from, count)
		switch {
		case err != nil:
			return err
		case f.json:
			return printJSON(stdout, p)
		}
		var t table
		t.row("NUMBER\tPARKED\tRETRIES\tEVENT\tTYPE\tREASON")
		for i := range p.Messages {
			m := &p.Messages[i]
			retries := "-"
			if m.RetryCount != nil {
				retries = strconv.FormatInt(*m.RetryCount, 10)
			}
			t.row("%d\t%s\t%s\t%d@%s\t%s\t%s", m.Number, m.Added.UTC().Format(time.DateTime), retries, m.EventNumber, visible(m.Stream),
				cmp.Or(visible(m.Type), "(gone)"), visible(strings.Join(strings.Fields(m.Reason), " ")))
		}
		if err := t.print(stdout); err != nil || p.Next == nil {
			return err
		}
		_, err = fmt.Fprintf(stdout, "%d in all; more with --from %d\n", p.Total, *p.Next)
		return err
	})
	cmd.Flags().Int64Var(&from, "from", 0, "number of the first message")
	cmd.Flags().IntVar(&count, "count", count, "messages to list, 500 at most")
	return cmd
}

// numbersOf reads the numbers of messages.
func numbersOf(args []string) (numbers []int64, err error) {
	for _, arg := range args {
		for one := range strings.SplitSeq(arg, ",") {
			n, err := strconv.ParseInt(one, 10, 64)
			if err != nil || n < 0 {
				return nil, cannot(fmt.Errorf("%q is not the number of a message", one))
			}
			numbers = append(numbers, n)
		}
	}
	return numbers, nil
}

func parkedForwardCommand(f *groupFlags, stdout io.Writer) *cobra.Command {
	cmd := f.named("forward TO [NUMBER...]", "Move parked messages to a stream", parkedForwardHelp, -1, func(ctx context.Context, g *groupClient, args []string) error {
		if len(args) == 0 {
			return cannot(errors.New("the stream that the messages go to is missing"))
		}
		numbers, err := numbersOf(args[1:])
		if err != nil {
			return err
		}
		done, err := g.ForwardParked(ctx, args[0], numbers...)
		switch {
		case err != nil:
			return err
		case f.json:
			return printJSON(stdout, done)
		}
		_, err = fmt.Fprintf(stdout, "messages forwarded to %s: %d", visible(args[0]), done.Count)
		if err == nil && done.Gone > 0 {
			_, err = fmt.Fprintf(stdout, "; parked still, because their events are gone: %d", done.Gone)
		}
		if err == nil {
			_, err = fmt.Fprintln(stdout)
		}
		return err
	})
	return cmd
}

func parkedReplayCommand(f *groupFlags, stdout io.Writer) *cobra.Command {
	var rate int
	cmd := f.named("replay [NUMBER...]", "Hand parked messages out again", parkedReplayHelp, -1, func(ctx context.Context, g *groupClient, args []string) error {
		numbers, err := numbersOf(args)
		switch {
		case err != nil:
			return err
		case len(numbers) > 0 && rate > 0:
			return cannot(errors.New("--rate is for all parked messages, without numbers"))
		case len(numbers) > 0:
			err = g.ReplayParkedMessages(ctx, numbers...)
		default:
			err = g.ReplayParkedAtRate(ctx, rate)
		}
		if err != nil {
			return err
		}
		return g.done(stdout, "replays parked messages")
	})
	cmd.Flags().IntVar(&rate, "rate", 0, "messages a second, 10000 at most; 0 for as fast as the group can")
	return cmd
}

func parkedDropCommand(f *groupFlags, stdout io.Writer) *cobra.Command {
	confirm := atTerminal(os.Stderr)
	cmd := f.named("drop NUMBER...", "Take parked messages out for good", "Take messages out of the parked ones for good. Their events stay in their streams.", -1, func(ctx context.Context, g *groupClient, args []string) error {
		numbers, err := numbersOf(args)
		switch {
		case err != nil:
			return err
		case len(numbers) == 0:
			return cannot(errors.New("the numbers of the messages are missing"))
		}
		if err := confirm.given(fmt.Sprintf("This drops %d parked messages of the group %s", len(numbers), g)); err != nil {
			return err
		}
		if err := g.DropParked(ctx, numbers...); err != nil {
			return err
		}
		return g.done(stdout, "dropped parked messages")
	})
	confirm.add(cmd.Flags())
	return cmd
}
