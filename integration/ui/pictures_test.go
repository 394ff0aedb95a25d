package ui_test

import (
	"bytes"
	"cmp"
	"fmt"
	"image"
	"image/color"
	"image/png"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/chromedp/chromedp"
	"github.com/chromedp/chromedp/kb"
	"github.com/google/uuid"

	"github.com/annalsdb/annals/internal/testkit"
)

// TestPictures makes the pictures of the documentation in the folder that ANNALS_DOCS_PICTURES
// names: make pictures.
func TestPictures(t *testing.T) {
	dir := os.Getenv("ANNALS_DOCS_PICTURES")
	if dir == "" {
		t.Skip("ANNALS_DOCS_PICTURES names no folder")
	}
	n := startNode(t)
	// A user with a password of her own: no page of hers warns of the default one.
	jane := `{"loginName":"jane","fullName":"Jane Doe","groups":["$admins"],"password":"changeit"}`
	ask(t, n, "POST", "/users/", jane)
	ids := []string{uuid.NewString()}
	for i := range 40 {
		appendTo(t, n, fmt.Sprintf("orders-%d", i%7+1), []string{"OrderPlaced", "ItemAdded", "OrderPaid"}[i%3], fmt.Sprintf(`{"customer":"c-%d","total":%d,"items":[{"sku":"a","count":%d},{"sku":"b","count":1}]}`, i%5, 12+i, i+1))
	}
	for i, kind := range []string{"OrderPlaced", "PaymentAsked", "StockReserved", "PaymentMade", "ParcelPacked", "ParcelSent"} {
		cause := ""
		if i > 0 {
			cause = fmt.Sprintf(`,"$causationId":%q`, ids[[]int{0, 0, 0, 1, 2, 4}[i]])
		}
		id := uuid.NewString()
		ids = append(ids[:i], id)
		stream := []string{"orders-9", "payments-9", "stock-9", "payments-9", "parcels-9", "parcels-9"}[i]
		ask(t, n, "POST", "/streams/"+stream, fmt.Sprintf(`[{"eventId":%q,"eventType":%q,"data":{"order":9,"total":9223372036854775807,"items":["book","lamp"],"to":{"name":"Jane","town":"Ghent"}},"metadata":{"$correlationId":"order-9"%s}}]`, id, kind, cause), "Content-Type", "application/vnd.eventstore.events+json")
	}
	const mail = "/subscriptions/orders-2/mail"
	ask(t, n, "PUT", mail, `{"startFrom":0}`)
	park(t, n, mail, "5")
	appendMany(t, n, "expired-1", 0, 400)
	ask(t, n, "POST", "/streams/expired-1/metadata", `{"$maxCount":10}`, "ES-EventType", "$metadata", "ES-EventId", uuid.NewString())
	b := newBrowser(t)
	for _, theme := range []string{"Light", "Dark"} {
		p := b.open(t, n.URL(), "jane", "#/")
		p.width(1280)
		p.theme(theme)
		shoot := func(p *tab, name string) {
			t.Helper()
			save(t, p, dir, name, theme)
		}
		p.goTo("#/streams/orders-1?live=1")
		p.h1("orders-1")
		p.sees("Live 0 events")
		for i := range 16 {
			appendTo(t, n, "orders-1", []string{"OrderPlaced", "ItemAdded", "OrderPaid"}[i%3], fmt.Sprintf(`{"customer":"c-%d","total":%d}`, i, 20+i))
		}
		p.sees("Live 16 events")
		shoot(p, "live")
		p.goTo("#/streams")
		p.h1("Streams")
		p.find("table", "Streams")
		shoot(p, "streams")
		p.goTo("#/streams/orders-9/0")
		p.h1("0@orders-9")
		p.find("tree", "Data")
		shoot(p, "event")
		p.click("link", "Correlation")
		p.h1("Correlation")
		p.sees("6 events")
		shoot(p, "correlation")
		p.goTo("#/subscriptions/orders-2/mail/parked")
		p.h1("Parked messages")
		p.click("button", "Note for 1")
		p.fill("textbox", "Note", "the address was wrong, mended")
		p.click("button", "Save")
		p.none("dialog", "Note")
		p.click("button", "Look at 1")
		p.find("tree", "Data")
		shoot(p, "desk")
		p.goTo("#/projections/new")
		p.h1("New projection")
		p.fill("textbox", "Name", "totals")
		p.walk("textbox", "Source")
		p.click("button", "Preview")
		p.sees("Done:")
		p.eval("document.querySelector('[aria-label=Preview]').scrollIntoView({block: 'end'})")
		shoot(p, "preview")
		p.goTo("#/scavenge")
		p.h1("Scavenge")
		p.click("button", "Dry run")
		p.find("region", "Estimate")
		shoot(p, "dry-run")
		p.keys(kb.Escape)
	}
	bases := startCluster(t)
	leader := testkit.NewClient(bases[0], nil)
	defer leader.CloseIdle()
	ask(t, leader, "POST", "/users/", jane)
	keepBusy(t, leader)
	for _, theme := range []string{"Light", "Dark"} {
		p := b.open(t, bases[1], "jane", "#/cluster")
		p.width(1280)
		p.theme(theme)
		p.find("image", "Cluster map")
		p.h1("Cluster")
		save(t, p, dir, "cluster", theme)
		p = b.open(t, bases[0], "jane", "#/")
		p.width(1280)
		p.theme(theme)
		p.h1("Overview")
		p.find("region", "What needs you")
		p.await("the groups and the hour", func() error {
			if value[bool](p, "document.querySelector('.tile b').innerText === '–' || !document.body.innerText.includes('behind') || document.querySelector('main [aria-busy=true]') !== null") {
				return fmt.Errorf("they are not there yet")
			}
			return nil
		})
		save(t, p, dir, "overview", theme)
		p.goTo("#/stats")
		p.h1("Statistics")
		p.find("image", "Appends per second")
		save(t, p, dir, "statistics", theme)
	}
}

// keepBusy has a cluster work for three minutes, of which the charts tell.
func keepBusy(t *testing.T, n *testkit.Client) {
	t.Helper()
	for i, group := range []string{"billing", "mail", "shipping"} {
		ask(t, n, "PUT", fmt.Sprintf("/subscriptions/orders-%d/%s", i, group), `{"startFrom":0}`, "Annals-Node", "leader")
	}
	for i, begun := 0, time.Now(); time.Since(begun) < 3*time.Minute; i++ {
		var events []string
		for j := range 1 + (i/40)%12 {
			events = append(events, fmt.Sprintf(`{"eventId":%q,"eventType":"ItemAdded","data":{"total":%d}}`, uuid.NewString(), j))
		}
		ask(t, n, "POST", fmt.Sprintf("/streams/orders-%d", i%9), "["+strings.Join(events, ",")+"]", "Content-Type", "application/vnd.eventstore.events+json", "Annals-Node", "leader")
	}
}

// save writes what a tab shows.
func save(t *testing.T, p *tab, dir, name, theme string) {
	t.Helper()
	b := small(t, run(p, chromedp.CaptureScreenshot()))
	if len(b) > 60<<10 {
		t.Errorf("the picture %s has %d bytes, at most 60 KiB are wanted", name, len(b))
	}
	if err := os.WriteFile(filepath.Join(dir, name+"-"+strings.ToLower(theme)+".png"), b, 0o644); err != nil {
		t.Fatal(err)
	}
}

// small makes a picture smaller: 256 of its colours stay, the others become the nearest of them. A
// frequent colour stays, and one that is far from grey: it is that of a state.
func small(t *testing.T, b []byte) []byte {
	t.Helper()
	from, err := png.Decode(bytes.NewReader(b))
	if err != nil {
		t.Fatal(err)
	}
	of := func(x, y int) color.RGBA {
		return color.RGBAModel.Convert(from.At(x, y)).(color.RGBA)
	}
	bounds, times := from.Bounds(), map[color.RGBA]int{}
	for y := bounds.Min.Y; y < bounds.Max.Y; y++ {
		for x := bounds.Min.X; x < bounds.Max.X; x++ {
			times[of(x, y)]++
		}
	}
	colours := slices.SortedFunc(maps.Keys(times), func(a, b color.RGBA) int {
		return cmp.Or(times[b]*vivid(b)-times[a]*vivid(a), cmp.Compare(a.R, b.R), cmp.Compare(a.G, b.G), cmp.Compare(a.B, b.B))
	})
	var palette color.Palette
	for _, c := range colours[:min(len(colours), 256)] {
		palette = append(palette, c)
	}
	index := map[color.RGBA]uint8{}
	for c := range times {
		index[c] = uint8(palette.Index(c))
	}
	to := image.NewPaletted(bounds, palette)
	for y := bounds.Min.Y; y < bounds.Max.Y; y++ {
		for x := bounds.Min.X; x < bounds.Max.X; x++ {
			to.SetColorIndex(x, y, index[of(x, y)])
		}
	}
	var out bytes.Buffer
	if err := (&png.Encoder{CompressionLevel: png.BestCompression}).Encode(&out, to); err != nil {
		t.Fatal(err)
	}
	return out.Bytes()
}

// vivid is how far a colour is from grey, at least 1.
func vivid(c color.RGBA) int {
	return 1 + int(max(c.R, c.G, c.B)-min(c.R, c.G, c.B))
}
