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
	"net/http"
	"net/url"
	"os"
	"path"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/minio/minio-go/v7"
	"github.com/minio/minio-go/v7/pkg/credentials"

	"github.com/annalsdb/annals/admin/backup"
	"github.com/annalsdb/annals/internal/clock"
)

const (
	scheme       = "s3://"
	objectsDir   = "objects"
	manifestName = "manifest.json"
	begunName    = "begun"

	// partSize bounds what is kept in memory of a file on its way: a part is sent again from there.
	partSize    = 16 << 20
	maxManifest = 64 << 20

	// With pauses that grow to retryCap, and are half of that on average, a store that is away for
	// a minute is waited for. More retries would overflow the library's computation of a pause.
	retries  = 34
	retryCap = 4 * time.Second
)

// growPauses lets the pauses of the library, a second at most by default, grow to retryCap. It has
// no option for that.
var growPauses = sync.OnceFunc(func() { minio.DefaultRetryCap = retryCap })

// IsURL reports whether a destination is in an object store.
func IsURL(destination string) bool { return strings.HasPrefix(destination, scheme) }

// Options say which store it is.
type Options struct {
	URL      string // s3://bucket/prefix
	Endpoint string // URL of the store; empty: Amazon's, in AWS_REGION
	Getenv   func(string) string
	Retries  int // of one request; default for about a minute
}

// Target is a place in an object store.
type Target struct {
	client         *minio.Client
	bucket, prefix string
}

// New returns the target that a URL names. The keys come from the environment alone:
// AWS_ACCESS_KEY_ID, AWS_SECRET_ACCESS_KEY, AWS_SESSION_TOKEN, AWS_REGION. Nothing is asked yet.
func New(o Options) (*Target, error) {
	if o.Getenv == nil {
		o.Getenv = os.Getenv
	}
	o.Retries = cmp.Or(o.Retries, retries)
	u, err := url.Parse(o.URL)
	if err != nil || u.Scheme+"://" != scheme || u.Host == "" || u.RawQuery != "" || u.Fragment != "" || u.User != nil {
		return nil, fmt.Errorf("%q is not of the form s3://bucket/prefix", o.URL)
	}
	key, secret := o.Getenv("AWS_ACCESS_KEY_ID"), o.Getenv("AWS_SECRET_ACCESS_KEY")
	if key == "" || secret == "" {
		return nil, errors.New("the keys of the object store are missing: set AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY")
	}
	region := o.Getenv("AWS_REGION")
	if region == "" {
		region = "us-east-1"
	}
	endpoint := &url.URL{Scheme: "https", Host: "s3." + region + ".amazonaws.com"}
	if o.Endpoint != "" {
		if endpoint, err = url.Parse(o.Endpoint); err != nil || endpoint.Scheme != "http" && endpoint.Scheme != "https" || endpoint.Host == "" || strings.Trim(endpoint.Path, "/") != "" {
			return nil, fmt.Errorf("the endpoint of the object store %q is not of the form https://host:port", o.Endpoint)
		}
	}
	growPauses()
	client, err := minio.New(endpoint.Host, &minio.Options{
		Creds:  credentials.NewStaticV4(key, secret, o.Getenv("AWS_SESSION_TOKEN")),
		Secure: endpoint.Scheme == "https", Region: region, BucketLookup: minio.BucketLookupPath, MaxRetries: o.Retries,
	})
	if err != nil {
		return nil, fmt.Errorf("object store: %w", err)
	}
	return &Target{client: client, bucket: u.Host, prefix: strings.Trim(u.Path, "/")}, nil
}

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

// missing reports whether an error says that there is no such object.
func missing(err error) bool {
	r, ok := errors.AsType[minio.ErrorResponse](err) // ToErrorResponse looks into no wrapped error.
	return ok && (r.Code == minio.NoSuchKey || r.Code == minio.NoSuchUpload || r.StatusCode == http.StatusNotFound && r.Code != minio.NoSuchBucket)
}

func (t *Target) wrap(what string, err error) error {
	return fmt.Errorf("%s in the object store: %w", what, err)
}

// list calls f for what stands below a prefix of keys, by the rest of its key; folders, if it is
// not recursive, end with a slash.
func (t *Target) list(ctx context.Context, below string, recursive bool, f func(minio.ObjectInfo) error) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel() // Ends the listing when f did.
	if below != "" {
		below += "/"
	}
	for o := range t.client.ListObjects(ctx, t.bucket, minio.ListObjectsOptions{Prefix: below, Recursive: recursive}) {
		if o.Err != nil {
			return t.wrap("list", o.Err)
		}
		o.Key = strings.TrimPrefix(o.Key, below)
		if err := f(o); err != nil {
			return err
		}
	}
	return ctx.Err()
}

// ids lists all backups, listed or not.
func (t *Target) ids(ctx context.Context) (ids []string, err error) {
	err = t.list(ctx, t.key(), false, func(o minio.ObjectInfo) error {
		if id := strings.TrimSuffix(o.Key, "/"); id != o.Key && backup.ValidID(id) {
			ids = append(ids, id)
		}
		return nil
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
		text, err := t.read(ctx, t.key(id, manifestName))
		switch {
		case missing(err):
			return nil, fs.ErrNotExist
		case err != nil:
			return nil, t.wrap("read the manifest of "+id, err)
		}
		return text, nil
	})
}

func (t *Target) read(ctx context.Context, key string) (text []byte, err error) {
	o, err := t.client.GetObject(ctx, t.bucket, key, minio.GetObjectOptions{})
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, o.Close()) }()
	return io.ReadAll(io.LimitReader(o, maxManifest))
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
		if err := r.connect(); err != nil { // The library has already retried.
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
	var o minio.GetObjectOptions
	if err := o.SetRange(r.at, r.f.Size-1); err != nil {
		return err
	}
	body, _, _, err := minio.Core{Client: r.t.client}.GetObject(r.ctx, r.t.bucket, r.t.object(r.f), o)
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
	if err := t.put(ctx, t.key(id, begunName), nil); err != nil {
		return nil, t.wrap("begin a backup", err)
	}
	return w, nil
}

func (t *Target) put(ctx context.Context, key string, data []byte) error {
	_, err := t.client.PutObject(ctx, t.bucket, key, bytes.NewReader(data), int64(len(data)), minio.PutObjectOptions{ContentType: "application/octet-stream", DisableMultipart: true})
	return err
}

func (t *Target) remove(ctx context.Context, key string) error {
	err := t.client.RemoveObject(ctx, t.bucket, key, minio.RemoveObjectOptions{})
	if err != nil && !missing(err) {
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
	info, err := w.client.StatObject(ctx, w.bucket, w.object(f), minio.StatObjectOptions{})
	if missing(err) {
		return false, nil
	}
	if err != nil {
		return false, w.wrap("look for "+f.Name, err)
	}
	return info.Size == f.Size, nil
}

// Reuse takes over a file that an earlier backup has: the object is the same.
func (w *writing) Reuse(ctx context.Context, _ *backup.Manifest, f *backup.File) (bool, error) {
	return w.there(ctx, f)
}

// Put sends a file. An object gets its name when all of it is there.
func (w *writing) Put(ctx context.Context, f *backup.File, r io.Reader) error {
	key := w.object(f)
	if f.Size <= partSize { // Whole in memory, so that it can be sent again.
		data, err := io.ReadAll(r)
		if err != nil {
			return err
		}
		if err := w.put(ctx, key, data); err != nil {
			return w.wrap("write "+f.Name, err)
		}
	} else {
		// The library takes what it needs and does not read on to the end; r's last word is whether
		// it was the file.
		all := &whole{r: r, left: f.Size}
		_, err := w.client.PutObject(ctx, w.bucket, key, all, f.Size, minio.PutObjectOptions{ContentType: "application/octet-stream", PartSize: partSize, NumThreads: 1})
		if all.err != nil {
			return all.err
		}
		if err != nil {
			return w.wrap("write "+f.Name, err)
		}
	}
	w.mu.Lock()
	w.made = append(w.made, key)
	w.mu.Unlock()
	return nil
}

// whole hands out the last bytes of a reader only when that has ended well.
type whole struct {
	r    io.Reader
	left int64
	err  error // of the reader
}

func (w *whole) Read(b []byte) (int, error) {
	if w.left == 0 {
		return 0, io.EOF
	}
	n, err := w.r.Read(b[:min(int64(len(b)), w.left)])
	w.left -= int64(n)
	if w.left == 0 && err == nil {
		var more [1]byte
		if _, err = io.ReadFull(w.r, more[:]); err == nil {
			err = errors.New("the file has more bytes than it should")
		}
	}
	if err != nil && err != io.EOF {
		w.err = err
		return 0, err
	}
	return n, nil
}

// Open reads back a written file.
func (w *writing) Open(ctx context.Context, f *backup.File) (io.ReadCloser, error) {
	return w.open(ctx, f)
}

// Finish lists the backup, if all of its objects are there.
func (w *writing) Finish(ctx context.Context, m *backup.Manifest) error {
	sizes := map[string]int64{}
	err := w.list(ctx, w.key(objectsDir), true, func(o minio.ObjectInfo) error {
		sizes[w.key(objectsDir, o.Key)] = o.Size
		return nil
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
	if err := w.put(ctx, w.key(w.id, manifestName), append(text, '\n')); err != nil {
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
	err = t.list(ctx, t.key(objectsDir), true, func(o minio.ObjectInfo) error {
		key := t.key(objectsDir, o.Key)
		if needed[key] {
			return nil
		}
		freed += o.Size
		unneeded = append(unneeded, key)
		return nil
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
	core := minio.Core{Client: t.client}
	for key, upload := "", ""; ; {
		page, err := core.ListMultipartUploads(ctx, t.bucket, t.key(objectsDir)+"/", key, upload, "", 1000)
		if err != nil {
			return t.wrap("list uploads that were broken off", err)
		}
		for i := range page.Uploads {
			if err := core.AbortMultipartUpload(ctx, t.bucket, page.Uploads[i].Key, page.Uploads[i].UploadID); err != nil && !missing(err) {
				return t.wrap("remove an upload that was broken off", err)
			}
		}
		if !page.IsTruncated {
			return nil
		}
		key, upload = page.NextKeyMarker, page.NextUploadIDMarker
	}
}
