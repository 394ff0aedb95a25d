package grpcapi

import (
	"context"
	"errors"
	"fmt"
	"net"

	"google.golang.org/grpc"
)

// sendAll sends a message for each element of a list.
func sendAll[E, M any](stream grpc.ServerStreamingServer[M], list []E, message func(*E) *M) error {
	for i := range list {
		if err := stream.Send(message(&list[i])); err != nil {
			return unsent(err)
		}
	}
	return nil
}

// unsent is the error of a message that was not sent. That the client is gone is not worth a line
// in the log.
func unsent(err error) error {
	if errors.Is(err, net.ErrClosed) || errors.Is(err, context.Canceled) {
		return fmt.Errorf("send: %w", context.Canceled)
	}
	return fmt.Errorf("send: %w", err)
}
