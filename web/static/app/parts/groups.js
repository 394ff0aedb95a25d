// @ts-check
// What is known of persistent subscription groups, beyond one answer.
import { fromLeader } from "../api.js";
import { path } from "../lib/address.js";

/** progress remembers when a group last handed out or got on. @type {Map<string, {mark: string, since: number}>} */
const progress = new Map();
const parked = new Map();
const stalledAfter = 60000, detailed = 20;

/**
 * @typedef {{stream: string, group: string, status: string, behind: number | string, inFlight: number, connections: number, parked: number | undefined, stalled: boolean, processed: any, known: any, rate: number}} Group
 */

/** behindOf is how many events a group has before it; in $all it is bytes of log. @param {any} g */
export function behindOf(g) {
	if (g.lastKnownEventNumber === undefined || g.lastKnownEventNumber === null || g.lastProcessedEventNumber === null) return 0;
	return Math.max(0, Number(g.lastKnownEventNumber) - Math.max(-1, Number(g.lastProcessedEventNumber)));
}

/** watchGroups reads all groups; the counts of parked messages of the first twenty with them. @param {AbortSignal} signal @returns {Promise<Group[]>} */
export async function watchGroups(signal) {
	const list = await fromLeader("/subscriptions", { signal });
	const now = Date.now();
	await Promise.all(list.slice(0, detailed).map(async (g) => {
		const key = `${g.eventStreamId}::${g.groupName}`;
		const d = await fromLeader(`/subscriptions/${path(g.eventStreamId, g.groupName)}/info`, { signal }).catch(() => null);
		if (d) parked.set(key, Number(d.parkedMessageCount));
	}));
	return list.map((g) => {
		const key = `${g.eventStreamId}::${g.groupName}`, mark = `${g.totalItemsProcessed}/${g.lastProcessedEventNumber}`;
		const seen = progress.get(key), behind = behindOf(g);
		if (!seen || seen.mark !== mark) progress.set(key, { mark, since: now });
		return {
			stream: g.eventStreamId, group: g.groupName, status: g.status, behind, inFlight: g.totalInFlightMessages, connections: g.connectionCount, parked: parked.get(key),
			stalled: behind > 0 && !!seen && seen.mark === mark && now - seen.since >= stalledAfter, processed: g.lastProcessedEventNumber, known: g.lastKnownEventNumber, rate: g.averageItemsPerSecond,
		};
	});
}
