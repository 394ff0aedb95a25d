// Orders in Annals over gRPC, with the official client of KurrentDB, as it is.
//
//   npm install
//   node orders.mjs 'kurrentdb://admin:changeit@localhost:2113,localhost:2114,localhost:2115?tlsCaFile=ca.crt'
//
// The client sends user and password over TLS only. A node without TLS, which then has to be one
// without passwords, is kurrentdb://localhost:2113?tls=false

import { randomUUID } from "node:crypto";
import {
  KurrentDBClient, NO_STREAM, START, WrongExpectedVersionError, jsonEvent, persistentSubscriptionToStreamSettingsFromDefaults,
} from "@kurrent/kurrentdb-client";

const address = process.argv[2] ?? "kurrentdb://localhost:2113?tls=false";
const client = KurrentDBClient.connectionString(address);
const order = `order-${randomUUID()}`;

// An append says which version of the stream the writer knows.
await client.appendToStream(order, [
  jsonEvent({ type: "OrderPlaced", data: { total: 30 } }),
  jsonEvent({ type: "OrderPaid", data: { amount: 12 } }),
], { streamState: NO_STREAM });

for await (const { event } of client.readStream(order, { fromRevision: START })) {
  console.log("read", Number(event.revision), event.type, JSON.stringify(event.data));
}

const payment = jsonEvent({ type: "OrderPaid", data: { amount: 18 } });
try {
  await client.appendToStream(order, payment, { streamState: 0n });
} catch (refused) {
  if (!(refused instanceof WrongExpectedVersionError)) throw refused;
  console.log("another writer was here: the last event is", Number(refused.actualState));
  await client.appendToStream(order, payment, { streamState: refused.actualState });
}

// A subscription gives what is there, and then each event as it is written.
let paid = 0;
const subscription = client.subscribeToStream(order, { fromRevision: START });
for await (const { event } of subscription) {
  paid += event.data.amount ?? 0;
  console.log("followed", event.type, "paid so far:", paid);
  if (paid === 30) break;
}
await subscription.unsubscribe();

// The readers of a group share the events of a stream.
await client.createPersistentSubscriptionToStream(order, "packers", persistentSubscriptionToStreamSettingsFromDefaults({ startFrom: START }));
const messages = client.subscribeToPersistentSubscriptionToStream(order, "packers");
let done = 0;
for await (const message of messages) {
  console.log("worked on", Number(message.event.revision), message.event.type);
  await messages.ack(message);
  if (++done === 3) break;
}
await messages.unsubscribe();
await client.deletePersistentSubscriptionToStream(order, "packers");
await client.dispose();
