// The stock OpenAI SDK, any major: what it can ask, and how its errors look.
import { all, given, openaiModel as base, picture, schema, sent, text, tool } from "./ask.mjs";
import { everyEvent } from "./events.mjs";

const messages = [{ role: "user", content: text }];
const pictured = [{ role: "user", content: [{ type: "text", text }, { type: "image_url", image_url: { url: `data:image/png;base64,${picture}` } }] }];

/** The adapter of one major: its module, and those of its own that turn schemas into formats. */
export function openai(name, { default: OpenAI }, { zodFunction, zodResponseFormat, zodTextFormat }) {
  const connect = ({ url, key, retries = 2, headers, fetch }) => new OpenAI({ apiKey: key, baseURL: `${url}/v1`, maxRetries: retries, defaultHeaders: headers, fetch });
  const chatTools = { messages, tools: [zodFunction({ ...tool, parameters: schema })], tool_choice: "required" };
  const plainTool = { type: "function", name: tool.name, description: tool.description, strict: true, parameters: zodFunction({ ...tool, parameters: schema }).function.parameters };
  const structured = { messages, response_format: zodResponseFormat(schema, "weather") };
  const format = { text: { format: zodTextFormat(schema, "weather") } };
  const usage = { stream_options: { include_usage: true } };
  const chat = (c, body) => c.chat.completions.create({ model: base, messages, ...body });
  const respond = (c, body) => c.responses.create({ model: base, input: text, max_output_tokens: 300, ...body });

  return {
    name, family: "sdk", dialect: "openai", base,
    kinds: {
      400: "BadRequestError", 401: "AuthenticationError", 402: "APIError", 403: "PermissionDeniedError", 404: "NotFoundError", 413: "APIError", 422: "UnprocessableEntityError",
      429: "RateLimitError", 431: "APIError", 500: "InternalServerError", 502: "InternalServerError", 503: "InternalServerError", 504: "InternalServerError",
      cut: "APIError", abort: "APIUserAbortError", timeout: "APIConnectionTimeoutError",
    },
    /** What an error says, in words all clients share. */
    read: (err) => ({ kind: err.constructor.name, status: err.status, error: err.error, requestId: err.requestID }),
    ask: async ({ model, prompt = text, cap, signal, timeout, ...o }) =>
      (await connect(o).chat.completions.create({ model, messages: [{ role: "user", content: prompt }], max_completion_tokens: cap }, given({ signal, timeout }))).choices[0].message.content,
    stream: async function* ({ model, signal, ...o }) {
      for await (const c of await connect(o).chat.completions.create({ model, messages, stream: true }, { signal })) yield c.choices[0]?.delta.content ?? "";
    },
    models: async (o) => {
      const list = await all(connect(o).models.list());
      return { list, one: await connect(o).models.retrieve(list[0].id) };
    },
    features: {
      "chat": (c, m) => chat(c, { model: m() }),
      "chat, two choices and a cap": (c, m) => chat(c, { model: m(), n: 2, max_completion_tokens: 3 }),
      "chat stream": async (c, m) => all(await chat(c, { model: m(), stream: true })),
      "chat stream with usage": async (c, m) => all(await chat(c, { model: m("usage_in=50,cached=20"), stream: true, ...usage })),
      "chat stream, hostile framing": async (c, m) => all(await chat(c, { model: m("", "framing=comments|crlf|multiline"), stream: true, ...usage })),
      "chat stream, byte by byte": async (c, m) => all(await chat(c, { model: m("out=8", "out=8,framing=bytes|nospace"), stream: true, ...usage })),
      "tool call": (c, m) => chat(c, { model: m(), ...chatTools }),
      "tool calls, streamed": async (c, m) => all(await chat(c, { model: m("calls=2"), ...chatTools, stream: true, ...usage })),
      "tool call and its result": (c, m) => c.chat.completions.runTools({ model: m(), messages, tools: [{ type: "function",
        function: { ...plainTool, function: () => "rain", parse: JSON.parse } }], tool_choice: { type: "function", function: { name: tool.name } } }).finalMessage(),
      "structured output": (c, m) => c.chat.completions.parse({ model: m(), ...structured }),
      "structured output, streamed": async (c, m) => c.chat.completions.stream({ model: m(), ...structured, ...usage }).finalChatCompletion(),
      "image": async (c, m) => sent((await chat(c, { model: m("echo"), messages: pictured })).choices[0].message.content),
      "legacy completion": (c, m) => c.completions.create({ model: m(), prompt: ["one", "two"], max_tokens: 5 }),
      "legacy completion stream": async (c, m) => all(await c.completions.create({ model: m(), prompt: text, max_tokens: 5, stream: true })),
      "embeddings": (c, m) => c.embeddings.create({ model: m("", "", "text-embedding-3-small"), input: ["one", "two"], dimensions: 16 }),
      "embeddings as floats": (c, m) => c.embeddings.create({ model: m("", "", "text-embedding-3-small"), input: text, dimensions: 8, encoding_format: "float" }),
      "response": (c, m) => respond(c, { model: m("usage_in=50,cached=20") }),
      "response, cut by its cap": (c, m) => respond(c, { model: m(), max_output_tokens: 16 }),
      "response stream": async (c, m) => all(await respond(c, { model: m(), stream: true })),
      "response stream with reasoning": async (c, m) => all(await respond(c, { model: m("thinking=6"), stream: true, reasoning: { summary: "auto" } })),
      "response with tool calls": (c, m) => respond(c, { model: m("calls=2,thinking=3"), tools: [plainTool], tool_choice: "required" }),
      "response stream with tool calls": async (c, m) => all(await respond(c, { model: m("calls=2"), tools: [plainTool], stream: true })),
      "structured response": (c, m) => c.responses.parse({ model: m(), input: text, max_output_tokens: 300, ...format }),
      "structured response stream": (c, m) => c.responses.stream({ model: m(), input: text, max_output_tokens: 300, ...format }).finalResponse(),
      "response to an image": async (c, m) => sent((await respond(c, { model: m("echo"), input: [{ role: "user", content: [
        { type: "input_text", text }, { type: "input_image", image_url: `data:image/png;base64,${picture}`, detail: "auto" }] }] })).output_text),
      "response stream, every event": async (c, m) => {
        const events = everyEvent(name);
        const got = await all(await respond(c, { model: m("echo=events"), input: JSON.stringify(events), stream: true }));
        const types = (list) => [...new Set(list.map((e) => e.type))].join();
        if (types(got) !== types(events)) throw new Error(`sent ${types(events)}, got ${types(got)}`);
        return got;
      },
    },
    connect,
  };
}
