package projection

import (
	"context"

	"github.com/annalsdb/annals/event"
)

// ReadEvents reads what the definition selects that is asked for, without
// running a projection. The request is the JSON that the console's debugger sends.
// Errors are *BadInput, event.ErrNotAuthorized and those of reading.
func (s *Service) ReadEvents(ctx context.Context, request []byte, by Identity) (SourcePage, error) {
	return SourcePage{}, event.ErrNotReady
}
