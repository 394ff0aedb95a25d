// @ts-check
// What is known of persistent subscription groups, beyond one answer.
import { fromLeader } from "../api.js";
import { path } from "../lib/address.js";
import { bytes, plural } from "../lib/format.js";

/** progress remembers when a group last handed out or got on. @type {Map<string, {mark: string, since: number}>} */
const progress = new Map();
/** details are what was last told of a group alone. @type {Map<string, {mark: string, parked: number, delayed: number, waiting: number | undefined}>} */
const details = new Map();
const stalledAfter = 60000, detailed = 20;

/**
 * @typedef {{stream: string, group: string, status: string, behind: number, text: string, inFlight: number, connections: number, parked: number | undefined, stalled: boolean, rate: number}} Group
 */

/**
 * waitingOf is how many messages a group that has read to the end has before it: not handed out yet, to be handed out
 * again, or not answered. Its checkpoint does not tell: it stays where it is until enough messages were answered.
 * @param {any} d what is told of the group alone @returns {number | undefined} undefined: it has not read to the end
 */
export function waitingOf(d) {
	if (!/Live/.test(d.status)) return undefined;
	return Number(d.readBufferCount) + Number(d.liveBufferCount) + Number(d.retryBufferCount) + Number(d.outstandingMessagesCount);
}

/** behindOf is how far a group is behind by its checkpoint: events, in $all bytes of the log. @param {any} g */
export function behindOf(g) {
	const { lastCheckpointedEventPosition: at, lastKnownEventPosition: known } = g;
	if (!known) return 0;
	return g.eventStreamId === "$all" ? logPosition(known) - logPosition(at) : Math.max(0, Number(known) - Number(at ?? -1));
}

/** logPosition is that of the commit in "C:1/P:1". @param {string | null} s */
const logPosition = (s) => Number(/^C:([0-9]+)/.exec(s || "")?.[1] ?? 0);

/** behindText says how far. @param {any} g @param {number | undefined} waiting */
export function behindText(g, waiting) {
	if (waiting !== undefined || g.eventStreamId !== "$all") return plural(waiting ?? behindOf(g), "event");
	return `${bytes(behindOf(g))} of the log`;
}

const keyOf = (g) => `${g.eventStreamId}::${g.groupName}`;
const markOf = (g) => `${g.totalItemsProcessed}/${g.lastCheckpointedEventPosition}`;
const newsOf = (g) => `${markOf(g)}/${g.lastKnownEventPosition}/${g.totalInFlightMessages}`;

/**
 * watchGroups reads all groups, the first twenty one by one, for their parked messages and what waits. Of the others those
 * are read so whose checkpoint is behind, unless nothing was waiting and nothing has changed since.
 * @param {AbortSignal} [signal] @returns {Promise<Group[]>}
 */
export async function watchGroups(signal) {
	const list = await fromLeader("/subscriptions", { signal });
	const now = Date.now();
	const known = (g) => details.get(keyOf(g));
	const others = list.slice(detailed).filter((g) => behindOf(g) > 0 && !(known(g)?.waiting === 0 && known(g)?.mark === newsOf(g)));
	await Promise.all([...list.slice(0, detailed), ...others.slice(0, detailed)].map(async (g) => {
		const d = await fromLeader(`/subscriptions/${path(g.eventStreamId, g.groupName)}/info`, { signal }).catch(() => null);
		if (d) details.set(keyOf(g), { mark: newsOf(g), parked: Number(d.parkedMessageCount), delayed: Number(d.delayedMessages ?? 0), waiting: waitingOf(d) });
	}));
	return list.map((g) => {
		const key = keyOf(g), mark = markOf(g), seen = progress.get(key), d = known(g);
		const waiting = d && d.mark === newsOf(g) ? d.waiting : undefined, behind = waiting ?? behindOf(g);
		// A time without anything to do is none without progress.
		if (!seen || seen.mark !== mark || behind === 0) progress.set(key, { mark, since: now });
		return {
			stream: g.eventStreamId, group: g.groupName, status: g.status, behind, text: behindText(g, waiting), inFlight: g.totalInFlightMessages, connections: g.connectionCount, parked: d && d.parked,
			stalled: behind > (d ? d.delayed : 0) && g.status !== "Paused" && (waiting !== undefined || !/Live/.test(g.status)) && !!seen && seen.mark === mark && now - seen.since >= stalledAfter, rate: g.averageItemsPerSecond,
		};
	});
}
