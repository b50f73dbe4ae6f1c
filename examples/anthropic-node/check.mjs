// The stock Anthropic SDK through Weir: every call an application makes, and every refusal it must understand.
//
//   go run ./cmd/weir demo        prints the four variables
//   npm ci && node check.mjs
import Anthropic, { APIError, APIUserAbortError, NotFoundError, RateLimitError } from "@anthropic-ai/sdk";
import { admin, baseURL, check, expect, key, newKey, record, recorder, refused, simulated } from "../weir.mjs";

const connect = (apiKey, more = {}) => new Anthropic({ apiKey, authToken: null, baseURL, ...more });
const { plaintext: own } = await newKey();
const anthropic = connect(own);
const model = "claude-haiku-4-5";
const messages = [{ role: "user", content: "Say something about water." }];
const ask = { model, messages, max_tokens: 200 };

await check("models", async () => {
  const ids = [];
  for await (const m of anthropic.models.list()) ids.push(m.id);
  expect(ids.includes(model), `${model} is not in ${ids}`);
});

let said = "";
await check("messages", async () => {
  const { data, request_id } = await connect(key).messages.create(ask).withResponse();
  said = data.content[0].text;
  expect(said.length > 20 && data.stop_reason === "end_turn", JSON.stringify(data));
  expect(data.usage.input_tokens > 0 && data.usage.output_tokens > 0, JSON.stringify(data.usage));
  expect(request_id, "no request id");
});

await check("messages with a bearer token", async () => {
  const client = new Anthropic({ apiKey: null, authToken: own, baseURL });
  expect((await client.messages.create({ ...ask, max_tokens: 3 })).stop_reason === "max_tokens", "the cap was not met");
});

await check("stream", async () => {
  const stream = anthropic.messages.stream(ask);
  let text = "";
  stream.on("text", (delta) => (text += delta));
  const final = await stream.finalMessage();
  expect(text === said && final.content[0].text === said, `streamed ${JSON.stringify(text)}, buffered ${JSON.stringify(said)}`);
  expect(final.stop_reason === "end_turn" && final.usage.input_tokens > 0 && final.usage.output_tokens > 1, JSON.stringify(final));
});

await check("count_tokens", async () => {
  const { input_tokens } = await anthropic.messages.countTokens({ model, messages });
  const { input_tokens: more } = await anthropic.messages.countTokens({ model, messages, system: "You answer in one sentence, always." });
  expect(input_tokens > 0 && more > input_tokens, `${input_tokens}, ${more} with a system prompt`);
});

await check("cached tokens", async () => {
  const cached = await simulated("anthropic-node-cached", `${model}+usage_in=100,cached=60,cache_write=30`);
  const k = await newKey();
  const { usage } = await connect(k.plaintext).messages.create({ ...ask, model: cached });
  expect(usage.input_tokens === 10 && usage.cache_read_input_tokens === 60 && usage.cache_creation_input_tokens === 30, JSON.stringify(usage));
  const r = await record(k.id);
  expect(r.inputTokens === 100 && r.cachedInputTokens === 60 && r.cacheWriteTokens === 30, `charged as ${JSON.stringify(r)}`);
});

await check("abort", async () => {
  const slow = await simulated("anthropic-node-slow", `${model}+pace=20ms,out=500`);
  const k = await newKey({ tpmLimit: 100_000 });
  const run = async () => {
    const stream = await connect(k.plaintext).messages.create({ ...ask, model: slow, max_tokens: 500, stream: true });
    let events = 0;
    for await (const _ of stream) if (++events === 6) stream.controller.abort();
    throw new APIUserAbortError(); // some versions end the loop quietly
  };
  await refused(run(), APIUserAbortError);
  const r = await record(k.id);
  expect(r.status === "partial" && r.outputTokens >= 1 && r.outputTokens < 100, `charged as ${JSON.stringify(r)}`);
  const now = await admin("GET", `/admin/keys/${k.id}/usage-window`);
  expect(now.tpm.heldTokens === 0 && now.monthly.heldMicroCny === 0, `still held: ${JSON.stringify(now)}`);
});

await check("429 is waited out by the SDK", async () => {
  const k = await newKey();
  await admin("POST", `/admin/keys/${k.id}/limits`, { qpsLimit: 1 });
  const { seen, fetch } = recorder();
  const client = connect(k.plaintext, { fetch, maxRetries: 2 });
  await Promise.all([client.messages.create(ask), client.messages.create(ask)]);
  expect(seen.map((a) => a.status).sort().join() === "200,200,429", `statuses ${seen.map((a) => a.status)}`);
  const told = seen.find((a) => a.status === 429), again = seen.find((a) => a.sent > told.came);
  expect(told.waitMs > 0 && told.waitMs <= 1000 && again.sent - told.came >= told.waitMs - 1, `told ${told.waitMs} ms, waited ${again.sent - told.came} ms`);
});

await check("429 says which limit", async () => {
  const k = await newKey({ qpsLimit: 1 });
  const client = connect(k.plaintext, { maxRetries: 0 });
  const err = await refused(Promise.all([client.messages.create(ask), client.messages.create(ask)]), RateLimitError);
  const e = err.error.error;
  expect(err.error.type === "error" && e.type === "rate_limit_error", JSON.stringify(err.error));
  expect(e.dimension === "key" && e.kind === "qps" && e.limit_key === `key:${k.id}` && e.limit === 1 && e.current === 1, JSON.stringify(e));
  expect(e.retry_after_ms > 0 && Number(err.headers.get("retry-after")) === Math.ceil(e.retry_after_ms / 1000), JSON.stringify(e));
});

await check("402 is not retried", async () => {
  const poor = await newKey({}, 0), spent = await newKey({ monthlyQuotaCny: 0.00001 });
  for (const [k, code] of [[poor, "insufficient_quota"], [spent, "monthly_quota_exceeded"]]) {
    const { seen, fetch } = recorder();
    const err = await refused(connect(k.plaintext, { fetch, maxRetries: 2 }).messages.create(ask), APIError);
    const e = err.error.error;
    expect(err.status === 402 && e.type === "billing_error" && e.code === code && seen.length === 1, `${err.status} ${JSON.stringify(e)} after ${seen.length} attempts`);
  }
});

await check("unknown model", async () => {
  const err = await refused(anthropic.messages.create({ ...ask, model: "claude-sonet" }), NotFoundError);
  expect(err.error.error.type === "not_found_error" && err.error.error.code === "model_not_found", JSON.stringify(err.error));
});
