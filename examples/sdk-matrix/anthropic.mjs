// The stock Anthropic SDK: what it can ask, and how its errors look.
import Anthropic from "@anthropic-ai/sdk";
import { zodOutputFormat } from "@anthropic-ai/sdk/helpers/zod";
import { z } from "zod";
import { all, claude as base, given, picture, schema, sent, text, tool } from "./ask.mjs";

const messages = [{ role: "user", content: text }];
const ask = { max_tokens: 300, messages };
const tools = [{ ...tool, input_schema: z.toJSONSchema(schema) }];
const thinking = { thinking: { type: "enabled", budget_tokens: 1024 }, max_tokens: 2000, messages };
const ephemeral = { cache_control: { type: "ephemeral" } };
const cached = { ...ask, system: [{ type: "text", text: "You answer in one sentence, always.", ...ephemeral }], messages: [{ role: "user", content: [{ type: "text", text, ...ephemeral }] }] };
const pictured = { ...ask, messages: [{ role: "user", content: [{ type: "image", source: { type: "base64", media_type: "image/png", data: picture } }, { type: "text", text }] }] };

const connect = ({ url, key, retries = 2, headers, fetch }) => new Anthropic({ apiKey: key, authToken: null, baseURL: url, maxRetries: retries, defaultHeaders: headers, fetch });

export const anthropic = {
  name: "@anthropic-ai/sdk", family: "sdk", dialect: "anthropic", base,
  kinds: {
    400: "BadRequestError", 401: "AuthenticationError", 402: "PaymentRequiredError", 403: "PermissionDeniedError", 404: "NotFoundError", 413: "ContentTooLargeError", 422: "UnprocessableEntityError",
    429: "RateLimitError", 431: "RequestHeaderFieldsTooLargeError", 500: "InternalServerError", 502: "InternalServerError", 504: "GatewayTimeoutError", 529: "OverloadedError",
    cut: "APIError", abort: "APIUserAbortError", timeout: "APIConnectionTimeoutError",
  },
  read: (err) => ({ kind: err.constructor.name, status: err.status, error: err.error?.error, envelope: err.error, requestId: err.requestID }),
  ask: async ({ model, prompt = text, cap = 100, signal, timeout, ...o }) =>
    (await connect(o).messages.create({ model, max_tokens: cap, messages: [{ role: "user", content: prompt }] }, given({ signal, timeout }))).content[0].text,
  stream: async function* ({ model, signal, ...o }) {
    for await (const e of await connect(o).messages.create({ model, ...ask, max_tokens: 600, stream: true }, { signal })) yield e.delta?.text ?? "";
  },
  models: async (o) => {
    const list = await all(connect(o).models.list());
    return { list, one: await connect(o).models.retrieve(list[0].id) };
  },
  features: {
    "message": (c, m) => c.messages.create({ model: m(), ...ask }),
    "message, cut by its cap": (c, m) => c.messages.create({ model: m(), ...ask, max_tokens: 3 }),
    "message stream": async (c, m) => all(await c.messages.create({ model: m(), ...ask, stream: true })),
    "message stream, hostile framing": async (c, m) => all(await c.messages.create({ model: m("", "framing=comments|crlf|multiline"), ...ask, stream: true })),
    "message stream, byte by byte": async (c, m) => all(await c.messages.create({ model: m("out=8", "out=8,framing=bytes|nospace"), ...ask, stream: true })),
    "stream gathered": (c, m) => c.messages.stream({ model: m("usage_in=50,cached=20"), ...ask }).finalMessage(),
    "tool call": (c, m) => c.messages.create({ model: m(), ...ask, tools, tool_choice: { type: "any" } }),
    "tool calls, streamed": async (c, m) => all(await c.messages.create({ model: m("calls=2"), ...ask, tools, stream: true })),
    "tool calls, streamed and gathered": (c, m) => c.messages.stream({ model: m("calls=2"), ...ask, tools }).finalMessage(),
    "structured output": (c, m) => c.messages.parse({ model: m(), ...ask, output_config: { format: zodOutputFormat(schema) } }),
    "image": async (c, m) => sent((await c.messages.create({ model: m("echo"), ...pictured })).content[0].text),
    "thinking": (c, m) => c.messages.create({ model: m("thinking=6"), ...thinking }),
    "thinking, streamed": async (c, m) => all(await c.messages.create({ model: m("thinking=6"), ...thinking, stream: true })),
    "thinking before a tool call, gathered": (c, m) => c.messages.stream({ model: m("thinking=6,calls=1"), ...thinking, tools }).finalMessage(),
    "cache fields": (c, m) => c.messages.create({ model: m("usage_in=100,cached=60,cache_write=30"), ...cached }),
    "cache fields as sent": async (c, m) => sent((await c.messages.create({ model: m("echo"), ...cached })).content[0].text),
    "cache fields, streamed": async (c, m) => all(await c.messages.create({ model: m("usage_in=100,cached=60,cache_write=30"), ...cached, stream: true })),
    "count_tokens": (c, m) => c.messages.countTokens({ model: m(), messages, tools, system: "You answer in one sentence, always." }),
  },
  connect,
};
