// A proxy in a thread of its own that counts: every request that a client sends, when, and what came back. Attempts and the
// gaps between them are taken from here, not from what an SDK says of itself.
import http from "node:http";
import { Worker, isMainThread, parentPort, workerData } from "node:worker_threads";

/** Starts a proxy in front of target (an origin). of(key) is the attempts seen with a credential, oldest first. */
export async function shim(target) {
  const seen = new Map(), waiting = [];
  const worker = new Worker(new URL(import.meta.url), { workerData: { target } });
  const url = await new Promise((resolve, reject) => {
    worker.once("error", reject);
    worker.on("message", (m) => {
      if (m.url) return resolve(m.url);
      if (m.flushed) return waiting.shift()();
      const list = seen.get(m.key) ?? [];
      list[m.nth] = { ...list[m.nth], ...m.attempt };
      seen.set(m.key, list);
    });
  });
  return {
    url,
    async of(key) {
      await new Promise((resolve) => (waiting.push(resolve), worker.postMessage("flush")));
      return seen.get(key) ?? [];
    },
    stop: () => worker.terminate(),
  };
}

function serve({ target }) {
  const { hostname, port } = new URL(target);
  const agent = new http.Agent({ keepAlive: true });
  const counts = new Map();
  const now = () => performance.now();
  const server = http.createServer({ maxHeaderSize: 64 << 10 }, (req, res) => {
    const key = req.headers["x-api-key"] ?? req.headers.authorization?.replace(/^Bearer /, "") ?? "";
    const nth = counts.get(key) ?? 0;
    counts.set(key, nth + 1);
    const tell = (attempt) => parentPort.postMessage({ key, nth, attempt });
    tell({ came: now(), path: req.url });
    const on = http.request({ hostname, port, path: req.url, method: req.method, headers: req.headers, agent }, (answer) => {
      tell({ status: answer.statusCode, headers: answer.headers, answered: now() });
      res.writeHead(answer.statusCode, answer.rawHeaders);
      res.flushHeaders();
      answer.pipe(res);
      let signs = 0; // of life, between the events of a stream
      answer.on("data", (piece) => { // told as they come: a client may close before the end is here
        const more = piece.toString("latin1").match(/^(?::|event: ping)$/gm)?.length ?? 0;
        if (more) tell({ signs: (signs += more) });
      });
      answer.once("end", () => tell({ ended: now() }));
      answer.once("error", () => res.destroy());
      answer.once("aborted", () => res.destroy());
    });
    on.once("error", () => res.destroy());
    res.once("close", () => res.writableFinished || on.destroy());
    req.pipe(on);
  });
  server.keepAliveTimeout = 60_000;
  parentPort.on("message", () => parentPort.postMessage({ flushed: true }));
  server.listen(0, "127.0.0.1", () => parentPort.postMessage({ url: `http://127.0.0.1:${server.address().port}` }));
}

if (!isMainThread && workerData?.target) serve(workerData);
