package run

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/hashicorp/go-hclog"

	"github.com/annalsdb/annals/event"
	"github.com/annalsdb/annals/internal/clock"
	"github.com/annalsdb/annals/internal/logkey"
	"github.com/annalsdb/annals/projection/handler"
	"github.com/annalsdb/annals/projection/output"
	"github.com/annalsdb/annals/projection/source"
)

// maxTries is how often something is tried again that the store refused.
const maxTries = 12

// pause is how long is waited after so many failures.
func pause(failures int) time.Duration { return min(10*time.Second, 100*time.Millisecond<<failures) }

// retry repeats an operation that fails because of a temporary problem of the store, with growing
// pauses. In the end it returns the error.
func retry(ctx context.Context, logger hclog.Logger, do func() error) error {
	for try := 0; ; try++ {
		err := do()
		if err == nil || final(err) || ctx.Err() != nil {
			return err
		}
		if try == maxTries {
			return fmt.Errorf("gave up after %d attempts: %w", try+1, err)
		}
		logger.Debug("the store refused a request of a projection", logkey.Attempt, try+1, logkey.Error, err)
		if clock.Sleep(ctx, pause(try)) != nil {
			return err
		}
	}
}

// final says that trying again is of no use.
func final(err error) bool {
	var fault *handler.Fault
	return errors.As(err, &fault) || errors.Is(err, source.ErrEnd) || errors.Is(err, output.ErrRestart) ||
		errors.Is(err, event.ErrNotAuthorized) || output.IsLost(err)
}
