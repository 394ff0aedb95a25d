package httpapi

import (
	"github.com/annalsdb/annals/admin/doctor"
)

// examine answers with what is wrong with this node and what to do about it. That
// something is wrong is no failure of the request.
func examine(x *exchange) error {
	ctx := x.reads()
	defer ctx.release()
	lines := x.s.opts.Doctor(ctx)
	if x.media.form == formText {
		x.out = x.out[:0]
		for _, l := range lines {
			x.out = append(append(x.out, l.String()...), '\n')
		}
		return sendOut(x, x.out)
	}
	o := newOutline(x)
	name := "check"
	o.root("checks", func() {
		if o.isXML {
			name = "name"
		} else {
			o.leaves(boolField("ok", doctor.Wrong(lines) == 0), intField("findings", int64(doctor.Wrong(lines))))
		}
		o.flatList("checks", "check", len(lines), func(i int) {
			l := &lines[i]
			o.leaves(textField(name, l.Check()), boolField("ok", l.Fine()), textField("text", l.Text()), textField("remedy", l.Remedy()))
		})
	})
	return sendOut(x, o.b)
}
