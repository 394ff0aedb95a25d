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
	switch x.media.form {
	case formJSON:
		head := []field{boolField("ok", "Ok", doctor.Wrong(lines) == 0), intField("findings", "Findings", int64(doctor.Wrong(lines)))}
		b := appendMembers(append(x.out[:0], "{\n"...), "  ", head)
		x.out = append(appendObjects(append(b, ",\n  \"checks\": "...), "  ", lines, checkFields), "\n}"...)
	case formTextXML, formAppXML:
		x.out = appendElements(append(x.out[:0], xmlProlog...), "Checks", "Check", lines, checkFields)
	default:
		x.out = x.out[:0]
		for i := range lines {
			x.out = append(append(x.out, lines[i].String()...), '\n')
		}
	}
	return sendOut(x, x.out)
}

func checkFields(l *doctor.Line) []field {
	return []field{
		textField("check", "Name", l.Check), boolField("ok", "Ok", l.Fine()), textField("text", "Text", l.Text), textField("remedy", "Remedy", string(l.Remedy)),
	}
}
