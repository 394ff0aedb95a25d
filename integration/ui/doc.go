// Package ui drives the web interface of a real node in a browser, Debian's Chromium,
// by role and accessible name. Without one its tests are skipped, in CI they fail.
package ui
