package httpapi_test

import (
	"context"
	"testing"
	"time"

	"github.com/annalsdb/annals/admin/doctor"
	httpapi "github.com/annalsdb/annals/http"
)

// someLines are those of a node without much, one of which is wrong.
func someLines(context.Context) []doctor.Line {
	return doctor.Examine(&doctor.Facts{Now: time.Unix(1700000000, 0), Ready: true, Leading: true, Damaged: []string{`chunk-"0".<0>`}})
}

func TestDoctor(t *testing.T) {
	n := newOperator(t, func(o *httpapi.Options) { o.Doctor = someLines })
	for _, c := range []struct{ format, accept string }{{"json", appJSON}, {"xml", textXML}, {"txt", "text/plain"}} {
		n.golden("doctor."+c.format, "/admin/doctor", c.accept)
	}
}
