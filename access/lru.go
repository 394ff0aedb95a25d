package access

import "container/list"

// lru remembers so many values, those put last. Its owner guards it.
type lru[K comparable, V any] struct {
	size   int
	places map[K]*list.Element // of order
	order  list.List           // of lruEntry, put last first
}

type lruEntry[K comparable, V any] struct {
	key   K
	value V
}

func newLRU[K comparable, V any](size int) *lru[K, V] {
	return &lru[K, V]{size: size, places: make(map[K]*list.Element)}
}

// get returns what is remembered under a key.
func (l *lru[K, V]) get(key K) (value V, ok bool) {
	e := l.places[key]
	if e == nil {
		return value, false
	}
	return e.Value.(lruEntry[K, V]).value, true
}

// put remembers a value, and forgets the one put longest ago if that is one too many.
func (l *lru[K, V]) put(key K, value V) {
	if e := l.places[key]; e != nil {
		e.Value = lruEntry[K, V]{key, value}
		l.order.MoveToFront(e)
		return
	}
	if len(l.places) >= l.size {
		l.remove(l.order.Back().Value.(lruEntry[K, V]).key)
	}
	l.places[key] = l.order.PushFront(lruEntry[K, V]{key, value})
}

func (l *lru[K, V]) remove(key K) {
	if e := l.places[key]; e != nil {
		l.order.Remove(e)
		delete(l.places, key)
	}
}
