package httpapi

import (
	"net/http"

	"github.com/annalsdb/annals/access"
	"github.com/annalsdb/annals/event"
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
	pages := pages{o.Store, o.Waiter}
	statistics := &statisticsHandlers{statistics: o.Statistics}
	web := &webHandlers{o.WebDir, o.UIDir}
	operations := &operationHandlers{o.Operations, o.Doctor}
	scavenges := &scavengeHandlers{o.Scavenges}
	backups := &backupHandlers{o.BackupRuns, o.Backups}
	redactions := &redactionHandlers{o.Redactions}
	cluster := &clusterHandlers{o.Membership}
	add(true,
		at("/ping", look(nodeOffer, mayEverybody, servePing)),
		at("/info", look(nodeOffer, mayEverybody, s.nodeInfo)),
		probe("/health/live", s.healthLive),
		probe("/health/ready", s.healthReady),
		probe("/health/startup", s.healthStartup),
	)
	add(o.Settings != nil, at("/info/options", look(nodeOffer, mayOps, s.listOptions)))
	add(o.Statistics != nil, at("/histogram/{name}", look(nodeOffer, mayOps, statistics.serveHistogram)))
	add(o.Statistics != nil && !o.DisableStats,
		at("/stats", look(statsOffer, mayUserOrOpen, statistics.serveStats)),
		at("/stats/history", look(jsonOffer, mayUserOrOpen, statistics.serveHistory)),
		at("/stats/{path...}", look(statsOffer, mayUserOrOpen, statistics.serveStats)),
		at("/metrics", look(nil, mayUserOrOpen, statistics.serveMetrics)),
	)
	add(isAdmin,
		at("/", look(nil, mayEverybody, webInterface)),
		at("/web", look(nil, mayEverybody, webInterface)),
		at("/sys/subsystems", look(jsonOffer, mayOps, s.listSubsystems)),
		at("/admin/login", look(adminOffer, mayUser, serveLogin)),
	)
	if isAdmin && o.Projections != nil {
		for _, file := range debuggerFiles {
			add(true, at(webPrefix+file, look(nil, mayEverybody, debuggerFile)))
		}
	}
	add(isAdmin, web.uiRows(o.WebDir == nil)...)
	add(isAdmin && o.WebDir != nil, web.webFolder())
	add(isAdmin && o.Operations != nil,
		at("/admin/shutdown", operate(http.MethodPost, operations.shutdownNode)),
		at("/admin/reloadconfig", operate(http.MethodPost, operations.reloadConfig)),
		at("/admin/mergeindexes", operate(http.MethodPost, operations.mergeIndexes)),
	)
	add(isAdmin && o.Scavenges != nil,
		at("/admin/scavenge", operate(http.MethodPost, scavenges.startScavenge)),
		at("/admin/scavenge/current", operate(http.MethodGet, scavenges.currentScavenge), operate(http.MethodDelete, scavenges.stopScavenge)),
		at("/admin/scavenge/last", operate(http.MethodGet, scavenges.lastScavenge)),
		at("/admin/scavenge/{id}", operate(http.MethodDelete, scavenges.stopScavenge)),
	)
	add(isAdmin && o.Backups != nil,
		at("/admin/backup/sessions", operate(http.MethodPost, backups.beginBackupSession), operate(http.MethodGet, backups.listBackupSessions)),
		at("/admin/backup/sessions/{id}", operate(http.MethodDelete, backups.endBackupSession)),
		// Bytes have no form that could be chosen.
		at("/admin/backup/sessions/{id}/files/{name...}", look(nil, mayOps, backups.sendBackupFile)),
	)
	add(isAdmin && o.BackupRuns != nil,
		at("/admin/backup", operate(http.MethodPost, backups.startBackup)),
		at("/admin/backup/current", operate(http.MethodGet, backups.currentBackup), operate(http.MethodDelete, backups.stopBackup)),
		at("/admin/backup/last", operate(http.MethodGet, backups.lastBackup)),
		at("/admin/backup/list", operate(http.MethodGet, backups.listBackups)),
	)
	add(isAdmin && o.Redactions != nil, at(redactPath, operation{method: http.MethodPost, offer: adminOffer, may: mayAdmin, serve: redactions.redactEvents}))
	add(isAdmin && o.Doctor != nil, at("/admin/doctor", operate(http.MethodGet, operations.examine)))
	add(o.Membership != nil && !o.DisableGossip, at("/gossip",
		look(gossipOffer, mayGossip, cluster.serveGossip),
		operation{method: http.MethodPost, offer: gossipOffer, bodies: gossipForms, may: mayGossip, unnoted: true, serve: cluster.hearGossip},
	))
	add(isAdmin && o.Membership != nil,
		at("/admin/node/resign", operate(http.MethodPost, cluster.resignLeadership)),
		at("/admin/node/priority/{priority}", operate(http.MethodPost, cluster.setPriority)),
		at("/admin/cluster/members", operate(http.MethodGet, cluster.listMembers), operate(http.MethodPost, cluster.addMember)),
		at("/admin/cluster/members/{node}", operate(http.MethodDelete, cluster.removeMember)),
	)
	for i := range rows {
		rows[i].isPlain = true
	}
	add(!o.DisableAtomPub, streamRows(&streamHandlers{
		store: o.Store, waiter: o.Waiter, subscriptions: o.Subscriptions, way: &s.way, pages: pages, maxEventBytes: o.MaxEventBytes, maxAppendBytes: o.MaxAppendBytes,
	})...)
	// In insecure mode there are no users to manage.
	add(o.Users != nil && !o.Insecure, userRows(&userHandlers{o.Users, &s.way})...)
	add(o.Subscriptions != nil, subscriptionRows(&groupHandlers{o.Subscriptions, o.Store, &s.way, pages})...)
	add(o.Projections != nil, projectionRows(&projectionHandlers{o.Projections, &s.way})...)
	return rows
}

// scavengesStream holds links to the beginning and the end of each scavenge. The
// stream of one of them has its id and a dash more.
const scavengesStream = "$scavenges"

// streamRows are the streams and the log. Literal segments come before placeholders,
// and the metadata of a stream before the log.
func streamRows(streams *streamHandlers) []row {
	backward := get(feedOffer, access.ReadRight, streams.streamBackward)
	metadata, oneEvent := get(singleOffer, access.MetaReadRight, streams.streamMetadata), get(singleOffer, access.ReadRight, streams.singleEvent)
	metadata.single, oneEvent.single = true, true
	metaBackward := get(feedOffer, access.MetaReadRight, streams.metaBackward)
	allBackward := get(feedOffer, access.ReadRight, streams.allBackward)
	streamTail, allTail := backward, allBackward
	streamTail.live, allTail.live = streams.serveLive, streams.serveLive
	filteredBackward := get(feedOffer, access.ReadRight, streams.filteredBackward)
	write, incoming := post(appendForms, access.WriteRight, streams.appendEvents), post(incomingForms, access.WriteRight, streams.incomingEvent)
	remove := operation{method: http.MethodDelete, action: deleting, offer: changeOffer, may: mayStream(access.DeleteRight), serve: streams.deleteStream}
	write.unnoted, incoming.unnoted = true, true
	rows := []row{
		at("/streams/{stream}/metadata", metadata, post(appendForms, access.MetaWriteRight, streams.writeMetadata)),
		at("/streams/{stream}/metadata/", slash(http.MethodGet, singleOffer, 0), slash(http.MethodPost, changeOffer, appendForms)),
		at("/streams/{stream}/metadata/{number}", metadata),
		at("/streams/{stream}/metadata/{number}/{count}", metaBackward),
		at("/streams/{stream}/metadata/{number}/backward/{count}", metaBackward),
		at("/streams/{stream}/metadata/{number}/forward/{count}", get(feedOffer, access.MetaReadRight, streams.metaForward)),
		at("/streams/{stream}/incoming/{id}", incoming),

		about(event.AllStream, at("/streams/$all", write, remove, allTail)),
		about(event.AllStream, at("/streams/$all/filtered", filteredBackward)),
		about(event.AllStream, at("/streams/$all/filtered/{position}/{count}", filteredBackward)),
		about(event.AllStream, at("/streams/$all/filtered/{position}/backward/{count}", filteredBackward)),
		about(event.AllStream, at("/streams/$all/filtered/{position}/forward/{count}", get(feedOffer, access.ReadRight, streams.filteredForward))),
		about(event.AllStream, at("/streams/$all/names", get(jsonOffer, access.ReadRight, streams.streamNames))),
		about(event.AllStream, at("/streams/$all/at/{time}", get(jsonOffer, access.ReadRight, streams.allAt))),
		about(event.AllStream, at("/streams/$all/{position}/{count}", allBackward)),
		about(event.AllStream, at("/streams/$all/{position}/backward/{count}", allBackward)),
		about(event.AllStream, at("/streams/$all/{position}/forward/{count}", get(feedOffer, access.ReadRight, streams.allForward))),

		at("/streams/{stream}", write, remove, streamTail),
		at("/streams/{stream}/", slash(http.MethodPost, changeOffer, appendForms), slash(http.MethodDelete, changeOffer, 0), slash(http.MethodGet, feedOffer, 0)),
		at("/streams/{stream}/{number}", oneEvent),
		at("/streams/{stream}/at/{time}", get(jsonOffer, access.ReadRight, streams.streamAt)),
		at("/streams/{stream}/{number}/{count}", backward),
		at("/streams/{stream}/{number}/backward/{count}", backward),
		at("/streams/{stream}/{number}/forward/{count}", get(feedOffer, access.ReadRight, streams.streamForward)),
		// The web interface asks so for the history of one scavenge.
		about(scavengesStream, at("/streams/$scavenges/{id}/{number}/{count}", backward)),
	}
	rows[len(rows)-1].isRun = true
	return rows
}

// userRows are the users, which the leader alone reads and changes.
func userRows(users *userHandlers) []row {
	manage := func(method string, may requirement, serve handler) operation {
		return operation{method: method, offer: jsonOffer, may: may, serve: users.leading(serve)}
	}
	// The body says more.
	describe := func(method string, may requirement, serve handler) operation {
		return operation{method: method, offer: jsonOffer, may: may, bodies: 1 << formJSON, serve: users.leading(serve)}
	}
	list := manage(http.MethodGet, mayAdmin, users.listUsers)
	create := describe(http.MethodPost, mayAdmin, users.createUser)
	return []row{
		at("/users", list, create),
		at("/users/", list, create),
		at("/users/$current", manage(http.MethodGet, mayUser, users.currentUser)),
		at("/users/{login}",
			manage(http.MethodGet, mayAdminOrSelf, users.getUser),
			describe(http.MethodPut, mayAdmin, users.updateUser),
			manage(http.MethodDelete, mayAdmin, users.deleteUser)),
		at("/users/{login}/command/enable", manage(http.MethodPost, mayAdmin, users.disableUser(false)), manage(http.MethodPut, mayAdmin, users.disableUser(false))),
		at("/users/{login}/command/disable", manage(http.MethodPost, mayAdmin, users.disableUser(true)), manage(http.MethodPut, mayAdmin, users.disableUser(true))),
		at("/users/{login}/command/reset-password", describe(http.MethodPost, mayAdmin, users.resetPassword)),
		at("/users/{login}/command/change-password", describe(http.MethodPost, maySelf, users.changePassword)),
	}
}

// subscriptionRows are the groups, which the leader alone knows, and the messages that
// they gave up, which every node has.
func subscriptionRows(groups *groupHandlers) []row {
	inform := func(serve handler) operation { return look(subscriptionsOffer, mayUser, serve) }
	order := func(method string, a action, serve handler) operation {
		return operation{method: method, action: a, offer: subscriptionsOffer, may: mayOps, serve: serve}
	}
	create, update := order(http.MethodPut, writing, groups.createGroup), order(http.MethodPost, writing, groups.updateGroup)
	create.bodies, update.bodies = settingsForms, settingsForms
	// Handing out messages: asking twice is not asking once.
	consume := look(competingOffer, mayReader, groups.handOutMessages)
	consume.once = true
	// Nothing is sent back to an answer, so the request may accept what it likes.
	ack := operation{method: http.MethodPost, action: writing, may: mayReader, unnoted: true, serve: groups.ackMessages}
	nack := ack
	nack.serve = groups.nackMessages
	return []row{
		at("/subscriptions", inform(groups.listGroups)),
		// The groups of a stream of that name are here as well.
		about(segRestart, at("/subscriptions/restart", inform(groups.listGroupsOfStream), order(http.MethodPost, writing, groups.restartGroups))),
		at("/subscriptions/{stream}", inform(groups.listGroupsOfStream)),
		at("/subscriptions/{stream}/{subscription}", create, update, order(http.MethodDelete, deleting, groups.deleteGroup), consume),
		at("/subscriptions/{stream}/{subscription}/info", inform(groups.groupInfo)),
		at("/subscriptions/{stream}/{subscription}/ack", ack),
		at("/subscriptions/{stream}/{subscription}/nack", nack),
		at("/subscriptions/{stream}/{subscription}/replayParked", order(http.MethodPost, writing, groups.replayParked)),
		at("/subscriptions/{stream}/{subscription}/parked", look(jsonOffer, mayReader, groups.listParked)),
		at("/subscriptions/{stream}/{subscription}/parked/replay", order(http.MethodPost, writing, groups.settleParked(Subscriptions.ReplayParked))),
		at("/subscriptions/{stream}/{subscription}/parked/drop", order(http.MethodPost, writing, groups.settleParked(Subscriptions.DropParked))),
		at("/subscriptions/{stream}/{subscription}/parked/note", order(http.MethodPost, writing, groups.noteParked)),
		at("/subscriptions/{stream}/{subscription}/{count}", consume),
		at("/subscriptions/{stream}/{subscription}/ack/{id}", ack),
		at("/subscriptions/{stream}/{subscription}/nack/{id}", nack),
		at("/subscriptions/viewparkedmessages/{stream}/{subscription}/{number}/backward/{count}", look(competingOffer, mayReader, groups.parkedBackward)),
		at("/subscriptions/viewparkedmessages/{stream}/{subscription}/{number}/forward/{count}", look(competingOffer, mayReader, groups.parkedForward)),
	}
}

// projectionRows are the projections, which the leader alone runs.
func projectionRows(projections *projectionHandlers) []row {
	do := func(method string, a action, may requirement, serve handler) operation {
		return operation{method: method, action: a, offer: jsonOffer, may: may, redirected: true, serve: projections.projecting(serve)}
	}
	watch := func(serve handler) operation { return do(http.MethodGet, reading, mayUser, serve) }
	// A script is a text of any type, which must be named.
	script := func(method string, may requirement, serve handler) operation {
		op := do(method, writing, may, serve)
		op.typed = true
		return op
	}
	document := func(method string, may requirement, serve handler) operation {
		op := do(method, writing, may, serve)
		op.bodies = 1 << formJSON
		return op
	}
	list := func(kinds projection.Kinds) operation { return watch(projections.listProjections(kinds)) }
	create := func(m projection.Mode) operation {
		return script(http.MethodPost, mayUser, projections.createProjection(m))
	}
	command := func(c projection.Command) operation {
		return do(http.MethodPost, writing, mayUser, projections.projectionCommand(c))
	}
	page, query, config := watch(projectionsPage), watch(projections.projectionQuery), watch(projections.projectionConfig)
	read := document(http.MethodPost, mayUser, projections.readEvents)
	read.unnoted = true
	// A page, and a script or a document, whichever types are accepted.
	page.offer, query.offer = nil, nil
	config.may = mayOps
	return []row{
		at("/projections", page),
		at("/projections/any", list(projection.AllKinds)),
		at("/projections/all-non-transient", list(projection.NonTransient)),
		at("/projections/transient", list(projection.Transient.Only()), create(projection.Transient)),
		at("/projections/onetime", list(projection.OneTime.Only()), create(projection.OneTime)),
		at("/projections/continuous", list(projection.Continuous.Only()), create(projection.Continuous)),
		at("/projections/read-events", read),
		at("/projections/restart", script(http.MethodPost, mayOps, projections.restartProjections)),
		at("/projection/{name}", watch(projections.oneProjection), do(http.MethodDelete, deleting, mayOps, projections.deleteProjection)),
		at("/projection/{name}/statistics", watch(projections.projectionStatistics)),
		at("/projection/{name}/state", watch(projections.projectionContent(Projections.State))),
		at("/projection/{name}/result", watch(projections.projectionContent(Projections.Result))),
		at("/projection/{name}/query", query, script(http.MethodPut, mayUser, projections.updateProjection)),
		at("/projection/{name}/config", config, document(http.MethodPut, mayOps, projections.configureProjection)),
		at("/projection/{name}/command/enable", command(projection.Enable)),
		at("/projection/{name}/command/disable", command(projection.Disable)),
		at("/projection/{name}/command/reset", command(projection.Reset)),
		at("/projection/{name}/command/abort", command(projection.Abort)),
	}
}
