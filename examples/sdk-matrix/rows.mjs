// The refusals and failures that a client must understand, one row for each: how to bring it about, and what is promised.
// setup gives the call; status, type and code are by dialect where they differ; wire is what the head of each refused answer must
// say: final (x-should-retry: false), ms (retry-after-ms) and seconds (Retry-After), as [least, most].
import { expect } from "../weir.mjs";

const both = (openai, anthropic) => ({ openai, anthropic });
const limited = both("rate_limit_exceeded", "rate_limit_error");
const invalid = "invalid_request_error";

/** A key's own limit refused: which, by how much. */
const limits = (kind, limit) => (e, { key }) => {
  expect(e.dimension === "key" && e.kind === kind && e.limit_key === `key:${key.id}` && e.limit === limit, JSON.stringify(e));
  expect(e.current >= 0 && e.requested > 0 && e.retry_after_ms > 0 && e.message.startsWith(`${kind} limit exceeded on dimension=key`), JSON.stringify(e));
};

const money = (...names) => (e) => {
  for (const name of names) expect(Number.isInteger(e[`${name}_micro_cny`]), `${name}_micro_cny in ${JSON.stringify(e)}`);
};

/** A fetch that changes the body's text on its way. */
const changed = (change) => (url, init) => fetch(url, { ...init, body: change(init.body) });

/** A model on a channel of its own, so that what its channel suffers is nobody else's. */
async function alone(x, knobs, baseUrl = x.upstream) {
  const name = `matrix-${x.unique()}`;
  await x.admin("POST", "/admin/channels", { name, provider: x.client.dialect, baseUrl });
  return x.model(name, { target: `${x.client.base}+${knobs}`, channels: [name] });
}

export const rows = [
  {
    name: "QPS over", status: 429, type: limited, code: "rate_limit_exceeded", fields: limits("qps", 1), wire: { ms: [50, 1000], seconds: [1, 1] }, ends: "answer",
    async setup(x) {
      const key = await x.key({ qpsLimit: 1 });
      return { key, before: () => x.use(key) };
    },
  },
  {
    name: "TPM over", status: 429, type: limited, code: "rate_limit_exceeded", fields: limits("tpm", 600), wire: { ms: [500, 10_000], seconds: [1, 10] }, ends: "answer",
    async setup(x) {
      const key = await x.key({ tpmLimit: 600 });
      return { key, cap: 16, before: () => x.use(key, "usage_in=5,usage_out=580") };
    },
  },
  {
    name: "concurrency over", status: 429, type: limited, code: "rate_limit_exceeded", fields: limits("concurrency", 1), wire: { ms: [1000, 1000], seconds: [1, 1] }, ends: "answer",
    async setup(x) {
      const key = await x.key({ concurrencyLimit: 1 });
      return { key, before: () => x.hold(key, 700) };
    },
  },
  {
    name: "TPM over, wait over 60 s", status: 429, type: limited, code: "rate_limit_exceeded", fields: limits("tpm", 500), wire: { final: true, seconds: [61, 240] },
    async setup(x) {
      const key = await x.key({ name: "burst", tpmLimit: 100 });
      return { key, cap: 200, before: () => x.use(key, "usage_in=5,usage_out=480") };
    },
  },
  {
    name: "request larger than the limit", status: 429, type: limited, code: "request_exceeds_limit", fields: limits("tpm", 50), wire: { final: true, seconds: [60, 60] }, patience: 12_000,
    setup: async (x) => ({ key: await x.key({ tpmLimit: 50 }), cap: 64 }),
  },
  {
    name: "balance short", status: 402, type: both("insufficient_quota", "billing_error"), code: "insufficient_quota", fields: money("required", "available"), wire: { final: true },
    setup: async (x) => ({ key: await x.key({}, 0) }),
  },
  {
    name: "monthly quota", status: 402, type: both("monthly_quota_exceeded", "billing_error"), code: "monthly_quota_exceeded", wire: { final: true },
    fields: (e) => (money("used", "limit", "reserving")(e), expect(Date.parse(e.resets_at) > Date.now(), e.resets_at)),
    setup: async (x) => ({ key: await x.key({ monthlyQuotaCny: 0.00001 }) }),
  },
  {
    name: "model without a price", status: 400, type: both("price_not_configured", invalid), code: "price_not_configured", wire: {},
    fields: (e, { model }) => expect(e.model === model, JSON.stringify(e)),
    setup: async (x) => ({ key: await x.key(), model: await x.model(`${x.client.base}-unpriced-${x.unique()}`, {}, {}) }),
  },
  {
    name: "unknown model", status: 404, type: both("model_not_found", "not_found_error"), code: "model_not_found", wire: {},
    setup: async (x) => ({ key: await x.key(), model: "no-such-model" }),
  },
  {
    name: "model not allowed", status: 404, type: both("model_not_found", "not_found_error"), code: "model_not_found", wire: {},
    setup: async (x) => ({ key: await x.key({ models: [x.other] }) }),
  },
  {
    name: "two model members", status: 400, type: invalid, code: invalid, wire: {}, fields: (e) => expect(e.param === "model", JSON.stringify(e)),
    setup: async (x) => ({ key: await x.key(), fetch: changed((body) => body.replace(/}$/, `,"model":"gpt-4o"}`)) }),
  },
  {
    name: "a model member in another spelling", status: 400, type: invalid, code: invalid, wire: {}, fields: (e) => expect(e.param === "model", JSON.stringify(e)),
    setup: async (x) => ({ key: await x.key(), fetch: changed((body) => body.replace(/}$/, `,"Model":"gpt-4o"}`)) }),
  },
  {
    name: "a model that is no string", status: 400, type: invalid, code: invalid, wire: {}, fields: (e) => expect(e.param === "model", JSON.stringify(e)),
    setup: async (x) => ({ key: await x.key(), fetch: changed((body) => body.replace(/"model":"[^"]*"/, `"model":7`)) }),
  },
  {
    name: "not JSON", status: 400, type: invalid, code: invalid, wire: {},
    setup: async (x) => ({ key: await x.key(), fetch: changed((body) => body.slice(0, -1)) }),
  },
  {
    name: "body too large", status: 413, type: both(invalid, "request_too_large"), code: "request_too_large", wire: {},
    fields: (e) => expect(e.limit_bytes === 2097152, JSON.stringify(e)), direct: true,
    setup: async (x) => ({ key: await x.key(), prompt: "wide ".repeat(600_000) }),
  },
  {
    name: "headers too large", status: 431, type: invalid, code: "headers_too_large", wire: {}, fields: (e) => expect(e.limit_bytes === 16384, JSON.stringify(e)), direct: true,
    setup: async (x) => ({ key: await x.key(), headers: { "x-filler": "x".repeat(20_000) } }),
  },
  {
    name: "unknown key", status: 401, type: "authentication_error", code: "authentication_error", wire: {},
    setup: async (x) => ({ key: { plaintext: `sk-weir-unknown0-${x.unique().padEnd(43, "0")}` } }),
  },
  {
    name: "revoked key", status: 401, type: "authentication_error", code: "authentication_error", wire: {},
    async setup(x) {
      const key = await x.key();
      await x.admin("DELETE", `/admin/keys/${key.id}`);
      return { key };
    },
  },
  {
    name: "expired key", status: 401, type: "authentication_error", code: "authentication_error", wire: {}, fields: (e) => expect(e.message.startsWith("expired API key"), e.message),
    setup: async (x) => ({ key: { plaintext: x.expired } }),
  },
  {
    name: "a policy's no", status: 403, type: both("policy_denied", "permission_error"), code: "policy_denied", wire: { final: true },
    fields: (e) => expect(e.policy === "rules" && e.version && e.message === "this key is closed", JSON.stringify(e)),
    setup: async (x) => ({ key: await x.key({ name: "closed" }) }),
  },
  {
    name: "a policy's no for a second", status: 429, type: both("policy_denied", "rate_limit_error"), code: "policy_denied", wire: { seconds: [1, 1] },
    setup: async (x) => ({ key: await x.key({ name: "later" }) }),
  },
  ...[400, 404, 413, 422].map((status) => ({
    name: `the upstream's ${status}`, status, wire: {}, vendor: true,
    setup: async (x) => ({ key: await x.key(), model: await x.model(`${x.client.base}+status=${status}`) }),
  })),
  {
    name: "ledger down", status: both(503, 529), type: both("server_error", "overloaded_error"), wire: { ms: [500, 2000], seconds: [1, 2] }, outage: true,
    setup: async (x) => ({ key: await x.key() }),
  },
  {
    name: "no channel answers", status: 502, type: both("upstream_unavailable", "api_error"), code: "upstream_unavailable", wire: { ms: null, seconds: null },
    fields: (e) => expect(Array.isArray(e.attempted_channels), JSON.stringify(e)),
    setup: async (x) => ({ key: await x.key(), model: await alone(x, "", "http://127.0.0.1:1") }),
  },
  {
    name: "the upstream's 500", status: 502, type: both("upstream_unavailable", "api_error"), code: "upstream_unavailable", wire: { ms: null, seconds: null },
    fields: (e) => expect(Array.isArray(e.attempted_channels), JSON.stringify(e)),
    setup: async (x) => ({ key: await x.key(), model: await alone(x, "status=500") }),
  },
  {
    name: "upstream too slow", status: 504, type: both("upstream_timeout", "api_error"), code: "upstream_timeout", wire: {},
    setup: async (x) => ({ key: await x.key(), model: await alone(x, "latency=20s") }),
  },
  {
    name: "the upstream's 429", status: 429, type: limited, code: "upstream_rate_limited", wire: { ms: [1, 60_000], seconds: [1, 60] },
    fields: (e) => expect(e.retry_after_ms > 0, JSON.stringify(e)),
    setup: async (x) => ({ key: await x.key(), model: await alone(x, "status=429,retry_after=2") }),
  },
  {
    name: "the upstream's 429, once", status: 429, type: limited, code: "upstream_rate_limited", wire: { ms: [1, 2000], seconds: [1, 2] }, ends: "answer",
    async setup(x) {
      const key = await x.key(), model = await alone(x, "out=5");
      return { key, model, before: () => x.fail(key, model, "status=429,retry_after=2") };
    },
  },
];
