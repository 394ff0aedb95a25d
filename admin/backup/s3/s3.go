// Package s3 keeps backups in an object store that speaks the S3 protocol:
//
//	<prefix>/objects/<checksum>-<name>   a file of one or several backups
//	<prefix>/<id>/begun                  while a backup is made
//	<prefix>/<id>/manifest.json          lists it, written last
package s3

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"net/url"
	"os"
	"path"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/annalsdb/annals/admin/backup"
	"github.com/annalsdb/annals/admin/backup/s3/bucket"
	"github.com/annalsdb/annals/internal/clock"
	"github.com/annalsdb/annals/internal/network"
)

const (
	scheme       = "s3://"
	objectsDir   = "objects"
	manifestName = "manifest.json"
	begunName    = "begun"

	// partSize bounds what is kept in memory of a file on its way: a part is sent again from there.
	partSize    = 16 << 20
	maxManifest = 64 << 20

	// endPatience bounds how long an upload that failed may take to be ended.
	endPatience = 5 * time.Second
)

// IsURL reports whether a destination is in an object store.
func IsURL(destination string) bool { return strings.HasPrefix(destination, scheme) }

// Options say which store it is.
type Options struct {
	URL      string // s3://bucket/prefix
	Endpoint string // URL of the store; empty: Amazon's, in AWS_REGION
	Getenv   func(string) string
	Retries  int              // of one request; default for about a minute
	Network  network.Network  // default: TCP
	Now      func() time.Time // default: time.Now
}

// Target is a place in an object store.
type Target struct {
	bucket *bucket.Client
	prefix string
}

// New returns the target that a URL names. The keys come from the environment alone:
// AWS_ACCESS_KEY_ID, AWS_SECRET_ACCESS_KEY, AWS_SESSION_TOKEN, AWS_REGION. Nothing is asked yet.
func New(o Options) (*Target, error) {
	if o.Getenv == nil {
		o.Getenv = os.Getenv
	}
	u, err := url.Parse(o.URL)
	if err != nil || u.Scheme+"://" != scheme || u.Host == "" || u.RawQuery != "" || u.Fragment != "" || u.User != nil {
		return nil, fmt.Errorf("%q is not of the form s3://bucket/prefix", o.URL)
	}
	key, secret := o.Getenv("AWS_ACCESS_KEY_ID"), o.Getenv("AWS_SECRET_ACCESS_KEY")
	if key == "" || secret == "" {
		return nil, errors.New("the keys of the object store are missing: set AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY")
	}
	region := cmp.Or(o.Getenv("AWS_REGION"), "us-east-1")
	endpoint := &url.URL{Scheme: "https", Host: "s3." + region + ".amazonaws.com"}
	if o.Endpoint != "" {
		if endpoint, err = url.Parse(o.Endpoint); err != nil || endpoint.Scheme != "http" && endpoint.Scheme != "https" || endpoint.Host == "" || strings.Trim(endpoint.Path, "/") != "" {
			return nil, fmt.Errorf("the endpoint of the object store %q is not of the form https://host:port", o.Endpoint)
		}
	}
	b := bucket.Options{
		Endpoint: endpoint, Region: region, Name: u.Host, Retries: o.Retries, Now: o.Now,
		Key: key, Secret: secret, Token: o.Getenv("AWS_SESSION_TOKEN"),
	}
	if o.Network != nil {
		b.Dial = network.DialContext(o.Network)
	}
	return &Target{bucket: bucket.New(b), prefix: strings.Trim(u.Path, "/")}, nil
}

// Close ends the connections that no call uses.
func (t *Target) Close() { t.bucket.Close() }

func (t *Target) key(parts ...string) string {
	return path.Join(append([]string{t.prefix}, parts...)...)
}

func (t *Target) object(f *backup.File) string { return t.key(objectsDir, f.Checksum+"-"+f.Name) }

// objects are the keys of all files of some backups.
func (t *Target) objects(of []backup.Manifest) map[string]bool {
	keys := map[string]bool{}
	for i := range of {
		for j := range of[i].Files {
			keys[t.object(&of[i].Files[j])] = true
		}
	}
	return keys
}

func (t *Target) wrap(what string, err error) error {
	return fmt.Errorf("%s in the object store: %w", what, err)
}

// list calls f for what stands below a prefix of keys, by the rest of its key; folders, if it is
// not recursive, end with a slash.
func (t *Target) list(ctx context.Context, below string, recursive bool, f func(bucket.Object)) error {
	if below != "" {
		below += "/"
	}
	err := t.bucket.List(ctx, below, recursive, func(o bucket.Object) {
		o.Key = strings.TrimPrefix(o.Key, below)
		f(o)
	})
	if err != nil {
		return t.wrap("list", err)
	}
	return nil
}

// ids lists all backups, listed or not.
func (t *Target) ids(ctx context.Context) (ids []string, err error) {
	err = t.list(ctx, t.key(), false, func(o bucket.Object) {
		if id := strings.TrimSuffix(o.Key, "/"); id != o.Key && backup.ValidID(id) {
			ids = append(ids, id)
		}
	})
	slices.Sort(ids)
	return ids, err
}

// List returns the listed backups, the oldest first.
func (t *Target) List(ctx context.Context) ([]backup.Manifest, error) {
	ids, err := t.ids(ctx)
	if err != nil {
		return nil, err
	}
	return backup.ReadManifests(ctx, ids, func(id string) ([]byte, error) {
		text, err := t.bucket.Read(ctx, t.key(id, manifestName), maxManifest)
		switch {
		case bucket.Missing(err):
			return nil, fs.ErrNotExist
		case err != nil:
			return nil, t.wrap("read the manifest of "+id, err)
		}
		return text, nil
	})
}

// Open reads a file of a listed backup.
func (t *Target) Open(ctx context.Context, _ *backup.Manifest, f *backup.File) (io.ReadCloser, error) {
	return t.open(ctx, f)
}

func (t *Target) open(ctx context.Context, f *backup.File) (io.ReadCloser, error) {
	if f.Size == 0 {
		return io.NopCloser(bytes.NewReader(nil)), nil
	}
	return &resumed{ctx: ctx, t: t, f: f}, nil
}

// resumed reads an object, and resumes where a connection broke.
type resumed struct {
	ctx   context.Context
	t     *Target
	f     *backup.File
	o     io.ReadCloser
	at    int64
	tries int
}

func (r *resumed) Read(b []byte) (int, error) {
	for {
		if r.at == r.f.Size {
			return 0, io.EOF
		}
		if err := r.connect(); err != nil { // Open has already retried.
			return 0, r.t.wrap("read "+r.f.Name, err)
		}
		n, err := r.o.Read(b)
		if n > 0 {
			r.at += int64(n)
			r.tries = 0
			return n, nil
		}
		if r.ctx.Err() != nil {
			return 0, r.ctx.Err()
		}
		if err == nil {
			continue
		}
		if r.tries++; r.tries > maxBroken {
			return 0, r.t.wrap("read "+r.f.Name, err)
		}
		if e := r.Close(); e != nil {
			return 0, e
		}
		// The next turn sees that ctx has ended.
		_ = clock.Sleep(r.ctx, time.Duration(r.tries)*brokenPause)
	}
}

// A connection that breaks, or a body that ends early, is tried so often without a byte between.
const (
	maxBroken   = 10
	brokenPause = 200 * time.Millisecond
)

func (r *resumed) connect() error {
	if r.o != nil {
		return nil
	}
	body, err := r.t.bucket.Open(r.ctx, r.t.object(r.f), r.at, r.f.Size)
	if err != nil {
		return err
	}
	r.o = body
	return nil
}

func (r *resumed) Close() error {
	if r.o == nil {
		return nil
	}
	o := r.o
	r.o = nil
	return o.Close()
}

// Begin begins a backup.
func (t *Target) Begin(ctx context.Context, id string) (backup.Writing, error) {
	w := &writing{Target: t, id: id}
	if err := t.bucket.Put(ctx, t.key(id, begunName), nil); err != nil {
		return nil, t.wrap("begin a backup", err)
	}
	return w, nil
}

func (t *Target) remove(ctx context.Context, key string) error {
	err := t.bucket.Remove(ctx, key)
	if err != nil && !bucket.Missing(err) {
		return t.wrap("remove "+key, err)
	}
	return nil
}

// writing is a backup that is being made.
type writing struct {
	*Target
	id   string
	mu   sync.Mutex
	made []string // keys of objects that were written
}

// there reports whether the object of a file is there, whole.
func (w *writing) there(ctx context.Context, f *backup.File) (bool, error) {
	size, err := w.bucket.Size(ctx, w.object(f))
	if bucket.Missing(err) {
		return false, nil
	}
	if err != nil {
		return false, w.wrap("look for "+f.Name, err)
	}
	return size == f.Size, nil
}

// Reuse takes over a file that an earlier backup has: the object is the same.
func (w *writing) Reuse(ctx context.Context, _ *backup.Manifest, f *backup.File) (bool, error) {
	return w.there(ctx, f)
}

// Put sends a file. An object gets its name when all of it is there.
func (w *writing) Put(ctx context.Context, f *backup.File, r io.Reader) error {
	put := w.putParts
	if f.Size <= partSize {
		put = w.putWhole
	}
	key := w.object(f)
	if err := put(ctx, key, f, r); err != nil {
		return err
	}
	w.mu.Lock()
	w.made = append(w.made, key)
	w.mu.Unlock()
	return nil
}

func (w *writing) putWhole(ctx context.Context, key string, f *backup.File, r io.Reader) error {
	data, err := io.ReadAll(r)
	if err != nil {
		return err
	}
	if err := w.bucket.Put(ctx, key, data); err != nil {
		return w.wrap("write "+f.Name, err)
	}
	return nil
}

func (w *writing) putParts(ctx context.Context, key string, f *backup.File, r io.Reader) (err error) {
	upload, err := w.bucket.Begin(ctx, key)
	if err != nil {
		return w.wrap("write "+f.Name, err)
	}
	defer func() {
		if err != nil {
			ending, cancel := context.WithTimeout(context.WithoutCancel(ctx), endPatience)
			defer cancel()
			_ = upload.Abort(ending) // Remove ends what is left.
		}
	}()
	// A store takes so many parts at most.
	buffer := make([]byte, max(partSize, (f.Size+bucket.MaxParts-1)/bucket.MaxParts))
	for left := f.Size; left > 0; {
		part := buffer[:min(int64(len(buffer)), left)]
		if _, err := io.ReadFull(r, part); err != nil {
			if errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF) {
				err = errors.New("the file has fewer bytes than it should")
			}
			return err
		}
		if left -= int64(len(part)); left == 0 {
			if err := ended(r); err != nil {
				return err
			}
		}
		if err := upload.Part(ctx, part); err != nil {
			return w.wrap("write "+f.Name, err)
		}
	}
	if err := upload.Complete(ctx); err != nil {
		return w.wrap("write "+f.Name, err)
	}
	return nil
}

// ended asks a reader for its last word, which is whether it was the file.
func ended(r io.Reader) error {
	var more [1]byte
	switch _, err := io.ReadFull(r, more[:]); err {
	case io.EOF:
		return nil
	case nil:
		return errors.New("the file has more bytes than it should")
	default:
		return err
	}
}

// Open reads back a written file.
func (w *writing) Open(ctx context.Context, f *backup.File) (io.ReadCloser, error) {
	return w.open(ctx, f)
}

// Finish lists the backup, if all of its objects are there.
func (w *writing) Finish(ctx context.Context, m *backup.Manifest) error {
	sizes := map[string]int64{}
	err := w.list(ctx, w.key(objectsDir), true, func(o bucket.Object) {
		sizes[w.key(objectsDir)+"/"+o.Key] = o.Size
	})
	if err != nil {
		return err
	}
	for i := range m.Files {
		f := &m.Files[i]
		if size, ok := sizes[w.object(f)]; !ok || size != f.Size {
			return fmt.Errorf("%s is not in the object store any more: were backups removed meanwhile?", f.Name)
		}
	}
	text, err := json.MarshalIndent(m, "", "  ")
	if err != nil {
		return err
	}
	if err := w.bucket.Put(ctx, w.key(w.id, manifestName), append(text, '\n')); err != nil {
		return w.wrap("list the backup", err)
	}
	return w.remove(ctx, w.key(w.id, begunName))
}

// Abort removes the written objects. It leaves objects that a listed backup has, and leaves all
// while another backup is made, which may rely on them: those wait for Remove.
func (w *writing) Abort(ctx context.Context) error {
	// The manifest first: it may have arrived without an answer.
	if err := w.remove(ctx, w.key(w.id, manifestName)); err != nil {
		return err
	}
	ids, err := w.ids(ctx)
	if err != nil {
		return err
	}
	listed, err := w.List(ctx)
	if err != nil {
		return err
	}
	needed := w.objects(listed)
	alone := !slices.ContainsFunc(ids, func(id string) bool {
		return id != w.id && !slices.ContainsFunc(listed, func(m backup.Manifest) bool { return m.ID == id })
	})
	for _, key := range w.made {
		if alone && !needed[key] {
			err = errors.Join(err, w.remove(ctx, key))
		}
	}
	return errors.Join(err, w.remove(ctx, w.key(w.id, begunName)))
}

// ErrBusy says that a backup is being made, which may rely on files of older ones.
var ErrBusy = errors.New("a backup is being made there: remove older ones when it has ended")

// Remove removes backups and leftovers, and all objects that no backup needs.
func (t *Target) Remove(ctx context.Context, remove, keep []backup.Manifest, leftoversBefore time.Time, dryRun bool) (freed int64, err error) {
	needed := t.objects(keep)
	listed := map[string]bool{}
	for _, m := range slices.Concat(keep, remove) {
		listed[m.ID] = true
	}
	leftovers := func() (left []string, err error) {
		ids, err := t.ids(ctx)
		for _, id := range ids {
			if listed[id] {
				continue
			}
			if at, ok := backup.Begun(id); ok && !at.Before(leftoversBefore) {
				return nil, fmt.Errorf("%w (%s)", ErrBusy, id)
			}
			left = append(left, id)
		}
		return left, err
	}
	left, err := leftovers()
	if err != nil {
		return 0, err
	}
	if !dryRun {
		for i := range remove {
			left = append(left, remove[i].ID)
		}
		for _, id := range left {
			if err := errors.Join(t.remove(ctx, t.key(id, manifestName)), t.remove(ctx, t.key(id, begunName))); err != nil {
				return 0, err
			}
		}
	}
	var unneeded []string
	err = t.list(ctx, t.key(objectsDir), true, func(o bucket.Object) {
		if key := t.key(objectsDir) + "/" + o.Key; !needed[key] {
			freed += o.Size
			unneeded = append(unneeded, key)
		}
	})
	if err != nil || dryRun {
		return freed, err
	}
	// Again: one that was begun meanwhile may have some of them. One that begins from here on
	// finds none of the removed backups.
	if _, err := leftovers(); err != nil {
		return 0, err
	}
	for _, key := range unneeded {
		if err := t.remove(ctx, key); err != nil {
			return 0, err
		}
	}
	return freed, t.removeParts(ctx)
}

// removeParts removes what killed backups have sent of objects that never got their names: no list
// of objects shows it, and it takes its space all the same. No backup may be being made.
func (t *Target) removeParts(ctx context.Context) error {
	type upload struct{ key, id string }
	var left []upload
	err := t.bucket.Uploads(ctx, t.key(objectsDir)+"/", func(key, id string) { left = append(left, upload{key, id}) })
	if err != nil {
		return t.wrap("list uploads that were broken off", err)
	}
	for _, u := range left {
		if err := t.bucket.Abort(ctx, u.key, u.id); err != nil && !bucket.Missing(err) {
			return t.wrap("remove an upload that was broken off", err)
		}
	}
	return nil
}
