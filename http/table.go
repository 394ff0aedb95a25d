package httpapi

import (
	"net/http"

	"github.com/annalsdb/annals/access"
	"github.com/annalsdb/annals/api"
	"github.com/annalsdb/annals/event"
	"github.com/annalsdb/annals/http/admin"
	"github.com/annalsdb/annals/http/groups"
	"github.com/annalsdb/annals/http/media"
	"github.com/annalsdb/annals/http/problem"
	"github.com/annalsdb/annals/http/projections"
	"github.com/annalsdb/annals/http/request"
	"github.com/annalsdb/annals/http/streams"
	"github.com/annalsdb/annals/http/ui"
	"github.com/annalsdb/annals/projection"
)

// rows is the table of routes: everything that the server serves with its options. Of
// rows that fit a path the first one counts.
func (s *Server) rows() []row {
	o := &s.opts
	var rows []row
	add := func(served bool, more ...row) {
		if served {
			rows = append(rows, more...)
		}
	}
	isAdmin := !o.DisableAdminUI
	statistics := &admin.StatisticsHandlers{Statistics: o.Statistics}
	web := &ui.Handlers{Folder: o.WebDir, Own: o.UIDir}
	operations := &admin.OperationHandlers{Operations: o.Operations, Doctor: o.Doctor}
	scavenges := &admin.ScavengeHandlers{Scavenges: o.Scavenges}
	backups := &admin.BackupHandlers{Runs: o.BackupRuns, Sessions: o.Backups}
	redactions := &admin.RedactionHandlers{Redactions: o.Redactions}
	cluster := &admin.ClusterHandlers{Membership: o.Membership}
	add(true,
		at("/ping", look(nodeOffer, api.MayEverybody, servePing)),
		at("/info", look(nodeOffer, api.MayEverybody, s.nodeInfo)),
		probe("/health/live", s.healthLive),
		probe("/health/ready", s.healthReady),
		probe("/health/startup", s.healthStartup),
	)
	add(o.Settings != nil, at("/info/options", look(nodeOffer, api.MayOps, s.listOptions)))
	add(o.Statistics != nil, at("/histogram/{name}", look(nodeOffer, api.MayOps, statistics.Histogram)))
	add(o.Statistics != nil && !o.DisableStats,
		at("/stats", look(statsOffer, api.ReadStatistics.May, statistics.Stats)),
		at("/stats/history", look(jsonOffer, api.ReadStatistics.May, statistics.History)),
		at("/stats/{path...}", look(statsOffer, api.ReadStatistics.May, statistics.Stats)),
		at("/metrics", look(nil, api.ReadStatistics.May, statistics.Metrics)),
	)
	add(isAdmin,
		at("/", look(nil, api.MayEverybody, ui.Home)),
		at("/web", look(nil, api.MayEverybody, ui.Home)),
		at("/sys/subsystems", look(jsonOffer, api.MayOps, s.listSubsystems)),
		at("/admin/login", look(adminOffer, api.MayUser, admin.Login)),
	)
	if isAdmin && o.Projections != nil {
		for _, file := range ui.DebuggerFiles {
			add(true, at(ui.WebPrefix+file, look(nil, api.MayEverybody, ui.DebuggerFile)))
		}
	}
	interfaceFiles := web.File
	if o.WebDir != nil {
		interfaceFiles = web.FolderFile
	}
	add(isAdmin, open("/ui", ui.ToUI), open(ui.UIPrefix+"{path...}", web.File), open(ui.WebPrefix+"{path...}", interfaceFiles))
	add(isAdmin && o.Operations != nil,
		at("/admin/shutdown", operate(http.MethodPost, operations.Shutdown)),
		at("/admin/reloadconfig", operate(http.MethodPost, operations.Reload)),
		at("/admin/mergeindexes", operate(http.MethodPost, operations.MergeIndexes)),
	)
	index := &admin.IndexHandlers{Index: o.Index}
	add(o.Index != nil, at("/index", look(jsonOffer, api.MayUser, index.Status)))
	add(isAdmin && o.Index != nil, at("/admin/index/rebuild", operate(http.MethodPost, index.Rebuild)))
	add(isAdmin && o.Scavenges != nil,
		at("/admin/scavenge", operate(http.MethodPost, scavenges.Start)),
		at("/admin/scavenge/current", operate(http.MethodGet, scavenges.Current), operate(http.MethodDelete, scavenges.Stop)),
		at("/admin/scavenge/last", operate(http.MethodGet, scavenges.Last)),
		at("/admin/scavenge/{id}", operate(http.MethodDelete, scavenges.Stop)),
	)
	add(isAdmin && o.Backups != nil,
		at("/admin/backup/sessions", operate(http.MethodPost, backups.BeginSession), operate(http.MethodGet, backups.ListSessions)),
		at("/admin/backup/sessions/{id}", operate(http.MethodDelete, backups.EndSession)),
		// Bytes have no form that could be chosen.
		at("/admin/backup/sessions/{id}/files/{name...}", look(nil, api.MayOps, backups.SendFile)),
	)
	add(isAdmin && o.BackupRuns != nil,
		at("/admin/backup", operate(http.MethodPost, backups.Start)),
		at("/admin/backup/current", operate(http.MethodGet, backups.Current), operate(http.MethodDelete, backups.Stop)),
		at("/admin/backup/last", operate(http.MethodGet, backups.Last)),
		at("/admin/backup/list", operate(http.MethodGet, backups.List)),
	)
	add(isAdmin && o.Redactions != nil, at(admin.RedactPath, request.Operation{Operation: api.Redact, Method: http.MethodPost, Offer: adminOffer, Serve: redactions.Redact}))
	add(isAdmin && o.Doctor != nil, at("/admin/doctor", operate(http.MethodGet, operations.Examine)))
	add(o.Membership != nil && !o.DisableGossip, at("/gossip",
		look(gossipOffer, api.ReadGossip.May, cluster.Gossip),
		request.Operation{Operation: api.ReadGossip, Method: http.MethodPost, Offer: gossipOffer, Bodies: gossipForms, Serve: cluster.HearGossip},
	))
	add(isAdmin && o.Membership != nil,
		at("/admin/node/resign", operate(http.MethodPost, cluster.Resign)),
		at("/admin/node/priority/{priority}", operate(http.MethodPost, cluster.SetPriority)),
		at("/admin/cluster/members", operate(http.MethodGet, cluster.ListMembers), operate(http.MethodPost, cluster.AddMember)),
		at("/admin/cluster/members/{node}", operate(http.MethodDelete, cluster.RemoveMember)),
	)
	for i := range rows {
		rows[i].isPlain = true
	}
	finder := &streams.Finder{Store: o.Store}
	add(!o.DisableAtomPub, streamRows(&streams.Handlers{
		Store: o.Store, Subscriptions: o.Subscriptions, Way: &s.way, Finder: finder,
	}, finder)...)
	add(o.Index != nil,
		about(event.AllStream, at("/index/categories", get(jsonOffer, access.ReadRight, index.Names(false)))),
		about(event.AllStream, at("/index/types", get(jsonOffer, access.ReadRight, index.Names(true)))),
	)
	// In insecure mode there are no users to manage.
	add(o.Users != nil && !o.Insecure, userRows(&admin.UserHandlers{Users: o.Users, Way: &s.way})...)
	add(o.Subscriptions != nil, subscriptionRows(&groups.Handlers{Subscriptions: o.Subscriptions, Way: &s.way})...)
	add(o.Projections != nil, projectionRows(&projections.Handlers{Projections: o.Projections, Way: &s.way})...)
	return rows
}

// scavengesStream holds links to the beginning and the end of each scavenge. The
// stream of one of them has its id and a dash more.
const scavengesStream = "$scavenges"

// streamRows are the streams and the log. Literal segments come before placeholders,
// and the metadata of a stream before the log.
func streamRows(s *streams.Handlers, f *streams.Finder) []row {
	backward := get(feedOffer, access.ReadRight, s.Page(true))
	metadata, oneEvent := get(singleOffer, access.MetaReadRight, s.Metadata), get(singleOffer, access.ReadRight, s.Event)
	metadata.Single, oneEvent.Single = true, true
	metaBackward := get(feedOffer, access.MetaReadRight, s.MetadataPage(true))
	allBackward := get(feedOffer, access.ReadRight, s.All(true, false))
	streamTail, allTail := backward, allBackward
	streamTail.Live, allTail.Live = s.Live, s.Live
	filteredBackward := get(feedOffer, access.ReadRight, s.All(true, true))
	write, incoming := post(appendForms, api.Append, s.Append), post(incomingForms, api.Append, s.Incoming)
	remove := request.Operation{Operation: api.DeleteStream, Method: http.MethodDelete, Action: problem.Deleting, Offer: changeOffer, Serve: s.Delete}
	many := post(manyForms, api.AppendMany, s.AppendMany)
	many.Offer = nil // There is one form of answer.
	query, queryItem := post(1<<media.FormJSON, api.ReadStream, f.Query), get(queryOffer, access.ReadRight, f.QueryItem)
	query.Action, query.Offer, queryItem.Live = problem.Reading, queryOffer, s.QueryLive
	rows := []row{
		at("/streams", many),
		about(event.IndexStream, at("/query", query, queryItem)),
		at("/streams/{stream}/metadata", metadata, post(appendForms, api.WriteMetadata, s.WriteMetadata)),
		at("/streams/{stream}/metadata/", slash(http.MethodGet, singleOffer, 0), slash(http.MethodPost, changeOffer, appendForms)),
		at("/streams/{stream}/metadata/{number}", metadata),
		at("/streams/{stream}/metadata/{number}/{count}", metaBackward),
		at("/streams/{stream}/metadata/{number}/backward/{count}", metaBackward),
		at("/streams/{stream}/metadata/{number}/forward/{count}", get(feedOffer, access.MetaReadRight, s.MetadataPage(false))),
		at("/streams/{stream}/incoming/{id}", incoming),

		about(event.AllStream, at("/streams/$all", write, remove, allTail)),
		about(event.AllStream, at("/streams/$all/filtered", filteredBackward)),
		about(event.AllStream, at("/streams/$all/filtered/{position}/{count}", filteredBackward)),
		about(event.AllStream, at("/streams/$all/filtered/{position}/backward/{count}", filteredBackward)),
		about(event.AllStream, at("/streams/$all/filtered/{position}/forward/{count}", get(feedOffer, access.ReadRight, s.All(false, true)))),
		about(event.AllStream, at("/streams/$all/names", get(jsonOffer, access.ReadRight, s.Names))),
		about(event.AllStream, at("/streams/$all/at/{time}", get(jsonOffer, access.ReadRight, s.AllAt))),
		about(event.AllStream, at("/streams/$all/{position}/{count}", allBackward)),
		about(event.AllStream, at("/streams/$all/{position}/backward/{count}", allBackward)),
		about(event.AllStream, at("/streams/$all/{position}/forward/{count}", get(feedOffer, access.ReadRight, s.All(false, false)))),

		at("/streams/{stream}", write, remove, streamTail),
		at("/streams/{stream}/", slash(http.MethodPost, changeOffer, appendForms), slash(http.MethodDelete, changeOffer, 0), slash(http.MethodGet, feedOffer, 0)),
		at("/streams/{stream}/{number}", oneEvent),
		at("/streams/{stream}/at/{time}", get(jsonOffer, access.ReadRight, s.At)),
		at("/streams/{stream}/{number}/{count}", backward),
		at("/streams/{stream}/{number}/backward/{count}", backward),
		at("/streams/{stream}/{number}/forward/{count}", get(feedOffer, access.ReadRight, s.Page(false))),
		// The web interface asks so for the history of one scavenge.
		about(scavengesStream, at("/streams/$scavenges/{id}/{number}/{count}", backward)),
	}
	rows[len(rows)-1].isRun = true
	return rows
}

// userRows are the users, which the leader alone reads and changes.
func userRows(u *admin.UserHandlers) []row {
	manage := func(method string, op api.Operation, serve request.Handler) request.Operation {
		return request.Operation{Operation: op, Method: method, Offer: jsonOffer, Serve: u.Leading(serve)}
	}
	// The body says more.
	describe := func(method string, op api.Operation, serve request.Handler) request.Operation {
		described := manage(method, op, serve)
		described.Bodies = 1 << media.FormJSON
		return described
	}
	list, create := manage(http.MethodGet, api.ListUsers, u.List), describe(http.MethodPost, api.ManageUser, u.Create)
	command := func(method string, disable bool) request.Operation {
		return manage(method, api.ManageUser, u.Disable(disable))
	}
	return []row{
		at("/users", list, create),
		at("/users/", list, create),
		at("/users/$current", manage(http.MethodGet, api.Operation{May: api.MayUser}, u.Current)),
		at("/users/{login}",
			manage(http.MethodGet, api.ReadUser, u.Get),
			describe(http.MethodPut, api.ManageUser, u.Update),
			manage(http.MethodDelete, api.ManageUser, u.Delete)),
		at("/users/{login}/command/enable", command(http.MethodPost, false), command(http.MethodPut, false)),
		at("/users/{login}/command/disable", command(http.MethodPost, true), command(http.MethodPut, true)),
		at("/users/{login}/command/reset-password", describe(http.MethodPost, api.ManageUser, u.ResetPassword)),
		at("/users/{login}/command/change-password", describe(http.MethodPost, api.ChangePassword, u.ChangePassword)),
	}
}

// subscriptionRows are the groups, which the leader alone knows, and the messages that
// they gave up, which every node has.
func subscriptionRows(g *groups.Handlers) []row {
	inform := func(serve request.Handler) request.Operation {
		return look(subscriptionsOffer, api.ListGroups.May, serve)
	}
	info := inform(g.Info)
	info.Awaits = groups.Awaited
	order := func(method string, a problem.Action, op api.Operation, serve request.Handler) request.Operation {
		return request.Operation{Operation: op, Method: method, Action: a, Offer: subscriptionsOffer, Serve: serve}
	}
	create, update := order(http.MethodPut, problem.Writing, api.CreateGroup, g.Create), order(http.MethodPost, problem.Writing, api.UpdateGroup, g.Update)
	create.Bodies, update.Bodies = settingsForms, settingsForms
	reset, forward := order(http.MethodPost, problem.Writing, api.ResetGroup, g.Reset), order(http.MethodPost, problem.Writing, api.ForwardParked, g.Forward)
	reset.Offer, forward.Offer = jsonOffer, jsonOffer
	// Handing out messages: asking twice is not asking once.
	consume := look(competingOffer, api.Consume.May, g.HandOut)
	consume.Once = true
	// Nothing is sent back to an answer, so the request may accept what it likes.
	ack := request.Operation{Operation: api.Consume, Method: http.MethodPost, Action: problem.Writing, Serve: g.Ack}
	nack := ack
	nack.Serve = g.Nack
	return []row{
		at("/subscriptions", inform(g.List)),
		// The groups of a stream of that name are here as well.
		about(groups.SegRestart, at("/subscriptions/restart", inform(g.OfStream), order(http.MethodPost, problem.Writing, api.RestartGroups, g.Restart))),
		at("/subscriptions/{stream}", inform(g.OfStream)),
		at("/subscriptions/{stream}/{subscription}", create, update, order(http.MethodDelete, problem.Deleting, api.DeleteGroup, g.Command(api.Subscriptions.Delete)), consume),
		at("/subscriptions/{stream}/{subscription}/info", info),
		at("/subscriptions/{stream}/{subscription}/reset", look(jsonOffer, api.PreviewReset.May, g.PreviewReset), reset),
		at("/subscriptions/{stream}/{subscription}/ack", ack),
		at("/subscriptions/{stream}/{subscription}/nack", nack),
		at("/subscriptions/{stream}/{subscription}/replayParked", order(http.MethodPost, problem.Writing, api.ReplayParked, g.ReplayParked)),
		at("/subscriptions/{stream}/{subscription}/pause", order(http.MethodPost, problem.Writing, api.UpdateGroup, g.Command(api.Subscriptions.Pause))),
		at("/subscriptions/{stream}/{subscription}/resume", order(http.MethodPost, problem.Writing, api.UpdateGroup, g.Command(api.Subscriptions.Resume))),
		at("/subscriptions/{stream}/{subscription}/parked", look(jsonOffer, api.MayReader, g.Parked)),
		at("/subscriptions/{stream}/{subscription}/parked/replay", order(http.MethodPost, problem.Writing, api.ReplayParked, g.ReplaySome)),
		at("/subscriptions/{stream}/{subscription}/parked/forward", forward),
		at("/subscriptions/{stream}/{subscription}/parked/drop", order(http.MethodPost, problem.Writing, api.ReplayParked, g.Settle(api.Subscriptions.DropParked))),
		at("/subscriptions/{stream}/{subscription}/parked/note", order(http.MethodPost, problem.Writing, api.ReplayParked, g.Note)),
		at("/subscriptions/{stream}/{subscription}/{count}", consume),
		at("/subscriptions/{stream}/{subscription}/ack/{id}", ack),
		at("/subscriptions/{stream}/{subscription}/nack/{id}", nack),
		at("/subscriptions/viewparkedmessages/{stream}/{subscription}/{number}/backward/{count}", look(competingOffer, api.MayReader, g.ParkedPage(true))),
		at("/subscriptions/viewparkedmessages/{stream}/{subscription}/{number}/forward/{count}", look(competingOffer, api.MayReader, g.ParkedPage(false))),
	}
}

// projectionRows are the projections, which the leader alone runs.
func projectionRows(p *projections.Handlers) []row {
	do := func(method string, a problem.Action, op api.Operation, serve request.Handler) request.Operation {
		return request.Operation{Operation: op, Method: method, Action: a, Offer: jsonOffer, Redirected: true, Serve: p.Leading(serve)}
	}
	watch := func(serve request.Handler) request.Operation {
		return do(http.MethodGet, problem.Reading, api.ReadProjections, serve)
	}
	await := func(serve request.Handler) request.Operation {
		waits := watch(serve)
		waits.Awaits = projections.Awaited
		return waits
	}
	// A script is a text of any type, which must be named.
	script := func(method string, op api.Operation, serve request.Handler) request.Operation {
		typed := do(method, problem.Writing, op, serve)
		typed.Typed = true
		return typed
	}
	document := func(method string, op api.Operation, serve request.Handler) request.Operation {
		described := do(method, problem.Writing, op, serve)
		described.Bodies = 1 << media.FormJSON
		return described
	}
	list := func(kinds projection.Kinds) request.Operation { return watch(p.List(kinds)) }
	create := func(m projection.Mode) request.Operation {
		return script(http.MethodPost, api.CreateProjection, p.Create(m))
	}
	command := func(c projection.Command) request.Operation {
		return do(http.MethodPost, problem.Writing, api.CommandProjection, p.Command(c))
	}
	page, query, config, rebuilt := watch(projections.Page), watch(p.Query), watch(p.Config), watch(p.RebuildStatus)
	read := document(http.MethodPost, api.ReadProjections, p.ReadEvents)
	// A page, and a script or a document, whichever types are accepted.
	page.Offer, query.Offer = nil, nil
	config.May, rebuilt.May = api.MayOps, api.MayOps
	return []row{
		at("/projections", page),
		at("/projections/any", list(projection.AllKinds)),
		at("/projections/all-non-transient", list(projection.NonTransient)),
		at("/projections/transient", list(projection.Transient.Only()), create(projection.Transient)),
		at("/projections/onetime", list(projection.OneTime.Only()), create(projection.OneTime)),
		at("/projections/continuous", list(projection.Continuous.Only()), create(projection.Continuous)),
		at("/projections/read-events", read),
		at("/projections/restart", script(http.MethodPost, api.RestartProjections, p.Restart)),
		at("/projection/{name}", await(p.One), do(http.MethodDelete, problem.Deleting, api.DeleteProjection, p.Delete)),
		at("/projection/{name}/statistics", await(p.Statistics)),
		at("/projection/{name}/state", await(p.Content(api.Projections.State))),
		at("/projection/{name}/result", await(p.Content(api.Projections.Result))),
		at("/projection/{name}/partitions", watch(p.Partitions)),
		at("/projection/{name}/query", query, script(http.MethodPut, api.UpdateProjection, p.Text(api.Projections.UpdateQuery))),
		at("/projection/{name}/config", config, document(http.MethodPut, api.Operation{May: api.MayOps, Leader: true, Recorded: true}, p.Configure)),
		at("/projection/{name}/rebuild", rebuilt, script(http.MethodPost, api.RebuildProjection, p.Text(api.Projections.Rebuild)),
			do(http.MethodDelete, problem.Deleting, api.RebuildProjection, p.ChangeRebuild(api.Projections.EndRebuild))),
		at("/projection/{name}/rebuild/swap", do(http.MethodPost, problem.Writing, api.RebuildProjection, p.ChangeRebuild(api.Projections.SwapRebuild))),
		at("/projection/{name}/command/enable", command(projection.Enable)),
		at("/projection/{name}/command/disable", command(projection.Disable)),
		at("/projection/{name}/command/reset", command(projection.Reset)),
		at("/projection/{name}/command/abort", command(projection.Abort)),
	}
}
