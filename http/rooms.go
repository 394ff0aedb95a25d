package httpapi

import (
	"context"
	"io/fs"
	"sync/atomic"

	"github.com/annalsdb/annals/admin/doctor"
)

type streamHandlers struct {
	store          Store
	waiter         Waiter
	subscriptions  Subscriptions // nil: there are no groups
	way            *way
	pages          pages
	maxEventBytes  int
	maxAppendBytes int64 // 0: no bound of its own

	tails atomic.Int64 // live ones
}

type groupHandlers struct {
	groups Subscriptions
	store  Store
	way    *way
	pages  pages
}

type projectionHandlers struct {
	projections Projections
	way         *way
}

type userHandlers struct {
	users Users
	way   *way
}

type scavengeHandlers struct{ scavenges Scavenges }

type backupHandlers struct {
	runs     Backups
	sessions BackupSessions
}

type statisticsHandlers struct {
	statistics Statistics
	latest     atomic.Pointer[metrics] // for /stats; nil before it is asked for
}

type clusterHandlers struct{ membership Membership }

type redactionHandlers struct{ redactions Redactions }

type operationHandlers struct {
	operations Operations
	doctor     func(context.Context) []doctor.Line
}

type webHandlers struct {
	folder fs.FS // nil: there is none
	own    fs.FS // nil: the files that are built in
}
