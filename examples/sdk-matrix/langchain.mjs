// @langchain/openai on its chat and its responses route. It brings retries of its own instead of the SDK's below it.
import { HumanMessage } from "@langchain/core/messages";
import { ChatOpenAI, OpenAIEmbeddings } from "@langchain/openai";
import { all, given, openaiModel as base, picture, schema, sent, text, tool } from "./ask.mjs";

const pictured = [new HumanMessage({ content: [{ type: "text", text }, { type: "image_url", image_url: { url: `data:image/png;base64,${picture}` } }] })];
const tools = [{ ...tool, schema }];

/** What a message holds, without the id of its object. */
const gist = ({ content, tool_calls, tool_call_chunks, invalid_tool_calls, usage_metadata, response_metadata, additional_kwargs }) =>
  ({ content, tool_calls, tool_call_chunks, invalid_tool_calls, usage_metadata, response_metadata, additional_kwargs });

function adapter(name, useResponsesApi, features) {
  const connect = ({ url, key, retries = 2, fetch, headers }) => ({
    model: (model, o) => new ChatOpenAI({ model, apiKey: key, maxRetries: retries, maxTokens: 300, useResponsesApi, configuration: { baseURL: `${url}/v1`, fetch, defaultHeaders: headers }, ...o }),
    embeddings: (model) => new OpenAIEmbeddings({ model, apiKey: key, configuration: { baseURL: `${url}/v1`, fetch } }),
  });
  const streamed = async (sequence) => (await all(await sequence)).map(gist);
  return {
    name, family: "langchain", dialect: "openai", base,
    kinds: {
      400: "BadRequestError", 401: "AuthenticationError", 402: "APIError", 403: "PermissionDeniedError", 404: "NotFoundError", 413: "APIError", 422: "UnprocessableEntityError",
      429: "RateLimitError", 431: "APIError", 500: "InternalServerError", 502: "InternalServerError", 503: "InternalServerError", 504: "InternalServerError",
      cut: "APIError", abort: "AbortError", timeout: "TimeoutError",
    },
    read: (err) => ({ kind: err.status ? err.constructor.name : err.name === "Error" ? err.constructor.name : err.name, status: err.status, error: err.error, requestId: err.requestID ?? undefined }),
    ask: async ({ model, prompt = text, cap, signal, timeout, ...o }) => (await connect(o).model(model, given({ maxTokens: cap, timeout })).invoke(prompt, { signal })).content,
    stream: async function* ({ model, signal, ...o }) {
      for await (const chunk of await connect(o).model(model).stream(text, { signal })) yield chunk.content;
    },
    features: {
      "text": async (c, m) => gist(await c.model(m()).invoke(text)),
      "text stream": (c, m) => streamed(c.model(m("usage_in=50,cached=20")).stream(text)),
      "text stream, hostile framing": (c, m) => streamed(c.model(m("", "framing=comments|crlf|multiline")).stream(text)),
      "tool call": async (c, m) => gist(await c.model(m()).bindTools(tools, { tool_choice: "required" }).invoke(text)),
      "tool calls, streamed": (c, m) => streamed(c.model(m("calls=2")).bindTools(tools).stream(text)),
      "structured output": (c, m) => c.model(m()).withStructuredOutput(schema).invoke(text),
      "structured output by a tool": (c, m) => c.model(m()).withStructuredOutput(schema, { method: "functionCalling" }).invoke(text),
      "image": async (c, m) => { const { content } = await c.model(m("echo")).invoke(pictured); return sent(typeof content === "string" ? content : content[0].text); },
      ...features,
    },
    connect,
  };
}

export const langchainChat = adapter("@langchain/openai (chat)", false, {
  "embeddings": (c, m) => c.embeddings(m("", "", "text-embedding-3-small")).embedDocuments(["one", "two"]),
});
export const langchainResponses = adapter("@langchain/openai (responses)", true, {
  "reasoning": async (c, m) => gist(await c.model(m("thinking=6"), { reasoning: { summary: "auto" } }).invoke(text)),
});
