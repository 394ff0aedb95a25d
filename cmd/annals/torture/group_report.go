package torture

import "encoding/json"

// writeMessages writes one line for each delivery, each answer and each act of the operator.
func (r *round) writeMessages(e *json.Encoder) error {
	if r.subs == nil {
		return nil
	}
	type line struct {
		What     string `json:"what"`
		Group    string `json:"group,omitempty"`
		Consumer int    `json:"consumer"`
		Node     int    `json:"node"`
		Call     int64  `json:"call"`
		Return   int64  `json:"return"`
		ID       string `json:"id,omitempty"`
		Title    string `json:"title,omitempty"`
		Retries  int    `json:"retries,omitempty"`
		Outcome  string `json:"outcome"`
	}
	name := func(i int) string {
		if i < 0 {
			return ""
		}
		return r.subs.groups[i].String()
	}
	for _, c := range r.subs.consumers {
		for _, d := range c.deliveries {
			if err := e.Encode(line{"delivery", name(d.group), d.consumer, d.node, d.call, d.ret, d.id.String(), d.title, d.retries, done.String()}); err != nil {
				return err
			}
		}
		for _, a := range c.replies {
			if err := e.Encode(line{a.action.String(), name(a.group), a.consumer, a.node, a.call, a.ret, a.id.String(), "", 0, a.outcome.String()}); err != nil {
				return err
			}
		}
	}
	for _, a := range r.subs.acts {
		if err := e.Encode(line{What: a.what, Group: name(a.group), Consumer: -1, Node: -1, Call: a.call, Return: a.ret, Outcome: a.outcome.String()}); err != nil {
			return err
		}
	}
	return nil
}
