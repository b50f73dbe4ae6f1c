// What the Node examples share: where the gateway is, its admin API, and one line per check.
import { setTimeout as sleep } from "node:timers/promises";

function need(...names) {
  for (const name of names) if (process.env[name]) return process.env[name].replace(/\/+$/, "");
  console.error(`set ${names[0]}; "weir demo" prints it`);
  process.exit(2);
}

function unreachable(url, err) {
  console.error(`no answer from ${url} (is "weir demo" running?): ${err.cause?.message || err.cause?.code || err.message}`);
  process.exit(2);
}

export const baseURL = need("WEIR_BASE_URL", "WEIR_URL"); // the client listener, without /v1
export const key = need("WEIR_KEY");
const adminURL = need("WEIR_ADMIN_URL");
const adminToken = need("WEIR_ADMIN_TOKEN");
await fetch(`${baseURL}/healthz`).catch((err) => unreachable(baseURL, err));

/** One call of the admin API; the decoded answer, or an error with the gateway's own words. */
export async function admin(method, path, body) {
  const answer = await fetch(adminURL + path, {
    method,
    headers: { authorization: `Bearer ${adminToken}`, "content-type": "application/json" },
    body: body && JSON.stringify(body),
  }).catch((err) => unreachable(adminURL, err));
  const text = await answer.text();
  if (!answer.ok) throw new Error(`${method} ${path}: ${answer.status} ${text}`);
  return text ? JSON.parse(text) : undefined;
}

/** A fresh key of a fresh user, so that a check meets no limit but its own. */
export async function newKey(limits = {}, balanceCny = 100) {
  const org = await admin("POST", "/admin/orgs", { name: `Examples ${process.pid}.${Math.random().toString(36).slice(2)}` });
  const user = await admin("POST", "/admin/users", { orgId: org.id, name: "node", balanceCny });
  return admin("POST", "/admin/keys", { userId: user.id, name: "node", ...limits });
}

/** A model that answers as the simulated upstream is told to by the part after "+". */
export async function simulated(name, target) {
  await admin("PUT", `/admin/models/${name}`, { target, inputCnyPer1M: 1, outputCnyPer1M: 4 });
  return name;
}

/** A fetch that remembers every answer: its status, when it came, and the wait it told the client. */
export function recorder() {
  const seen = [];
  const recorded = async (url, init) => {
    const sent = performance.now();
    const answer = await fetch(url, init);
    seen.push({ sent, came: performance.now(), status: answer.status, waitMs: Number(answer.headers.get("retry-after-ms")), headers: answer.headers });
    return answer;
  };
  return { seen, fetch: recorded };
}

/** The usage record of a key's only request, once it is written. */
export async function record(keyId) {
  for (let i = 0; i < 100; i++) {
    const { data } = await admin("GET", `/admin/usage?key=${keyId}`);
    if (data.length > 0) return data[0];
    await sleep(20);
  }
  throw new Error(`no usage record of key ${keyId}`);
}

export function expect(ok, what) {
  if (!ok) throw new Error(what);
}

/** The error a call must end with. */
export async function refused(call, Kind) {
  try {
    await call;
  } catch (err) {
    if (err instanceof Kind) return err;
    throw new Error(`expected ${Kind.name}, got ${err}`);
  }
  throw new Error(`expected ${Kind.name}, got an answer`);
}

/** Runs one check and prints its line; a failure is printed and fails the whole run at its end. */
export async function check(name, run) {
  try {
    await run();
    console.log(`ok ${name}`);
  } catch (err) {
    process.exitCode = 1;
    console.log(`FAILED ${name}: ${err?.stack ?? err}`);
  }
}
