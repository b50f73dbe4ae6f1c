// Every client against every row: what it gets through Weir is what it gets from the upstream itself, and each refusal of Weir's
// is the error its users know, tried again as often and as late as it should be. One line per check; exits 1 if one fails.
// ONLY=text runs the checks whose line has that text.
import { isDeepStrictEqual } from "node:util";
import { rename } from "node:fs/promises";
import { setTimeout as sleep } from "node:timers/promises";
import * as openaiNewest from "openai";
import * as newestFormats from "openai/helpers/zod";
import * as openaiOlder from "openai-6";
import * as olderFormats from "openai-6/helpers/zod";
import { admin, baseURL, expect, newKey, record } from "../weir.mjs";
import { aiAnthropic, aiChat, aiResponses } from "./ai.mjs";
import { anthropic } from "./anthropic.mjs";
import { all } from "./ask.mjs";
import { same, told, wait } from "./compare.mjs";
import { langchainChat, langchainResponses } from "./langchain.mjs";
import { openai } from "./openai.mjs";
import { rows } from "./rows.mjs";
import { shim } from "./shim.mjs";

const clients = [openai("openai", openaiNewest, newestFormats), openai("openai-6", openaiOlder, olderFormats), anthropic, aiChat, aiResponses, aiAnthropic, langchainChat, langchainResponses];
const { WEIR_UPSTREAM_URL: upstream, WEIR_ADMIN_TOKEN, WEIR_OUTAGE_URL, WEIR_OUTAGE_ADMIN_URL, WEIR_OUTAGE_DATA, WEIR_EXPIRED_KEYS, ONLY: only = "" } = process.env;
const price = { inputCnyPer1M: 1, outputCnyPer1M: 4 };
const patience = 25_000; // a client that is still waiting after so many ms is not waited for

let made = 0;
const unique = () => `${process.pid}-${++made}`;
const known = new Map();

/** Makes a model at the gateway, once. Its name's suffix is for the simulated upstream to read. */
function model(name, target = {}, priced = price) {
  const channels = [name.startsWith("claude") ? "sim-anthropic" : "sim-openai"];
  if (!known.has(name)) known.set(name, admin("PUT", `/admin/models/${encodeURIComponent(name)}`, { channels, ...target, ...priced }).then(() => name));
  return known.get(name);
}

/** How late this process's own timers came, and when: no client can be more punctual. */
const delays = [];
let beat = performance.now();
const pulse = setInterval(() => {
  const at = performance.now();
  if (at - beat > 30) delays.push({ at, by: at - beat - 20 });
  beat = at;
}, 20);
const late = (since) => Math.max(0, ...delays.filter((d) => d.at >= since).map((d) => d.by));

const results = new Map();

async function check(client, what, run) {
  const name = `${client.name}: ${what}`;
  if (!name.includes(only)) return;
  try {
    const detail = await run();
    results.set(name, detail);
    console.log(`ok ${name}${detail ? `: ${detail}` : ""}`);
  } catch (err) {
    process.exitCode = 1;
    results.set(name, "FAILED");
    console.log(`FAILED ${name}: ${err?.stack ?? err}`);
  }
}

const thrown = (promise) => promise.then((answer) => { throw new Error(`expected an error, got ${JSON.stringify(answer)}`); }, (err) => err);

/** A feature, straight to the upstream and through the gateway: the same answer, no attempt refused, and recorded as complete. */
async function feature(client, run, through) {
  const name = (knobs, base = client.base) => (knobs ? `${base}+${knobs}` : base);
  const wanted = new Set();
  const straight = await run(client.connect({ url: upstream, key: "sk-straight", retries: 0 }), (plain = "", hostile = plain, base) => {
    wanted.add(name(hostile, base));
    return name(plain, base);
  });
  await Promise.all([...wanted].map((m) => model(m)));
  const key = await newKey();
  const weir = await run(client.connect({ url: through.url, key: key.plaintext, retries: 0 }), (plain = "", hostile = plain, base) => name(hostile, base));
  const [a, b] = [same(JSON.parse(JSON.stringify(straight))), same(JSON.parse(JSON.stringify(weir)))];
  if (!isDeepStrictEqual(a, b)) throw new Error(`straight ${difference(a, b)}`);
  expect(JSON.stringify(a).length > 10, `an empty answer: ${JSON.stringify(straight)}`);
  const attempts = await through.of(key.plaintext);
  expect(attempts.length > 0 && attempts.every((t) => t.status === 200), JSON.stringify(attempts));
  const { status } = await record(key.id); // also where the client closed its end right after the last event
  expect(status === "finalized", `recorded as ${status}`);
}

/** The first place where two values differ. */
function difference(a, b, at = "$") {
  if (a && b && typeof a === "object" && typeof b === "object") {
    for (const k of new Set([...Object.keys(a), ...Object.keys(b)])) if (!isDeepStrictEqual(a[k], b[k])) return difference(a[k], b[k], `${at}.${k}`);
  }
  return `${at}: ${JSON.stringify(a)?.slice(0, 600)}\nthrough Weir: ${JSON.stringify(b)?.slice(0, 600)}`;
}

/** What a row's setup may use. */
function bench(client) {
  const straightTo = (key, knobs, more) => ({ url: baseURL, key: key.plaintext, retries: 0, model: knobs ? `${client.base}+${knobs}` : client.base, ...more });
  return {
    client, unique, upstream, admin, model, key: newKey, expired: WEIR_EXPIRED_KEYS.split(",")[clients.indexOf(client)], other: clients.find((c) => c.base !== client.base).base,
    /** Has a model's channel misbehave for one request, which fails for that. */
    fail: (key, name, how) => thrown(client.ask({ ...straightTo(key), model: name, headers: { "x-sim": how } })),
    async use(key, knobs) {
      if (knobs) await model(`${client.base}+${knobs}`);
      await client.ask(straightTo(key, knobs));
    },
    /** Keeps one request of the key open for so many ms. */
    async hold(key, ms) {
      await model(`${client.base}+pace=50ms,out=300`);
      const stop = new AbortController();
      const stream = client.stream(straightTo(key, "pace=50ms,out=300", { signal: stop.signal }));
      await stream.next();
      sleep(ms).then(() => stop.abort());
      stream.next().then(async () => { for await (const _ of stream); }).catch(() => {});
    },
  };
}

const by = (value, client) => (value?.openai ? value[client.dialect] : value);

/** One refusal: the error as the client raises it, what was on the wire, and how often and when it was tried. */
async function refusal(client, row, through) {
  const x = bench(client), since = performance.now();
  const call = { model: client.base, ...(row.outage ? { key: outageKeys.get(client) } : await row.setup(x)) };
  const options = { model: await call.model, url: through.url, key: call.key.plaintext, prompt: call.prompt, cap: call.cap, fetch: call.fetch, headers: call.headers };
  await call.before?.();
  const outcome = await Promise.race([client.ask(options).then((answer) => ({ answer }), (err) => ({ err })), sleep(row.patience ?? patience, {}, { ref: false })]);
  const attempts = await through.of(call.key.plaintext);
  expect(attempts.length > 0, "nothing reached the gateway");
  const gaps = judge(client, row, attempts, outcome, late(since));
  if (row.ends === "answer") expect(outcome.answer?.length > 0, `expected an answer in the end, got ${outcome.err}`);
  const err = await thrown(row.ends === "answer" || !outcome.err ? onceMore(client, row, options, x, call) : Promise.reject(outcome.err));
  await judgeError(client, row, err, call, options);
  return `${by(row.status, client)}, ${attempts.length} attempt${attempts.length > 1 ? "s" : ""}${gaps.map((g) => `, ${(g / 1000).toFixed(2)} s`).join("")}`;
}

/** A refusal without the proxy that counts: how the gateway ends the connection is the client's to see, too. */
async function nothingBetween(client, row) {
  const { key, ...call } = await row.setup(bench(client));
  const options = { model: client.base, ...call, url: baseURL, key: key.plaintext, retries: 0 };
  await judgeError(client, row, await thrown(client.ask(options)), call, options);
}

/** The refusal without patience, for its error. */
async function onceMore(client, row, options, x, call) {
  await sleep(row.ends === "answer" ? 1000 : 0);
  await call.before?.();
  return client.ask({ ...options, url: row.outage ? WEIR_OUTAGE_URL : baseURL, retries: 0 });
}

/** Attempts and gaps against the rule of the client's family. */
function judge(client, row, attempts, outcome, slack) {
  const gaps = [];
  for (const [i, a] of attempts.entries()) {
    const last = i === attempts.length - 1;
    if (a.status === 200 && last) break;
    expect(a.status === by(row.status, client), `attempt ${i + 1} was answered with ${a.status}`);
    judgeHead(client, row, a.headers);
    const span = wait(client.family, a, i);
    if (last) {
      const gaveUp = outcome.err !== undefined;
      expect(gaveUp ? !span || i === 2 : span?.[0] > patience, `${gaveUp ? "gave up" : "still waits"} after ${i + 1} attempts, told ${told(a.headers)} ms`);
      break;
    }
    expect(span, `tried again after ${a.status} ${JSON.stringify(a.headers)}`);
    const gap = attempts[i + 1].came - (a.ended ?? a.answered);
    gaps.push(gap);
    expect(gap >= span[0] - 5, `came back after ${gap} ms, told ${span}`);
    if (gap > span[1] * 1.2 + 50 + slack || gap < 50) throw new Untimely(`came back after ${gap} ms, told ${span}`);
  }
  return gaps;
}

/** A gap that a busy machine may have caused: such a row is run again. */
class Untimely extends Error {}

function judgeHead(client, { wire }, headers) {
  expect((headers["x-should-retry"] === "false") === Boolean(wire.final), `x-should-retry is ${headers["x-should-retry"]}`);
  for (const [name, span] of [["retry-after-ms", wire.ms], ["retry-after", wire.seconds]]) {
    if (span === null) continue;
    const n = headers[name];
    expect(span ? n >= span[0] && n <= span[1] : n === undefined, `${name} is ${n}, expected ${span ?? "none"}`);
  }
  expect(/^[0-9a-f]{16}$/.test(headers["x-request-id"]), `x-request-id is ${headers["x-request-id"]}`);
}

/** The error's class, its fields, and that the upstream's own error of that status is raised as the same class. */
async function judgeError(client, row, err, call, options) {
  const status = by(row.status, client), got = client.read(err);
  expect(got.kind === client.kinds[status] && got.status === status, `expected ${client.kinds[status]} ${status}, got ${got.kind} ${got.status}: ${err?.stack}`);
  const type = by(row.type, client);
  expect((row.vendor || got.error?.type === type) && got.error.message, `type ${type} is not in ${JSON.stringify(got.error)}`);
  if (row.code) expect(got.error.code === row.code, `code ${row.code} is not in ${JSON.stringify(got.error)}`);
  if (got.envelope && client.dialect === "anthropic") expect(got.envelope.type === "error" && got.envelope.request_id, JSON.stringify(got.envelope));
  expect(/^[0-9a-f]{16}$/.test(got.requestId), `the request's id is ${got.requestId}`);
  row.fields?.(got.error, { ...call, model: options.model });
  const vendor = client.read(await thrown(client.ask({ ...options, url: upstream, key: "sk-straight", fetch: undefined, headers: undefined, prompt: undefined, retries: 0, model: `${client.base}+status=${status}` })));
  expect(vendor.kind === got.kind && vendor.status === status, `the upstream's own ${status} is ${vendor.kind}`);
  if (row.vendor) expect(isDeepStrictEqual(same(vendor.error), same(got.error)), `${JSON.stringify(got.error)}, from the upstream itself ${JSON.stringify(vendor.error)}`);
}

/** Runs a row again, at most twice, when its gaps were off. */
async function timely(run) {
  for (let i = 0; ; i++) {
    try {
      return await run();
    } catch (err) {
      if (!(err instanceof Untimely) || i === 2) throw err;
    }
  }
}

/** Nothing of the key is held any more, at most a second after since. */
async function released(key, since) {
  for (;;) {
    const now = await admin("GET", `/admin/keys/${key.id}/usage-window`);
    const ms = performance.now() - since;
    if (now.tpm.heldTokens === 0 && now.monthly.heldMicroCny === 0) return ms;
    expect(ms < 1000 + late(since), `still held after ${ms} ms: ${JSON.stringify(now)}`);
    await sleep(10);
  }
}

async function aborted(client, through) {
  const key = await newKey({ tpmLimit: 100_000, monthlyQuotaCny: 10 });
  const slow = await model(`${client.base}+pace=20ms,out=500`);
  const stop = new AbortController();
  let pieces = 0, since;
  const run = async () => {
    for await (const piece of client.stream({ url: through.url, key: key.plaintext, model: slow, signal: stop.signal })) {
      if (piece?.length > 0 && ++pieces === 5) since = performance.now(), stop.abort();
    }
    return undefined;
  };
  const err = await run().catch((e) => e);
  expect(err === undefined || client.read(err).kind === client.kinds.abort, `ended with ${err?.stack}`);
  const ms = await released(key, since);
  const r = await record(key.id);
  expect(r.status === "partial" && r.outputTokens >= 1 && r.outputTokens < 100, `charged as ${JSON.stringify(r)}`);
  expect((await through.of(key.plaintext)).length === 1, "more than one attempt");
  return `nothing held after ${Math.ceil(ms)} ms`;
}

/** A client's own timeout: the error it raises, no more attempts than its retries, and nothing stays held. */
async function timedOut(client, through) {
  const key = await newKey({ tpmLimit: 100_000, monthlyQuotaCny: 10 });
  const slow = await model(`${client.base}+latency=1300ms`);
  const err = await thrown(client.ask({ url: through.url, key: key.plaintext, model: slow, timeout: 800, retries: 1 }));
  const since = performance.now();
  const { kind } = client.read(err);
  expect(kind === client.kinds.timeout, `ended with ${kind}: ${err?.stack}`);
  const ms = await released(key, since);
  const attempts = await through.of(key.plaintext);
  expect(attempts.length === (client.family === "ai" ? 1 : 2) && attempts.every((a) => a.status === undefined), JSON.stringify(attempts));
  return `${kind}, ${attempts.length} attempts, nothing held after ${Math.ceil(ms)} ms`;
}

/** An upstream that breaks off: what came is given, then an error is raised, and nobody tries again. */
async function cut(client, through) {
  const key = await newKey();
  const broken = await model(`${client.base}+pace=5ms,reset_after=12`);
  let pieces = 0;
  const run = async () => {
    for await (const piece of client.stream({ url: through.url, key: key.plaintext, model: broken })) if (piece?.length > 0) pieces++;
  };
  const err = await thrown(run());
  expect(err.constructor.name === client.kinds.cut && pieces >= 3, `${err.constructor.name} after ${pieces} pieces: ${err?.stack}`);
  expect((await through.of(key.plaintext)).length === 1, "more than one attempt");
  return err.constructor.name;
}

/** An upstream that takes its time: the gateway's signs of life in between are no events to the client. */
async function alive(client, through) {
  const key = await newKey();
  const slow = await model(`${client.base}+out=3,framing=comments,silent=700ms,pace=400ms`);
  const straight = await all(client.stream({ url: upstream, key: "sk-straight", model: `${client.base}+out=3` }));
  const weir = await all(client.stream({ url: through.url, key: key.plaintext, model: slow }));
  expect(straight.length >= 3 && isDeepStrictEqual(straight, weir), `straight ${JSON.stringify(straight)}, through Weir ${JSON.stringify(weir)}`);
  const [attempt, ...more] = await through.of(key.plaintext);
  expect(attempt.signs >= 3 && more.length === 0, `${attempt.signs} signs of life, and ${more.length} more attempts`);
  return `${attempt.signs} signs`;
}

/** The models that the gateway has, in the shape of the upstream's. */
async function models(client, through) {
  const key = await newKey({ models: [client.base] });
  const [weir, straight] = [await client.models({ url: through.url, key: key.plaintext }), await client.models({ url: upstream, key: "sk-straight" })];
  expect(weir.list.length === 1 && weir.list[0].id === client.base && weir.one.id === client.base, JSON.stringify(weir));
  const shape = (m) => Object.entries(m).map(([k, v]) => `${k} ${typeof v}`).filter((k) => !k.startsWith("_request_id")).sort().join();
  for (const k of shape(straight.one).split(",")) expect(shape(weir.one).includes(k), `${k} is not in ${shape(weir.one)}`);
}

/** Keys of the gateway whose disk goes away: made before it does. */
const outageKeys = new Map();
async function breakLedger() {
  const headers = { authorization: `Bearer ${WEIR_ADMIN_TOKEN}`, "content-type": "application/json" };
  const ask = async (method, path, body) => {
    const answer = await fetch(WEIR_OUTAGE_ADMIN_URL + path, { method, headers, body: JSON.stringify(body) });
    expect(answer.ok, `${method} ${path}: ${answer.status}`);
    return answer.json();
  };
  const { id: orgId } = await ask("POST", "/admin/orgs", { name: "Outage" });
  const { id: userId } = await ask("POST", "/admin/users", { orgId, name: "node", balanceCny: 100 });
  for (const client of clients) {
    await ask("PUT", `/admin/models/${client.base}`, price);
    outageKeys.set(client, await ask("POST", "/admin/keys", { userId, name: client.name }));
  }
  await rename(WEIR_OUTAGE_DATA, `${WEIR_OUTAGE_DATA}.away`);
}

/** What does not wait for anything, one after the other. */
async function prompt(client, main) {
  for (const [name, ask] of Object.entries(client.features)) await check(client, name, () => feature(client, ask, main));
  if (client.models) await check(client, "models", () => models(client, main));
  for (const row of rows.filter((r) => r.direct)) await check(client, `${row.name}, nothing between`, () => nothingBetween(client, row));
  await check(client, "signs of life in a stream", () => alive(client, main));
  await check(client, "the upstream breaks off", () => cut(client, main));
  await check(client, "abort in mid-stream", () => aborted(client, main));
  await check(client, "the client's own timeout", () => timedOut(client, main));
}

/** The refusals: all at the same time, for most of it is waiting, but not begun at once, so that gaps can be measured. */
async function refusals(main, outage) {
  const started = [];
  for (const row of rows.toReversed()) {
    for (const client of clients) {
      started.push(check(client, row.name, () => timely(() => refusal(client, row, row.outage ? outage : main))));
      await sleep(`${client.name}: ${row.name}`.includes(only) ? 15 : 0);
    }
  }
  await Promise.all(started);
}

/** The refusals as a table: attempts, and the gaps between them in seconds. */
function table() {
  const short = (result) => (result ?? "").replace(/^\d+, /, "").replace(/ attempts?/, "").replace(/, ([\d.]+) s/g, " · $1");
  console.log(`\n| attempts · gaps in s | ${clients.map((c) => c.name).join(" | ")} |\n|---|${"---|".repeat(clients.length)}`);
  for (const { name } of rows) console.log(`| ${name} | ${clients.map((c) => short(results.get(`${c.name}: ${name}`))).join(" | ")} |`);
}

await Promise.all(clients.map((c) => model(c.base)));
await breakLedger();
const main = await shim(baseURL), outage = await shim(WEIR_OUTAGE_URL);
try {
  await Promise.all(clients.map((client) => prompt(client, main)));
  await refusals(main, outage);
  if (!only) table();
} finally {
  await rename(`${WEIR_OUTAGE_DATA}.away`, WEIR_OUTAGE_DATA);
  clearInterval(pulse);
  await main.stop();
  await outage.stop();
}
process.exit();
