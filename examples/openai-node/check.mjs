// The stock OpenAI SDK through Weir: every call an application makes, and every refusal it must understand.
//
//   go run ./cmd/weir demo        prints the four variables
//   npm ci && node check.mjs
import OpenAI, { APIUserAbortError, APIError, NotFoundError, RateLimitError } from "openai";
import { admin, baseURL, check, expect, key, newKey, record, recorder, refused, simulated } from "../weir.mjs";

const connect = (apiKey, more = {}) => new OpenAI({ apiKey, baseURL: `${baseURL}/v1`, ...more });
const model = "gpt-4o-mini";
const messages = [{ role: "user", content: "Say something about water." }];
const { plaintext: own } = await newKey();
const openai = connect(own);

await check("models", async () => {
  const ids = [];
  for await (const m of openai.models.list()) ids.push(m.id);
  expect(ids.includes(model), `${model} is not in ${ids}`);
  expect((await openai.models.retrieve(model)).id === model, "retrieve gave another model");
});

let said = "";
await check("chat", async () => {
  const { data, request_id } = await connect(key).chat.completions.create({ model, messages }).withResponse();
  said = data.choices[0].message.content;
  expect(said.length > 20 && data.choices[0].finish_reason === "stop", JSON.stringify(data));
  expect(data.usage.total_tokens === data.usage.prompt_tokens + data.usage.completion_tokens, JSON.stringify(data.usage));
  expect(request_id, "no x-request-id");
});

await check("chat with a cap", async () => {
  const { choices, usage } = await openai.chat.completions.create({ model, messages, max_completion_tokens: 3, n: 2 });
  expect(choices.length === 2 && choices[1].finish_reason === "length" && usage.completion_tokens === 6, JSON.stringify({ choices, usage }));
});

await check("stream", async () => {
  let text = "", usage = null;
  for await (const chunk of await openai.chat.completions.create({ model, messages, stream: true, stream_options: { include_usage: true } })) {
    text += chunk.choices[0]?.delta.content ?? "";
    usage = chunk.usage ?? usage;
  }
  expect(text === said, `streamed ${JSON.stringify(text)}, buffered ${JSON.stringify(said)}`);
  expect(usage?.completion_tokens > 0, "no usage though it was asked for");
});

await check("stream without usage", async () => {
  let chunks = 0;
  for await (const chunk of await openai.chat.completions.create({ model, messages, stream: true })) {
    expect(chunk.choices.length === 1 && !chunk.usage, `nobody asked for ${JSON.stringify(chunk)}`);
    chunks++;
  }
  expect(chunks > 10, `${chunks} chunks`);
});

await check("responses", async () => {
  const whole = await openai.responses.create({ model, input: "Say something about water." });
  expect(whole.status === "completed" && whole.output_text === said && whole.usage.output_tokens > 0, JSON.stringify(whole));
  let text = "", last;
  for await (const event of await openai.responses.create({ model, input: "Say something about water.", stream: true })) {
    if (event.type === "response.output_text.delta") text += event.delta;
    last = event;
  }
  expect(last.type === "response.completed" && text === said, `${last.type}: ${text}`);
});

await check("embeddings", async () => {
  const { data, usage } = await openai.embeddings.create({ model: "text-embedding-3-small", input: ["one", "two"], dimensions: 16 });
  expect(data.length === 2 && data[1].embedding.length === 16 && usage.total_tokens > 0, JSON.stringify({ data, usage }));
  const length = data[0].embedding.reduce((sum, x) => sum + x * x, 0);
  expect(Math.abs(length - 1) < 1e-3, `a vector of length ${length}`);
});

await check("abort", async () => {
  const slow = await simulated("openai-node-slow", `${model}+pace=20ms,out=500`);
  const k = await newKey({ tpmLimit: 100_000 });
  const stop = new AbortController();
  const run = async () => {
    let chunks = 0;
    for await (const _ of await connect(k.plaintext).chat.completions.create({ model: slow, messages, stream: true }, { signal: stop.signal })) {
      if (++chunks === 5) stop.abort();
    }
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
  await Promise.all([client.chat.completions.create({ model, messages }), client.chat.completions.create({ model, messages })]);
  expect(seen.map((a) => a.status).sort().join() === "200,200,429", `statuses ${seen.map((a) => a.status)}`);
  const told = seen.find((a) => a.status === 429), again = seen.find((a) => a.sent > told.came);
  expect(told.waitMs > 0 && told.waitMs <= 1000 && again.sent - told.came >= told.waitMs - 1, `told ${told.waitMs} ms, waited ${again.sent - told.came} ms`);
});

await check("429 says which limit", async () => {
  const k = await newKey({ qpsLimit: 1 });
  const client = connect(k.plaintext, { maxRetries: 0 });
  const err = await refused(Promise.all([client.chat.completions.create({ model, messages }), client.chat.completions.create({ model, messages })]), RateLimitError);
  const e = err.error;
  expect(e.dimension === "key" && e.kind === "qps" && e.limit_key === `key:${k.id}` && e.limit === 1 && e.current === 1, JSON.stringify(e));
  expect(e.retry_after_ms > 0 && Number(err.headers.get("retry-after")) === Math.ceil(e.retry_after_ms / 1000), JSON.stringify(e));
});

await check("429 that can never fit is not retried", async () => {
  const k = await newKey({ tpmLimit: 50 });
  const { seen, fetch } = recorder();
  const client = connect(k.plaintext, { fetch, maxRetries: 2 });
  const err = await refused(client.chat.completions.create({ model, messages, max_tokens: 64 }), RateLimitError);
  expect(err.code === "request_exceeds_limit" && seen.length === 1, `${err.code} after ${seen.length} attempts`);
});

await check("402 is not retried", async () => {
  const poor = await newKey({}, 0), spent = await newKey({ monthlyQuotaCny: 0.00001 });
  for (const [k, code] of [[poor, "insufficient_quota"], [spent, "monthly_quota_exceeded"]]) {
    const { seen, fetch } = recorder();
    const err = await refused(connect(k.plaintext, { fetch, maxRetries: 2 }).chat.completions.create({ model, messages }), APIError);
    expect(err.status === 402 && (err.code === code || err.type === code) && seen.length === 1, `${err.status} ${err.code} ${err.type} after ${seen.length} attempts`);
  }
});

await check("unknown model", async () => {
  const err = await refused(openai.chat.completions.create({ model: "gpt-4o-minni", messages }), NotFoundError);
  expect(err.code === "model_not_found", JSON.stringify(err.error));
});
