// Programs that use a NATS server through one of the JavaScript clients. Each line of stdin is one program (JSON: the
// library, the server, the login); each line of stdout is its result (JSON).

import readline from "node:readline";
import WebSocket from "ws";

globalThis.WebSocket ??= WebSocket;

const text = new TextDecoder();
const bytes = new TextEncoder();

// Each client: how to connect, and its JetStream, key-value and object store managers by the same names.
const clients = {
  "transport-node": async () => modern((await import("@nats-io/transport-node")).connect),
  "nats-core": async () => modern((await import("@nats-io/nats-core")).wsconnect),
  "nats": async () => classic(await import("nats")),
  "nats.ws": async () => classic(await import("nats.ws")),
};

async function modern(connect) {
  const core = await import("@nats-io/nats-core");
  const { jetstream, jetstreamManager } = await import("@nats-io/jetstream");
  const { Kvm } = await import("@nats-io/kv");
  const { Objm } = await import("@nats-io/obj");
  return {
    core,
    connect,
    jetstream: (nc) => jetstream(nc),
    manager: (nc) => jetstreamManager(nc),
    kv: (js, name) => new Kvm(js).create(name),
    objects: (js, name) => new Objm(js).create(name),
    headers: core.headers,
  };
}

function classic(library) {
  return {
    core: library,
    connect: library.connect,
    jetstream: (nc) => nc.jetstream(),
    manager: (nc) => nc.jetstreamManager(),
    kv: (js, name) => js.views.kv(name),
    objects: (js, name) => js.views.os(name),
    headers: library.headers,
  };
}

function options(core, asked) {
  const { url, ca, handshakeFirst, token, user, pass, seed, creds } = asked;
  const given = { servers: url, reconnect: false, timeout: 20000, name: "program" };
  if (token) given.token = token;
  if (user) Object.assign(given, { user, pass });
  if (seed) given.authenticator = core.nkeyAuthenticator(bytes.encode(seed));
  if (creds) given.authenticator = core.credsAuthenticator(bytes.encode(creds));
  if (ca && !url.startsWith("ws")) given.tls = { caFile: ca, handshakeFirst: Boolean(handshakeFirst) };
  return given;
}

async function collect(iterator, count) {
  const found = [];
  for await (const message of iterator) {
    found.push(message);
    if (found.length === count) break;
  }
  return found;
}

async function publishAndSubscribe(nc, client) {
  const sub = nc.subscribe("program.*", { max: 50 });
  await nc.flush();
  for (let i = 0; i < 50; i++) {
    const headers = client.headers();
    headers.set("number", `${i}`);
    nc.publish(`program.${i % 5}`, bytes.encode(`message ${i}`), { headers });
  }
  const got = await collect(sub, 50);
  return got.map((m, i) => text.decode(m.data) === `message ${i}` && m.headers.get("number") === `${i}`).every(Boolean);
}

async function queueGroups(nc) {
  const counts = [0, 0];
  const subs = [0, 1].map((i) => nc.subscribe("work", { queue: "group", callback: () => { counts[i]++; } }));
  await nc.flush();
  for (let i = 0; i < 200; i++) nc.publish("work", bytes.encode("x"));
  await nc.flush();
  await Promise.all(subs.map((sub) => sub.drain()));
  return { all: counts[0] + counts[1], shared: counts[0] > 0 && counts[1] > 0 };
}

async function requests(nc) {
  nc.subscribe("echo", { callback: (_, m) => m.respond(m.data) });
  const big = new Uint8Array(300_000).fill(7);
  const answers = await Promise.all([nc.request("echo", bytes.encode("hello")), nc.request("echo", big)]);
  let nobody = "";
  try {
    await nc.request("nobody.there", bytes.encode(""), { timeout: 10000 });
  } catch (error) {
    nobody = error.constructor.name === "NatsError" ? error.code : error.constructor.name;
  }
  const same = answers[1].data.length === big.length && answers[1].data.every((b) => b === 7);
  return { hello: text.decode(answers[0].data), big: same, nobody: ["503", "RequestError", "NoRespondersError"].includes(nobody) };
}

async function jetStream(nc, client) {
  const manager = await client.manager(nc);
  const js = client.jetstream(nc);
  await manager.streams.add({ name: "ORDERS", subjects: ["orders.>"], storage: "memory" });
  const acks = [];
  for (let i = 0; i < 20; i++) acks.push(await js.publish(`orders.${i % 3}`, bytes.encode(`${i}`), { msgID: `id${i}` }));
  const again = await js.publish("orders.0", bytes.encode("0"), { msgID: "id0" });
  await manager.consumers.add("ORDERS", { durable_name: "puller", ack_policy: "explicit" });
  const puller = await js.consumers.get("ORDERS", "puller");
  const pulled = await puller.fetch({ max_messages: 20, expires: 10000 });
  const numbers = [];
  for await (const m of pulled) {
    numbers.push(Number(text.decode(m.data)));
    await m.ackAck();
  }
  const ordered = await js.consumers.get("ORDERS");
  const stream = await ordered.consume();
  const inOrder = (await collect(stream, 20)).map((m) => m.seq);
  stream.stop?.();
  const info = await manager.consumers.info("ORDERS", "puller");
  const state = (await manager.streams.info("ORDERS")).state;
  return {
    sequences: acks.map((a) => a.seq).join() === numbers.map((n) => n + 1).join(),
    duplicate: again.duplicate,
    ordered: inOrder.join() === acks.map((a) => a.seq).join(),
    acked: info.ack_floor.stream_seq,
    messages: state.messages,
  };
}

async function keyValue(nc, client, own) {
  const js = client.jetstream(nc);
  const bucket = await client.kv(js, `settings-${own}`);
  const first = await bucket.put("a.b", bytes.encode("1"));
  await bucket.update("a.b", bytes.encode("2"), first);
  let conflict = false;
  try {
    await bucket.update("a.b", bytes.encode("3"), first);
  } catch {
    conflict = true;
  }
  const entry = await bucket.get("a.b");
  const keys = await collect(await bucket.keys(), 1);
  await bucket.delete("a.b");
  const gone = await bucket.get("a.b");
  await bucket.destroy();
  return { value: text.decode(entry.value), revision: entry.revision, conflict, keys, gone: gone?.operation };
}

async function objectStore(nc, client, own) {
  const js = client.jetstream(nc);
  const store = await client.objects(js, `files-${own}`);
  const content = new Uint8Array(400_000).map((_, i) => i % 251);
  const put = await store.putBlob({ name: "file" }, content);
  const back = await store.getBlob("file");
  await store.destroy();
  return { size: put.size, chunks: put.chunks, same: back.length === content.length && back.every((b, i) => b === content[i]) };
}

async function run(asked) {
  const client = await clients[asked.library]();
  // A folder that was just deleted may still be there when the next program asks for the same name.
  const own = asked.library.replace(".", "-");
  const result = {};
  try {
    const nc = await client.connect(options(client.core, asked));
    const steps = { publishAndSubscribe, queueGroups, requests, jetStream, keyValue, objectStore };
    for (const [name, step] of Object.entries(steps)) {
      if (asked.steps && !asked.steps.includes(name)) continue;
      result[name] = await step(nc, client, own);
    }
    // Last of all: behind the answer to the deletion of its only stream, nats-server removes the folder of the account, and
    // a bucket that is made at that moment fails.
    if (result.jetStream) await (await client.manager(nc)).streams.delete("ORDERS");
    await nc.drain();
  } catch (error) {
    result.error = `${error.code ?? ""} ${error.message}`.trim();
    if (asked.verbose) console.error(error);
  }
  return result;
}

for await (const line of readline.createInterface({ input: process.stdin })) {
  console.log(JSON.stringify(await run(JSON.parse(line))));
}
process.exit(0);
