package access

// CacheSize is how many logins are cached.
const CacheSize = cacheSize
