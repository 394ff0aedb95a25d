// What the tests share: a browser, and tabs that note what must not happen.

package ui_test

import (
	"context"
	_ "embed"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/chromedp/cdproto/accessibility"
	"github.com/chromedp/cdproto/cdp"
	"github.com/chromedp/cdproto/dom"
	"github.com/chromedp/cdproto/emulation"
	"github.com/chromedp/cdproto/input"
	"github.com/chromedp/cdproto/log"
	"github.com/chromedp/cdproto/network"
	"github.com/chromedp/cdproto/page"
	"github.com/chromedp/cdproto/runtime"
	"github.com/chromedp/chromedp"
	"github.com/chromedp/chromedp/kb"

	"github.com/annalsdb/annals/internal/lab"
	"github.com/annalsdb/annals/internal/testkit"
)

// TestMain runs the tests where no other test makes network devices, at which a browser would
// give up its requests.
func TestMain(m *testing.M) {
	code, done, err := lab.Alone()
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	if done {
		os.Exit(code)
	}
	testkit.Main(m, shared.close)
}

// settleLimit bounds the wait for what the page must come to show.
const settleLimit = time.Minute

// browser is the one browser of all tests; each tab has its own storage.
type browser struct {
	ctx  context.Context
	once sync.Once
	err  error
	end  func()
	dir  string // its profile
}

var shared browser

// newBrowser returns the browser, Debian's Chromium, which is started for the first test that needs
// it. Without one the test is skipped, in CI it fails.
func newBrowser(t *testing.T) *browser {
	t.Helper()
	program := ""
	for _, name := range []string{"chromium", "chromium-browser", "google-chrome"} {
		if p, err := exec.LookPath(name); err == nil {
			program = p
			break
		}
	}
	if program == "" {
		testkit.NeedTool(t, "chromium")
	}
	shared.once.Do(func() { shared.err = shared.start(program) })
	if shared.err != nil {
		t.Fatalf("start %s: %v", program, shared.err)
	}
	return &shared
}

func (b *browser) start(program string) (err error) {
	if b.dir, err = os.MkdirTemp("", "annals-browser-"); err != nil {
		return err
	}
	options := append(chromedp.DefaultExecAllocatorOptions[:],
		chromedp.ExecPath(program), chromedp.NoSandbox, chromedp.DisableGPU, chromedp.WindowSize(1280, 800), chromedp.UserDataDir(b.dir),
		chromedp.Flag("disable-quic", true), chromedp.Flag("disable-component-update", true), chromedp.Flag("force-color-profile", "srgb"),
		// Else the window of each tab loads pages of the browser's own that no one sees, and starts
		// a renderer that is not used.
		chromedp.Flag("disable-features", "Translate,BlinkGenPropertyTrees,PreloadTopChromeWebUI,WebUIOmniboxPopup,WebUIOmniboxAimPopup,SpareRendererForSitePerProcess"),
	)
	ctx, cancel := chromedp.NewExecAllocator(context.Background(), options...)
	b.end = cancel
	b.ctx, _ = chromedp.NewContext(ctx) // Ended by close, and with its parent.
	return chromedp.Do(b.ctx)
}

// close ends the browser, if there is one.
func (b *browser) close() error {
	if b.end == nil {
		return nil
	}
	err := chromedp.Cancel(b.ctx)
	b.end()
	return errors.Join(err, os.RemoveAll(b.dir))
}

// tab is a tab and the errors in it.
type tab struct {
	t    *testing.T
	ctx  context.Context
	base string
	acts int // clicks, and texts typed with Enter

	mu       sync.Mutex // guards the fields below
	troubles []string
	loaded   map[string]float64 // bytes by address, of the first time that it was asked for
	refused  map[int64]bool     // statuses that are part of the test
	pending  map[network.RequestID]string
	requests int
	breaks   bool // requests may fail: the node is gone for a while
}

// open opens a tab at an address of the interface, signed in as login unless that is empty.
func (b *browser) open(t *testing.T, base, login, hash string) *tab {
	t.Helper()
	ctx, cancel := chromedp.NewContext(b.ctx, chromedp.WithNewBrowserContext())
	p := &tab{t: t, ctx: ctx, base: base, refused: map[int64]bool{}, pending: map[network.RequestID]string{}, loaded: map[string]float64{}}
	t.Cleanup(func() {
		p.check()
		cancel()
	})
	if err := chromedp.Do(ctx); err != nil {
		t.Fatal(err)
	}
	if err := chromedp.Listen(ctx, p.hear); err != nil {
		t.Fatal(err)
	}
	send(p, network.Enable, network.EnableParams{})
	send(p, log.Enable, cdp.Empty{})
	send(p, accessibility.Enable, cdp.Empty{})
	send(p, emulation.SetTimezoneOverride, emulation.SetTimezoneOverrideParams{TimezoneID: "Europe/Berlin"})
	script := ""
	if login != "" {
		groups := map[string]string{"admin": "$admins", "jane": "$admins", "ops": "$ops"}[login]
		kept, err := json.Marshal(map[string]any{"user": map[string]any{"login": login, "basic": basic(login), "groups": []string{groups}}, "at": time.Now().UnixMilli()})
		if err != nil {
			t.Fatal(err)
		}
		script = fmt.Sprintf("if (!sessionStorage.getItem('annals.login')) sessionStorage.setItem('annals.login', %q)", kept)
	} else {
		script = "sessionStorage.setItem('annals.guest', 'yes')"
	}
	if login != "nobody yet" {
		send(p, page.AddScriptToEvaluateOnNewDocument, page.AddScriptToEvaluateOnNewDocumentParams{Source: script})
	}
	run(p, chromedp.Navigate(base+"/ui/"+hash))
	return p
}

// hear notes what must not happen: errors of scripts, reports of the policy, requests to
// others, and refusals that no test asked for.
func (p *tab) hear(ev any) {
	p.mu.Lock()
	defer p.mu.Unlock()
	switch e := ev.(type) {
	case *runtime.EventExceptionThrown:
		p.troubles = append(p.troubles, "exception: "+describe(e.ExceptionDetails))
	case *runtime.EventConsoleAPICalled:
		if e.Type == "error" || e.Type == "warning" {
			p.troubles = append(p.troubles, fmt.Sprintf("console: %s", e.Args[0].Value))
		}
	case *log.EventEntryAdded:
		if e.Entry.Level == "error" && e.Entry.Source != "network" {
			p.troubles = append(p.troubles, "log: "+e.Entry.Text)
		}
	case *network.EventRequestWillBeSent:
		if !strings.HasPrefix(e.Request.URL, p.base) && !strings.HasPrefix(e.Request.URL, "blob:") && !strings.HasPrefix(e.Request.URL, "about:") {
			p.troubles = append(p.troubles, "foreign request: "+e.Request.URL)
		}
		p.pending[e.RequestID] = e.Request.URL
		p.requests++
	case *network.EventLoadingFailed:
		p.failed(e)
		delete(p.pending, e.RequestID)
	case *network.EventLoadingFinished:
		address := p.pending[e.RequestID]
		if _, again := p.loaded[address]; !again {
			p.loaded[address] = e.EncodedDataLength
		}
		delete(p.pending, e.RequestID)
	case *network.EventResponseReceived:
		if s := e.Response.Status; s >= 400 && !p.refused[s] {
			p.troubles = append(p.troubles, fmt.Sprintf("%d %s", s, e.Response.URL))
		}
	}
}

// failed notes a request that got no answer, unless the page gave it up itself.
func (p *tab) failed(e *network.EventLoadingFailed) {
	if e.Canceled || e.ErrorText == "net::ERR_ABORTED" || p.breaks {
		return
	}
	p.troubles = append(p.troubles, fmt.Sprintf("%s: %s", p.pending[e.RequestID], e.ErrorText))
}

func describe(e *runtime.ExceptionDetails) string {
	if e.Exception != nil && e.Exception.Description != "" {
		return e.Exception.Description
	}
	return e.Text
}

// mayRefuse says which refusals belong to the test.
func (p *tab) mayRefuse(statuses ...int64) *tab {
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, s := range statuses {
		p.refused[s] = true
	}
	return p
}

// mayBreak says that the node will be gone for a while.
func (p *tab) mayBreak() *tab {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.breaks = true
	return p
}

// check fails the test with the errors so far.
func (p *tab) check() {
	p.t.Helper()
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, text := range p.troubles {
		p.t.Error(text)
	}
	p.troubles = nil
}

// run runs actions of the browser, for a bounded time.
func run[T any](p *tab, a chromedp.Action[T]) T {
	p.t.Helper()
	ctx, cancel := context.WithTimeout(p.ctx, settleLimit)
	defer cancel()
	v, err := chromedp.Run(ctx, a)
	if err != nil {
		p.t.Fatal(err)
	}
	return v
}

// send sends one command of the protocol of the browser.
func send[P, R any](p *tab, c cdp.Command[P, R], params P) R {
	p.t.Helper()
	return run(p, func(ctx context.Context, t *chromedp.Target) (R, error) { return cdp.Call(ctx, t, c, params) })
}

// goTo leads to another address of the interface.
func (p *tab) goTo(hash string) {
	p.t.Helper()
	p.eval("location.hash = " + quote(hash))
}

func quote(s string) string {
	b, err := json.Marshal(s)
	if err != nil {
		panic(err)
	}
	return string(b)
}

// eval runs statements in the page.
func (p *tab) eval(script string) {
	p.t.Helper()
	run(p, chromedp.Evaluate[any]("(async () => { "+script+" })().then(() => null)", chromedp.EvalAwaitPromise))
}

// value is that of an expression in the page.
func value[T any](p *tab, script string) T {
	p.t.Helper()
	return run(p, chromedp.Evaluate[T](script, chromedp.EvalAwaitPromise))
}

// await tries until it succeeds.
func (p *tab) await(what string, try func() error) {
	p.t.Helper()
	deadline := time.Now().Add(settleLimit)
	for {
		err := try()
		if err == nil {
			return
		}
		if time.Now().After(deadline) {
			text := value[string](p, "`${location.href} ${document.readyState}\n${document.body.innerText.slice(0, 3000)}`")
			p.mu.Lock()
			text += fmt.Sprintf("\nrequests without an answer: %q", slices.Collect(maps.Values(p.pending)))
			p.mu.Unlock()
			p.picture("failed")
			p.check()
			p.t.Fatalf("%s: %v\nthe page shows:\n%s", what, err, text)
		}
		time.Sleep(30 * time.Millisecond)
	}
}

// all finds the elements with a role and an accessible name.
func (p *tab) all(role, name string) (found []*accessibility.Node) {
	p.t.Helper()
	root := send(p, dom.GetDocument, dom.GetDocumentParams{}).Root
	for _, n := range send(p, accessibility.QueryAXTree, accessibility.QueryAXTreeParams{BackendNodeID: root.BackendNodeID, Role: role, AccessibleName: name}).Nodes {
		if !n.Ignored {
			found = append(found, n)
		}
	}
	return found
}

// find waits for an element with a role and an accessible name.
func (p *tab) find(role, name string) (found *accessibility.Node) {
	p.t.Helper()
	p.await(fmt.Sprintf("find %s %q", role, name), func() error {
		nodes := p.all(role, name)
		if len(nodes) == 0 {
			return fmt.Errorf("there is none")
		}
		found = nodes[0]
		return nil
	})
	return found
}

// none waits until nothing has a role and a name.
func (p *tab) none(role, name string) {
	p.t.Helper()
	p.await(fmt.Sprintf("no %s %q", role, name), func() error {
		if len(p.all(role, name)) > 0 {
			return fmt.Errorf("it is there")
		}
		return nil
	})
}

// call runs a function of JavaScript with a node as this. It is false when the node is gone.
func (p *tab) call(n *accessibility.Node, function string, into any) error {
	p.t.Helper()
	return chromedp.Do(p.ctx, chromedp.Func(func(ctx context.Context, t *chromedp.Target) error {
		o, err := cdp.Call(ctx, t, dom.ResolveNode, dom.ResolveNodeParams{BackendNodeID: n.BackendDOMNodeID})
		if err != nil {
			return err
		}
		result, err := cdp.Call(ctx, t, runtime.CallFunctionOn, runtime.CallFunctionOnParams{FunctionDeclaration: function, ObjectID: o.Object.ObjectID, ReturnByValue: new(true), AwaitPromise: new(true)})
		switch {
		case err != nil:
			return err
		case result.ExceptionDetails != nil:
			return errors.New(describe(result.ExceptionDetails))
		case into != nil:
			return json.Unmarshal(result.Result.Value, into)
		}
		return nil
	}))
}

// click presses the mouse on the element with a role and a name, once it can be pressed.
func (p *tab) click(role, name string) {
	p.t.Helper()
	p.acts++
	p.await(fmt.Sprintf("click %s %q", role, name), func() error {
		nodes := p.all(role, name)
		if len(nodes) == 0 {
			return fmt.Errorf("there is none")
		}
		n := nodes[len(nodes)-1] // A button in a dialog comes after the one that opened it.
		var disabled bool
		if err := p.call(n, hearsClicks, &disabled); err != nil {
			return err
		}
		if disabled {
			return fmt.Errorf("it is disabled")
		}
		if err := p.press(n.BackendDOMNodeID); err != nil {
			return err
		}
		var missed bool
		if err := p.call(n, "function() { return !this.clicked && this.isConnected }", &missed); err == nil && missed {
			return fmt.Errorf("it moved away from the mouse")
		}
		return nil // What is gone was clicked.
	})
}

// hearsClicks brings an element into view, notes when it is clicked, and says whether it is
// disabled.
const hearsClicks = `function() {
	this.scrollIntoView({block: "center"});
	this.clicked = false;
	this.addEventListener("click", () => { this.clicked = true; }, {capture: true, once: true});
	return !!this.disabled;
}`

// press clicks where a node is. One that moves, as while its page is filled, is an error.
func (p *tab) press(node cdp.BackendNodeID) error {
	return chromedp.Do(p.ctx, chromedp.Func(func(ctx context.Context, t *chromedp.Target) error {
		var quads [2][]dom.Quad
		for i := range quads {
			r, err := cdp.Call(ctx, t, dom.GetContentQuads, dom.GetContentQuadsParams{BackendNodeID: node})
			if err != nil {
				return err
			}
			quads[i] = r.Quads
		}
		if len(quads[0]) == 0 {
			return fmt.Errorf("it cannot be seen")
		}
		if !slices.EqualFunc(quads[0], quads[1], slices.Equal) {
			return fmt.Errorf("it moves")
		}
		q := quads[0][0]
		_, err := chromedp.MouseClickXY((q[0]+q[4])/2, (q[1]+q[5])/2)(ctx, t)
		return err
	}))
}

// fill replaces the text of the field with a role and a name.
func (p *tab) fill(role, name, text string) {
	p.t.Helper()
	p.await(fmt.Sprintf("fill %s %q", role, name), func() error {
		return p.call(p.find(role, name), "function() { this.focus(); if (this.select) this.select(); }", nil)
	})
	send(p, input.InsertText, input.InsertTextParams{Text: text})
}

// choose chooses a value of the list with a name, which must have it.
func (p *tab) choose(name, value string) {
	p.t.Helper()
	choice := fmt.Sprintf(`function() { this.value = %[1]s; if (this.value !== %[1]s) throw new Error("it is not in the list"); this.dispatchEvent(new Event("change", {bubbles: true})) }`, quote(value))
	p.await(fmt.Sprintf("choose %q in %q", value, name), func() error {
		return p.call(p.find("combobox", name), choice, nil)
	})
}

// holds waits until a field holds a text.
func (p *tab) holds(role, name, text string) {
	p.t.Helper()
	p.await(fmt.Sprintf("%q in %s %q", text, role, name), func() error {
		var got string
		if err := p.call(p.find(role, name), "function() { return this.value }", &got); err != nil {
			return err
		}
		if !strings.Contains(got, text) {
			return fmt.Errorf("it holds %q", got)
		}
		return nil
	})
}

// enter fills and presses Enter: one act.
func (p *tab) enter(role, name, text string) {
	p.t.Helper()
	p.fill(role, name, text)
	p.keys(kb.Enter)
	p.acts++
}

// keys presses keys one after the other. A press carries its text, as a keyboard's does: a
// page that takes a key for itself keeps the text out of a field.
func (p *tab) keys(keys string) {
	p.t.Helper()
	for _, r := range keys {
		pressed := kb.Encode(r)
		down, up := *pressed[0], *pressed[len(pressed)-1]
		if len(pressed) == 3 {
			down.Text = pressed[1].Text
		}
		send(p, input.DispatchKeyEvent, down)
		send(p, input.DispatchKeyEvent, up)
	}
}

// walk presses Tab until the focus is on the element with a role and a name.
func (p *tab) walk(role, name string) {
	p.t.Helper()
	p.await(fmt.Sprintf("walk to %s %q", role, name), func() error {
		if err := p.call(p.find(role, name), "function() { window.wanted = this }", nil); err != nil {
			return err
		}
		return p.pressTab("window.wanted === document.activeElement || !!document.activeElement?.shadowRoot?.contains(window.wanted)")
	})
}

// walkTo presses Tab until the focus is on what an expression of CSS finds.
func (p *tab) walkTo(selector string) {
	p.t.Helper()
	p.await("walk to "+selector, func() error {
		return p.pressTab("document.activeElement?.matches(" + quote(selector) + ") ?? false")
	})
}

// pressTab presses Tab until something is true, once around a page at most.
func (p *tab) pressTab(until string) error {
	p.t.Helper()
	const most = 150
	for range most {
		if value[bool](p, until) {
			return nil
		}
		p.keys(kb.Tab)
	}
	return fmt.Errorf("%d presses of Tab do not lead there; the focus is on %s", most, value[string](p, "document.activeElement?.outerHTML.slice(0, 200) ?? ''"))
}

// focused waits until the focus is on what an expression of CSS finds.
func (p *tab) focused(selector string) {
	p.t.Helper()
	p.await("focus on "+selector, func() error {
		if !value[bool](p, "document.activeElement?.matches("+quote(selector)+") ?? false") {
			return fmt.Errorf("it is on %s", value[string](p, "document.activeElement?.outerHTML.slice(0, 200) ?? ''"))
		}
		return nil
	})
}

// h1 waits for the heading of a page, once that has loaded what it shows.
func (p *tab) h1(text string) {
	p.t.Helper()
	p.await("heading "+text, func() error {
		got := value[string](p, "document.querySelector('h1')?.innerText ?? ''")
		busy := value[bool](p, "document.querySelector('main [aria-busy=true]') !== null")
		if got != text || busy {
			return fmt.Errorf("it is %q, busy %v", got, busy)
		}
		return nil
	})
}

// sees waits for a text of the page.
func (p *tab) sees(text string) {
	p.t.Helper()
	p.await("text "+text, func() error {
		got := value[string](p, "document.body.innerText")
		if !strings.Contains(strings.Join(strings.Fields(got), " "), text) {
			return fmt.Errorf("it is not there")
		}
		return nil
	})
}

//go:embed testdata/axe.min.js
var axe string

// clean fails the test with what axe-core finds: version 4.14, under the Mozilla Public License
// 2.0.
func (p *tab) clean() {
	p.t.Helper()
	if !value[bool](p, "typeof axe !== 'undefined'") {
		run(p, chromedp.Evaluate[any](axe+"; null"))
	}
	type violation struct {
		ID    string
		Help  string
		Nodes []string
	}
	found := value[[]violation](p, `axe.run(document, {runOnly: ["wcag2a", "wcag2aa", "wcag21a", "wcag21aa", "wcag22aa", "best-practice"], resultTypes: ["violations"]})
		.then((r) => r.violations.map((v) => ({ID: v.id, Help: v.help, Nodes: v.nodes.slice(0, 3).map((n) => n.html.slice(0, 200) + " " + n.failureSummary.slice(0, 300))})))`)
	for _, v := range found {
		p.t.Errorf("axe: %s: %s: %s", v.ID, v.Help, strings.Join(v.Nodes, "; "))
	}
}

// theme chooses light or dark and waits until it is painted.
func (p *tab) theme(name string) {
	p.t.Helper()
	p.eval("localStorage.setItem('annals.theme', " + quote(name) + ")")
	run(p, chromedp.Reload())
	p.await("theme", func() error {
		got := value[string](p, "document.documentElement.dataset.theme ?? ''")
		if !strings.EqualFold(got, name) {
			return fmt.Errorf("it is %q", got)
		}
		return nil
	})
}

// picture saves what the tab shows into the folder that ANNALS_PICTURES names.
func (p *tab) picture(name string) {
	p.t.Helper()
	dir := os.Getenv("ANNALS_PICTURES")
	if dir == "" {
		return
	}
	b := run(p, chromedp.CaptureScreenshot())
	if err := os.WriteFile(filepath.Join(dir, strings.NewReplacer("/", "_", " ", "_").Replace(name)+".png"), b, 0o644); err != nil {
		p.t.Fatal(err)
	}
}

// width makes the tab so many pixels wide.
func (p *tab) width(px int64) {
	p.t.Helper()
	send(p, emulation.SetDeviceMetricsOverride, emulation.SetDeviceMetricsOverrideParams{Width: px, Height: 800, DeviceScaleFactor: 1})
}

// fits makes the tab as narrow as a telephone and fails the test if the page must be moved
// sideways to be read, then wide again.
func (p *tab) fits(name string) {
	p.t.Helper()
	p.width(320)
	if got := value[int](p, "document.documentElement.scrollWidth"); got > 320 {
		p.t.Errorf("%s is %d pixels wide in a window of 320: %s", name, got, value[string](p, `[...document.querySelectorAll("body *")].filter((e) => e.getBoundingClientRect().right > 321 && !e.closest(".scroll, .graph, .tree, pre, .editor")).slice(0, 5).map((e) => e.outerHTML.slice(0, 120)).join("; ")`))
	}
	p.picture("320 " + name)
	p.width(1280)
}

// address is the hash of a page, each part encoded once.
func address(parts ...string) string {
	for i, s := range parts {
		parts[i] = url.PathEscape(s)
	}
	return "#/" + strings.Join(parts, "/")
}
