package httpapi

import (
	"context"
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
	add(true,
		at("/ping", look(nodeOffer, mayEverybody, servePing)),
		at("/info", look(nodeOffer, mayEverybody, nodeInfo)),
		probe("/health/live", healthLive),
		probe("/health/ready", healthReady),
		probe("/health/startup", healthStartup),
	)
	add(o.Settings != nil, at("/info/options", look(nodeOffer, mayOps, listOptions)))
	add(o.Statistics != nil, at("/histogram/{name}", look(nodeOffer, mayOps, serveHistogram)))
	add(o.Statistics != nil && !o.DisableStats,
		at("/stats", look(statsOffer, mayUserOrOpen, serveStats)),
		at("/stats/history", look(jsonOffer, mayUserOrOpen, serveHistory)),
		at("/stats/{path...}", look(statsOffer, mayUserOrOpen, serveStats)),
		at("/metrics", look(nil, mayUserOrOpen, serveMetrics)),
	)
	add(isAdmin,
		at("/", look(nil, mayEverybody, webInterface)),
		at("/web", look(nil, mayEverybody, webInterface)),
		at("/sys/subsystems", look(jsonOffer, mayOps, listSubsystems)),
		at("/admin/login", look(adminOffer, mayUser, serveLogin)),
	)
	if isAdmin && o.Projections != nil {
		for _, file := range debuggerFiles {
			add(true, at(webPrefix+file, look(nil, mayEverybody, debuggerFile)))
		}
	}
	add(isAdmin, uiRows(o.WebDir == nil)...)
	add(isAdmin && o.WebDir != nil, webFolder())
	add(isAdmin && o.Operations != nil,
		at("/admin/shutdown", operate(http.MethodPost, shutdownNode)),
		at("/admin/reloadconfig", operate(http.MethodPost, reloadConfig)),
		at("/admin/mergeindexes", operate(http.MethodPost, mergeIndexes)),
	)
	add(isAdmin && o.Scavenges != nil,
		at("/admin/scavenge", operate(http.MethodPost, startScavenge)),
		at("/admin/scavenge/current", operate(http.MethodGet, currentScavenge), operate(http.MethodDelete, stopScavenge)),
		at("/admin/scavenge/last", operate(http.MethodGet, lastScavenge)),
		at("/admin/scavenge/{id}", operate(http.MethodDelete, stopScavenge)),
	)
	add(isAdmin && o.Backups != nil,
		at("/admin/backup/sessions", operate(http.MethodPost, beginBackupSession), operate(http.MethodGet, listBackupSessions)),
		at("/admin/backup/sessions/{id}", operate(http.MethodDelete, endBackupSession)),
		// Bytes have no form that could be chosen.
		at("/admin/backup/sessions/{id}/files/{name...}", look(nil, mayOps, sendBackupFile)),
	)
	add(isAdmin && o.BackupRuns != nil,
		at("/admin/backup", operate(http.MethodPost, startBackup)),
		at("/admin/backup/current", operate(http.MethodGet, currentBackup), operate(http.MethodDelete, stopBackup)),
		at("/admin/backup/last", operate(http.MethodGet, lastBackup)),
		at("/admin/backup/list", operate(http.MethodGet, listBackups)),
	)
	add(isAdmin && o.Redactions != nil, at(redactPath, operation{method: http.MethodPost, offer: adminOffer, may: mayAdmin, serve: redactEvents}))
	add(isAdmin && o.Doctor != nil, at("/admin/doctor", operate(http.MethodGet, examine)))
	add(o.Membership != nil && !o.DisableGossip, at("/gossip",
		look(gossipOffer, mayGossip, serveGossip),
		operation{method: http.MethodPost, offer: gossipOffer, bodies: gossipForms, may: mayGossip, unnoted: true, serve: hearGossip},
	))
	add(isAdmin && o.Membership != nil,
		at("/admin/node/resign", operate(http.MethodPost, resignLeadership)),
		at("/admin/node/priority/{priority}", operate(http.MethodPost, setPriority)),
		at("/admin/cluster/members", operate(http.MethodGet, listMembers), operate(http.MethodPost, addMember)),
		at("/admin/cluster/members/{node}", operate(http.MethodDelete, removeMember)),
	)
	for i := range rows {
		rows[i].isPlain = true
	}
	add(!o.DisableAtomPub, streamRows()...)
	// In insecure mode there are no users to manage.
	add(o.Users != nil && !o.Insecure, userRows()...)
	add(o.Subscriptions != nil, subscriptionRows()...)
	add(o.Projections != nil, projectionRows()...)
	return rows
}

// scavengesStream holds links to the beginning and the end of each scavenge. The
// stream of one of them has its id and a dash more.
const scavengesStream = "$scavenges"

// streamRows are the streams and the log. Literal segments come before placeholders,
// and the metadata of a stream before the log.
func streamRows() []row {
	backward := get(feedOffer, access.ReadRight, streamBackward)
	metadata, oneEvent := get(singleOffer, access.MetaReadRight, streamMetadata), get(singleOffer, access.ReadRight, singleEvent)
	metadata.single, oneEvent.single = true, true
	metaBackward := get(feedOffer, access.MetaReadRight, metaBackward)
	allBackward := get(feedOffer, access.ReadRight, allBackward)
	streamTail, allTail := backward, allBackward
	streamTail.live, allTail.live = true, true
	filteredBackward := get(feedOffer, access.ReadRight, filteredBackward)
	write, incoming := post(appendForms, access.WriteRight, appendEvents), post(incomingForms, access.WriteRight, incomingEvent)
	remove := operation{method: http.MethodDelete, action: deleting, offer: changeOffer, may: mayStream(access.DeleteRight), serve: deleteStream}
	write.unnoted, incoming.unnoted = true, true
	rows := []row{
		at("/streams/{stream}/metadata", metadata, post(appendForms, access.MetaWriteRight, writeMetadata)),
		at("/streams/{stream}/metadata/", slash(http.MethodGet, singleOffer, 0), slash(http.MethodPost, changeOffer, appendForms)),
		at("/streams/{stream}/metadata/{number}", metadata),
		at("/streams/{stream}/metadata/{number}/{count}", metaBackward),
		at("/streams/{stream}/metadata/{number}/backward/{count}", metaBackward),
		at("/streams/{stream}/metadata/{number}/forward/{count}", get(feedOffer, access.MetaReadRight, metaForward)),
		at("/streams/{stream}/incoming/{id}", incoming),

		about(event.AllStream, at("/streams/$all", write, remove, allTail)),
		about(event.AllStream, at("/streams/$all/filtered", filteredBackward)),
		about(event.AllStream, at("/streams/$all/filtered/{position}/{count}", filteredBackward)),
		about(event.AllStream, at("/streams/$all/filtered/{position}/backward/{count}", filteredBackward)),
		about(event.AllStream, at("/streams/$all/filtered/{position}/forward/{count}", get(feedOffer, access.ReadRight, filteredForward))),
		about(event.AllStream, at("/streams/$all/names", get(jsonOffer, access.ReadRight, streamNames))),
		about(event.AllStream, at("/streams/$all/at/{time}", get(jsonOffer, access.ReadRight, allAt))),
		about(event.AllStream, at("/streams/$all/{position}/{count}", allBackward)),
		about(event.AllStream, at("/streams/$all/{position}/backward/{count}", allBackward)),
		about(event.AllStream, at("/streams/$all/{position}/forward/{count}", get(feedOffer, access.ReadRight, allForward))),

		at("/streams/{stream}", write, remove, streamTail),
		at("/streams/{stream}/", slash(http.MethodPost, changeOffer, appendForms), slash(http.MethodDelete, changeOffer, 0), slash(http.MethodGet, feedOffer, 0)),
		at("/streams/{stream}/{number}", oneEvent),
		at("/streams/{stream}/at/{time}", get(jsonOffer, access.ReadRight, streamAt)),
		at("/streams/{stream}/{number}/{count}", backward),
		at("/streams/{stream}/{number}/backward/{count}", backward),
		at("/streams/{stream}/{number}/forward/{count}", get(feedOffer, access.ReadRight, streamForward)),
		// The web interface asks so for the history of one scavenge.
		about(scavengesStream, at("/streams/$scavenges/{id}/{number}/{count}", backward)),
	}
	rows[len(rows)-1].isRun = true
	return rows
}

// userRows are the users, which the leader alone reads and changes.
func userRows() []row {
	manage := func(method string, may requirement, serve func(*exchange, context.Context) error) operation {
		return operation{method: method, offer: jsonOffer, may: may, serve: leading(serve)}
	}
	// The body says more.
	describe := func(method string, may requirement, serve func(*exchange, context.Context) error) operation {
		return operation{method: method, offer: jsonOffer, may: may, bodies: 1 << formJSON, serve: leading(serve)}
	}
	list := manage(http.MethodGet, mayAdmin, listUsers)
	create := describe(http.MethodPost, mayAdmin, createUser)
	return []row{
		at("/users", list, create),
		at("/users/", list, create),
		at("/users/$current", manage(http.MethodGet, mayUser, currentUser)),
		at("/users/{login}",
			manage(http.MethodGet, mayAdminOrSelf, getUser),
			describe(http.MethodPut, mayAdmin, updateUser),
			manage(http.MethodDelete, mayAdmin, deleteUser)),
		at("/users/{login}/command/enable", manage(http.MethodPost, mayAdmin, disableUser(false)), manage(http.MethodPut, mayAdmin, disableUser(false))),
		at("/users/{login}/command/disable", manage(http.MethodPost, mayAdmin, disableUser(true)), manage(http.MethodPut, mayAdmin, disableUser(true))),
		at("/users/{login}/command/reset-password", describe(http.MethodPost, mayAdmin, resetPassword)),
		at("/users/{login}/command/change-password", describe(http.MethodPost, maySelf, changePassword)),
	}
}

// subscriptionRows are the groups, which the leader alone knows, and the messages that
// they gave up, which every node has.
func subscriptionRows() []row {
	inform := func(serve func(*exchange) error) operation { return look(subscriptionsOffer, mayUser, serve) }
	order := func(method string, a action, serve func(*exchange) error) operation {
		return operation{method: method, action: a, offer: subscriptionsOffer, may: mayOps, serve: serve}
	}
	create, update := order(http.MethodPut, writing, createGroup), order(http.MethodPost, writing, updateGroup)
	create.bodies, update.bodies = settingsForms, settingsForms
	// Handing out messages: asking twice is not asking once.
	consume := look(competingOffer, mayReader, handOutMessages)
	consume.once = true
	// Nothing is sent back to an answer, so the request may accept what it likes.
	ack := operation{method: http.MethodPost, action: writing, may: mayReader, unnoted: true, serve: ackMessages}
	nack := ack
	nack.serve = nackMessages
	return []row{
		at("/subscriptions", inform(listGroups)),
		// The groups of a stream of that name are here as well.
		about(segRestart, at("/subscriptions/restart", inform(listGroupsOfStream), order(http.MethodPost, writing, restartGroups))),
		at("/subscriptions/{stream}", inform(listGroupsOfStream)),
		at("/subscriptions/{stream}/{subscription}", create, update, order(http.MethodDelete, deleting, deleteGroup), consume),
		at("/subscriptions/{stream}/{subscription}/info", inform(groupInfo)),
		at("/subscriptions/{stream}/{subscription}/ack", ack),
		at("/subscriptions/{stream}/{subscription}/nack", nack),
		at("/subscriptions/{stream}/{subscription}/replayParked", order(http.MethodPost, writing, replayParked)),
		at("/subscriptions/{stream}/{subscription}/parked", look(jsonOffer, mayReader, listParked)),
		at("/subscriptions/{stream}/{subscription}/parked/replay", order(http.MethodPost, writing, settleParked(Subscriptions.ReplayParked))),
		at("/subscriptions/{stream}/{subscription}/parked/drop", order(http.MethodPost, writing, settleParked(Subscriptions.DropParked))),
		at("/subscriptions/{stream}/{subscription}/parked/note", order(http.MethodPost, writing, noteParked)),
		at("/subscriptions/{stream}/{subscription}/{count}", consume),
		at("/subscriptions/{stream}/{subscription}/ack/{id}", ack),
		at("/subscriptions/{stream}/{subscription}/nack/{id}", nack),
		at("/subscriptions/viewparkedmessages/{stream}/{subscription}/{number}/backward/{count}", look(competingOffer, mayReader, parkedBackward)),
		at("/subscriptions/viewparkedmessages/{stream}/{subscription}/{number}/forward/{count}", look(competingOffer, mayReader, parkedForward)),
	}
}

// projectionRows are the projections, which the leader alone runs.
func projectionRows() []row {
	type handler = func(*exchange, context.Context) error
	do := func(method string, a action, may requirement, serve handler) operation {
		return operation{method: method, action: a, offer: jsonOffer, may: may, redirected: true, serve: projecting(serve)}
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
	list := func(kinds projection.Kinds) operation { return watch(listProjections(kinds)) }
	create := func(m projection.Mode) operation { return script(http.MethodPost, mayUser, createProjection(m)) }
	command := func(c projection.Command) operation {
		return do(http.MethodPost, writing, mayUser, projectionCommand(c))
	}
	page, query, config := watch(projectionsPage), watch(projectionQuery), watch(projectionConfig)
	read := document(http.MethodPost, mayUser, readEvents)
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
		at("/projections/restart", script(http.MethodPost, mayOps, restartProjections)),
		at("/projection/{name}", watch(oneProjection), do(http.MethodDelete, deleting, mayOps, deleteProjection)),
		at("/projection/{name}/statistics", watch(projectionStatistics)),
		at("/projection/{name}/state", watch(projectionContent(Projections.State))),
		at("/projection/{name}/result", watch(projectionContent(Projections.Result))),
		at("/projection/{name}/query", query, script(http.MethodPut, mayUser, updateProjection)),
		at("/projection/{name}/config", config, document(http.MethodPut, mayOps, configureProjection)),
		at("/projection/{name}/command/enable", command(projection.Enable)),
		at("/projection/{name}/command/disable", command(projection.Disable)),
		at("/projection/{name}/command/reset", command(projection.Reset)),
		at("/projection/{name}/command/abort", command(projection.Abort)),
	}
}
