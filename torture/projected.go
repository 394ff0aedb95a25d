package torture

import (
	"fmt"
	"strings"
)

// check holds what projections wrote against the log: every event once and in the
// order of the log, and the count of the state is their number.
func (p *projector) check(l *ledger) {
	var copies, links []string
	for _, f := range l.facts {
		if f.ref.isForeign() {
			continue
		}
		stream := f.stream.name
		name := fmt.Sprintf("%d@%s", f.number, stream)
		if p.isCopied(stream) {
			copies = append(copies, name)
		}
		if p.isLinked(stream) {
			links = append(links, name)
		}
	}
	p.checkCopies(copies)
	if p.linked {
		p.checkLinks(links)
	}
}

// isLinked says whether links to the events of a stream are checked. Those of events
// that may be removed may be resolved or not, and a link is not linked itself.
func (p *projector) isLinked(stream string) bool {
	return strings.HasPrefix(stream, p.prefix) && stream != p.prefix+linksStream && !p.book.stream(stream).fluid
}

// checkCopies: the stream of copies holds the copy of each event, numbered without a gap.
func (p *projector) checkCopies(want []string) {
	p.count.add(ofProjections, "copies", len(p.copies))
	got := make([]string, 0, len(p.copies))
	for i, c := range p.copies {
		if c.number != int64(i) || c.n != int64(i)+1 || c.kind != copyType {
			p.find.add(kindProjected, "%s: %d@%s is of type %q and has the count %d, of %s; number %d and count %d should be there",
				p.name(), c.number, p.out(), c.kind, c.n, c.of, i, i+1)
			return
		}
		got = append(got, c.of)
	}
	p.compare(p.out(), got, want)
	if p.state != int64(len(want)) {
		p.find.add(kindProjected, "%s: its state has counted %d events, the log has %d", p.name(), p.state, len(want))
	}
}

// checkLinks: the stream of the category holds a link to each event.
func (p *projector) checkLinks(want []string) {
	var got []string
	for i, c := range p.links {
		if c.number != int64(i) {
			p.find.add(kindProjected, "%s: number %d where %d of the category should be", byCategory, c.number, i)
			return
		}
		if !p.isLinked(c.origin) {
			continue // A link of a link, of an event that may be removed, or not of this run.
		}
		if !strings.HasSuffix(c.to, "@"+c.origin) {
			p.find.add(kindProjected, "%s: link %d says that it is of %s, and leads to %s", byCategory, i, c.origin, c.to)
			return
		}
		got = append(got, c.to)
	}
	p.count.add(ofProjections, "links", len(got))
	p.compare(byCategory, got, want)
}

// compare reports the first difference between what a projection wrote and the log.
func (p *projector) compare(who string, got, want []string) {
	for i := range max(len(got), len(want)) {
		switch {
		case i >= len(got):
			p.find.add(kindProjected, "%s: %d events of the log are missing from %s on, %d are there", who, len(want)-i, want[i], len(got))
		case i >= len(want):
			p.find.add(kindProjected, "%s: %d events are too many, from %s on%s", who, len(got)-i, got[i], elsewhere(got, i))
		case got[i] != want[i]:
			p.find.add(kindProjected, "%s: event %d is of %s%s, it should be of %s%s", who, i, got[i], elsewhere(got, i), want[i], elsewhere(got, i, want[i]))
		default:
			continue
		}
		return
	}
}

// elsewhere says at which other places an event is, that of place i or the given one.
func elsewhere(list []string, i int, given ...string) string {
	what := list[i]
	if len(given) > 0 {
		what = given[0]
	}
	for at, one := range list {
		if at != i && one == what {
			return fmt.Sprintf(" (which is also event %d)", at)
		}
	}
	return ""
}
