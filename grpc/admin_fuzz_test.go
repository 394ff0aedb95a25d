package grpcapi_test

import (
	"bytes"
	"encoding/binary"
	"net/http"
	"slices"
	"strings"
	"testing"

	"google.golang.org/grpc/codes"
	"google.golang.org/protobuf/encoding/protojson"
	"google.golang.org/protobuf/proto"

	grpcapi "github.com/annalsdb/annals/grpc"
)

// FuzzAdministration sends any message to the methods of administrators. None must end as an
// error of ours.
func FuzzAdministration(f *testing.F) {
	var methods []string
	for service, names := range map[string][]string{
		"projections.Projections/": {"Create", "Update", "Delete", "Enable", "Disable", "Reset", "Statistics", "State", "Result", "RestartSubsystem"},
		"users.Users/":             {"Create", "Update", "Delete", "Enable", "Disable", "Details", "ChangePassword", "ResetPassword"},
		"operations.Operations/":   operationMethods,
		"monitoring.Monitoring/":   {"Stats"},
	} {
		for _, name := range names {
			methods = append(methods, service+name)
		}
	}
	slices.Sort(methods) // So that an input means the same in each run.
	for i, method := range methods {
		_, m := methodOf(f, method)
		for _, text := range []string{
			`{}`, `{"options":{}}`, `{"options":{"name":"a"}}`, `{"options":{"loginName":"admin","password":"p","newPassword":"p","currentPassword":"p"}}`,
			`{"options":{"continuous":{"name":"a","emitEnabled":true}}}`, `{"options":{"oneTime":{}}}`, `{"options":{"all":{}}}`,
		} {
			in := newMessage(f, m.Input())
			if (protojson.UnmarshalOptions{DiscardUnknown: true}).Unmarshal([]byte(text), in) != nil {
				continue
			}
			raw, err := proto.Marshal(in)
			if err != nil {
				f.Fatal(err)
			}
			f.Add(uint8(i), raw)
		}
	}
	node := &operatedNode{}
	o := node.options()
	o.Cluster, o.Statistics, o.Activity = leader, fakeStatistics{}, &recorder{}
	s := grpcapi.New(o)
	s.Drain() // Or statistics would be sent for ever.
	address := listen(f, s)
	f.Fuzz(func(t *testing.T, which uint8, data []byte) {
		method := methods[int(which)%len(methods)]
		full, m := methodOf(t, method)
		frame := binary.BigEndian.AppendUint32([]byte{0}, uint32(len(data)))
		header := http.Header{"Authorization": {"Basic YWRtaW46Y2hhbmdlaXQ="}} // admin:changeit
		switch code := byHand(t, address, full, bytes.NewReader(append(frame, data...)), header); code {
		case codes.OK, codes.InvalidArgument, codes.NotFound, codes.PermissionDenied:
		case codes.Unavailable:
			if !strings.HasPrefix(method, "monitoring") {
				t.Errorf("%s: %v", method, code)
			}
		default:
			if proto.Unmarshal(data, newMessage(t, m.Input())) == nil {
				t.Errorf("%s: %v", method, code)
			}
		}
	})
}
