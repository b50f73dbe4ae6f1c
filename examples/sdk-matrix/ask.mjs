// What every client asks: the same words, tool, schema and picture.
import { z } from "zod";

export const text = "Say something about water.";
export const openaiModel = "gpt-4o-mini";
export const claude = "claude-haiku-4-5";

/** What a tool takes, and what a structured answer looks like. */
export const schema = z.object({ city: z.string(), days: z.number().int(), unit: z.enum(["C", "F"]), tags: z.array(z.string()) });

export const tool = { name: "weather", description: "The weather of a city" };

/** A picture of 48 kB of noise that is the same on every run, as a data URL needs it. */
export const picture = Buffer.from(Uint8Array.from({ length: 48 << 10 }, (_, i) => ((i * 2654435761) >>> 13) & 255)).toString("base64");

/** What an upstream that echoes says it was sent: the members that hold the conversation. */
export function sent(answer) {
  const { messages, input, system } = JSON.parse(answer);
  return { messages, input, system };
}

/** Everything that an asynchronous sequence yields. */
export async function all(sequence) {
  const list = [];
  for await (const item of sequence) list.push(structuredClone(item));
  return list;
}

/** Options without those that are not given: some clients take undefined for a value. */
export const given = (options) => Object.fromEntries(Object.entries(options).filter(([, v]) => v !== undefined));
