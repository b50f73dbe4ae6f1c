// Vercel's ai with the providers @ai-sdk/openai (chat and responses) and @ai-sdk/anthropic.
import { createAnthropic } from "@ai-sdk/anthropic";
import { createOpenAI } from "@ai-sdk/openai";
import { APICallError, Output, embedMany, generateText, stepCountIs, streamText, tool as define } from "ai";
import { all, claude, openaiModel, picture, schema, sent, text, tool } from "./ask.mjs";

const tools = { [tool.name]: define({ description: tool.description, inputSchema: schema }) };
const pictured = { messages: [{ role: "user", content: [{ type: "text", text }, { type: "file", data: picture, mediaType: "image/png" }] }] };
const output = Output.object({ schema });

/** What a call gave, without the clocks and the raw exchange. */
const gist = ({ content, finishReason, rawFinishReason, usage, warnings, providerMetadata, text, reasoningText, toolCalls, steps }) =>
  ({ content, finishReason, rawFinishReason, usage, warnings, providerMetadata, text, reasoningText, toolCalls, steps: steps?.length });

/** The parts of a stream; one that is an error is thrown. */
async function parts(result) {
  const list = [];
  for await (const p of result.fullStream) {
    if (p.type === "error") throw p.error;
    if (p.type === "abort") throw new DOMException("aborted", "AbortError");
    list.push(structuredClone(p));
  }
  return list;
}

/** The adapter of one provider's models: pick makes one of its name. */
function adapter({ name, dialect, base, create, pick, kinds, more = {} }) {
  const connect = ({ url, key, retries = 2, headers, fetch }) => {
    const provider = create({ apiKey: key, baseURL: `${url}/v1`, headers, fetch });
    return { provider, pick: pick(provider), maxRetries: retries };
  };
  const call = (c, model, o = {}) => ({ model: c.pick(model), maxRetries: c.maxRetries, maxOutputTokens: 300, ...(o.messages ? {} : { prompt: text }), ...o });
  const generate = async (c, model, o) => gist(await generateText(call(c, model, o)));
  const stream = (c, model, o) => parts(streamText({ ...call(c, model, o), onError: () => {} }));
  return {
    name, family: "ai", dialect, base, kinds,
    read: (thrown) => {
      const err = thrown.lastError ?? thrown;
      let body;
      try { body = JSON.parse(err.responseBody); } catch { /* it has none */ }
      return { kind: APICallError.isInstance(err) ? "APICallError" : err.name, status: err.statusCode, error: body?.error, envelope: body, requestId: err.responseHeaders?.["x-request-id"] };
    },
    ask: async ({ model, prompt = text, cap = 100, signal, timeout, ...o }) =>
      (await generateText({ ...call(connect(o), model, { prompt, maxOutputTokens: cap }), abortSignal: signal, timeout })).text,
    stream: async function* ({ model, signal, ...o }) {
      for await (const p of streamText({ ...call(connect(o), model, { maxOutputTokens: 600 }), abortSignal: signal, onError: () => {} }).fullStream) {
        if (p.type === "error") throw p.error;
        if (p.type === "abort") throw new DOMException("aborted", "AbortError");
        if (p.type === "text-delta") yield p.text;
      }
    },
    features: {
      "text": (c, m) => generate(c, m()),
      "text, cut by its cap": (c, m) => generate(c, m(), { maxOutputTokens: 16 }),
      "text stream": (c, m) => stream(c, m("usage_in=50,cached=20")),
      "text stream, hostile framing": (c, m) => stream(c, m("", "framing=comments|crlf|multiline")),
      "tool call": (c, m) => generate(c, m(), { tools, toolChoice: "required" }),
      "tool calls, streamed": (c, m) => stream(c, m("calls=2"), { tools }),
      "tool call and its result": (c, m) => generate(c, m(), { stopWhen: stepCountIs(2), toolChoice: { type: "tool", toolName: tool.name },
        tools: { [tool.name]: define({ description: tool.description, inputSchema: schema, execute: () => "rain" }) } }),
      "structured output": async (c, m) => (await generateText(call(c, m(), { output }))).output,
      "structured output, streamed": async (c, m) => all(streamText(call(c, m(), { output })).partialOutputStream),
      "image": async (c, m) => sent((await generate(c, m("echo"), pictured)).text),
      ...more({ generate, stream }),
    },
    connect,
  };
}

const kinds = { ...Object.fromEntries([400, 401, 402, 403, 404, 413, 422, 429, 431, 500, 502, 503, 504, 529].map((s) => [s, "APICallError"])), cut: "StreamProviderError", abort: "AbortError", timeout: "TimeoutError" };

const openai = { dialect: "openai", base: openaiModel, create: createOpenAI };

export const aiChat = adapter({
  ...openai, name: "ai + @ai-sdk/openai (chat)", pick: (p) => p.chat, kinds,
  more: () => ({
    "embeddings": async (c, m) => {
      const { embeddings, usage, warnings } = await embedMany({ model: c.provider.embedding(m("", "", "text-embedding-3-small")), values: ["one", "two"], maxRetries: 0 });
      return { embeddings, usage, warnings };
    },
  }),
});

export const aiResponses = adapter({
  ...openai, name: "ai + @ai-sdk/openai (responses)", pick: (p) => p.responses, kinds,
  more: ({ generate, stream }) => ({
    "reasoning": (c, m) => generate(c, m("thinking=6"), { providerOptions: { openai: { reasoningSummary: "auto", forceReasoning: true } } }),
    "reasoning, streamed": (c, m) => stream(c, m("thinking=6"), { providerOptions: { openai: { reasoningSummary: "auto", forceReasoning: true } } }),
  }),
});

const thinking = { maxOutputTokens: 500, providerOptions: { anthropic: { thinking: { type: "enabled", budgetTokens: 1024 } } } };
const cached = { messages: [{ role: "user", content: [{ type: "text", text, providerOptions: { anthropic: { cacheControl: { type: "ephemeral" } } } }] }] };

export const aiAnthropic = adapter({
  name: "ai + @ai-sdk/anthropic", dialect: "anthropic", base: claude, create: createAnthropic, pick: (p) => p, kinds,
  more: ({ generate, stream }) => ({
    "thinking": (c, m) => generate(c, m("thinking=6"), thinking),
    "thinking, streamed": (c, m) => stream(c, m("thinking=6"), thinking),
    "cache fields": (c, m) => generate(c, m("usage_in=100,cached=60,cache_write=30"), cached),
    "cache fields as sent": async (c, m) => sent((await generate(c, m("echo"), cached)).text),
    "cache fields, streamed": (c, m) => stream(c, m("usage_in=100,cached=60,cache_write=30"), cached),
  }),
});
