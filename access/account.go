package access

import "time"

// Account is a stored user as an operator sees it.
type Account struct {
	Login, FullName string
	Groups          []string // never nil
	Disabled        bool
	Updated         time.Time // of the last stored change
}

// NewAccount is a user to be created.
type NewAccount struct {
	Login, FullName string
	Groups          []string
	Password        string
}
