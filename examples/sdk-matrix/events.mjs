// One event of each type that an SDK's declarations know for a streamed response.
import { readFileSync } from "node:fs";

const response = (status) => ({
  id: "resp_sim0", object: "response", created_at: 1, status, error: null, incomplete_details: null, instructions: null, model: "gpt-4o-mini", output: [],
  parallel_tool_calls: true, temperature: 1, tool_choice: "auto", tools: [], top_p: 1, metadata: {},
  usage: { input_tokens: 9, input_tokens_details: { cached_tokens: 4 }, output_tokens: 7, output_tokens_details: { reasoning_tokens: 2 }, total_tokens: 16 },
});

/** The types as the package's own declarations list them. */
export function typesOf(name) {
  const declared = readFileSync(new URL(`node_modules/${name}/resources/responses/responses.d.ts`, import.meta.url), "utf8");
  const types = new Set([...declared.matchAll(/^ {4}type: '(response\.[a-z_.]+)';/gm)].map((m) => m[1]));
  if (types.size < 40) throw new Error(`only ${types.size} event types found in the declarations of ${name}`);
  return types;
}

const whole = { created: "in_progress", queued: "queued", in_progress: "in_progress", failed: "failed", incomplete: "incomplete", completed: "completed" };

/** The events in an order that can happen: what begins a response, what is in it, what ends it. */
export function everyEvent(name) {
  const types = [...typesOf(name)].filter((t) => !whole[t.slice("response.".length)]);
  const of = (type, more, i) => ({ type, sequence_number: i, ...more });
  const list = [
    ...["created", "queued", "in_progress"].map((s) => [`response.${s}`, { response: response(whole[s]) }]),
    ...types.map((t) => [t, { item_id: "item_1", output_index: 0, content_index: 0, delta: "drop", text: "drop", arguments: "{}" }]),
    ["response.completed", { response: response("completed") }],
  ];
  return list.map(([type, more], i) => of(type, more, i));
}
