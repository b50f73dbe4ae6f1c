// Two rules of the matrix: what counts as the same answer, and when each family of clients tries again.

const clocks = new Set(["created", "created_at", "completed_at", "timestamp", "headers", "responseHeaders", "request", "response", "_request_id", "request_id", "performance", "id"]);

/** A copy without what differs from call to call: ids, times, and the raw exchange that some clients keep. */
export function same(value) {
  if (typeof value === "string") return value.replace(/\b[a-z_]*sim[0-9a-z]+(_\d+)?\b/g, "ID");
  if (Array.isArray(value)) return value.map(same);
  if (value === null || typeof value !== "object") return value;
  const kept = ([k, v]) => !clocks.has(k) || v?.object === "response"; // the object of an event, not a raw exchange
  return Object.fromEntries(Object.entries(value).filter(kept).map(([k, v]) => [same(k), same(v)]));
}

const again = (status) => status === 408 || status === 409 || status === 429 || status >= 500;

/** The wait that an answer tells its client, in ms; undefined: none. */
export function told(headers) {
  const ms = headers["retry-after-ms"] ?? headers["retry-after"] * 1000;
  return Number.isFinite(Number(ms)) ? Number(ms) : undefined;
}

/**
 * How long a client of a family waits after its n-th refusal (from 0), as [least, most] in ms; undefined: it gives up.
 * sdk: openai and @anthropic-ai/sdk. ai: Vercel's, which does not know x-should-retry. langchain: its own retries, which know
 * whole seconds only.
 */
export function wait(family, { status, headers }, n) {
  const hint = told(headers);
  switch (family) {
    case "sdk":
      if (headers["x-should-retry"] === "false" || !again(status)) return;
      return hint > 0 && hint <= 60_000 ? [hint, hint] : [375 * 2 ** n, 500 * 2 ** n];
    case "ai":
      if (!again(status)) return;
      return hint < 60_000 ? [hint, hint] : [2000 * 2 ** n, 2000 * 2 ** n];
    case "langchain": {
      if (status >= 400 && status <= 407 || status === 409 || status === 413) return;
      const seconds = Number(headers["retry-after"]) * 1000;
      if (status === 429 && !(seconds <= 60_000)) return;
      const least = status === 429 ? seconds : 0;
      return [Math.max(1000 * 2 ** n, least), Math.max(2000 * 2 ** n, least)];
    }
  }
}
