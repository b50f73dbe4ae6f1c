// One policy, written four times: the other three stand beside this one. Each part of the facts decides something.
import {
  ABSTAINED, ATTR_END_USER, ATTR_MODEL, Attribute, Config, decision, ENDPOINT_EMBEDDINGS, ENDPOINT_MESSAGES, facts, FILES, IMAGES,
  Json, KIND_CHANNEL, KIND_CUSTOM, KIND_END_USER, KIND_GLOBAL, KIND_IP, KIND_KEY, KIND_KEY_MODEL, KIND_MODEL, KIND_MODEL_CHANNEL,
  KIND_ORG, KIND_USER, RETRY, STREAM,
} from "./weir";
export * from "./weir/exports";

class ModelCost {
  constructor(public prefix: string, public size: i32, public cost: u32) {}
}

let pro: i32, enterprise: i32, downgrade: i32; // tiers
let teamLabel: i32, softLabel: i32, regionLabel: i32;
let nightFrom: u32, nightTo: u32, nightQps: u32;
let softShare: i64;
let softTpm: u32, bigTokens: u32, teamQps: u32, samplePercent: u32;
let strict = false;
let blocked: string[] = [];
let models: ModelCost[] = [];

function number(object: Json, member: string, fallback: i64): u32 {
  return <u32>object.get(member).integer(fallback);
}

export function weir_configure(len: i32): i32 {
  const config = new Config(len);
  const p = config.params;
  const night = p.get("night");
  pro = config.tier("pro");
  enterprise = config.tier("enterprise");
  downgrade = config.tier(p.get("downgrade").string("free"));
  teamLabel = config.label("team");
  softLabel = config.label("soft");
  regionLabel = config.label("region");
  nightFrom = number(night, "from_hour", 22);
  nightTo = number(night, "to_hour", 6);
  nightQps = number(night, "qps_permille", 2000);
  softShare = p.get("soft_share_permille").integer(900);
  softTpm = number(p, "soft_tpm_permille", 500);
  bigTokens = number(p, "big_tokens", 20000);
  teamQps = number(p, "team_qps", 10);
  samplePercent = number(p, "sample_percent", 0);
  strict = p.get("strict").bool(false);
  const users = p.get("blocked").elements();
  for (let i = 0; i < users.length; i++) blocked.push(users[i].string(""));
  const costs = p.get("models").elements();
  for (let i = 0; i < costs.length; i++) {
    const prefix = costs[i].get("prefix").string("");
    models.push(new ModelCost(prefix, String.UTF8.byteLength(prefix), number(costs[i], "cost_permille", 1000)));
  }
  return 0;
}

function isBlocked(user: Attribute): bool {
  for (let i = 0; i < blocked.length; i++) {
    if (user.equals(unchecked(blocked[i]))) return true;
  }
  return false;
}

// Of the prefixes that match, the longest counts.
function costOf(model: Attribute): u32 {
  let cost: u32 = 0;
  let longest = 0;
  for (let i = 0; i < models.length; i++) {
    const m = unchecked(models[i]);
    if (m.size < longest || !model.startsWith(m.prefix)) continue;
    longest = m.size;
    cost = m.cost;
  }
  return cost;
}

function deny(status: u32, message: string, wait: u32, reason: u16): i32 {
  decision.deny(status, message, wait);
  decision.reason = reason;
  return decision.done();
}

function byMonth(soft: bool): void {
  const limit = facts.quotaLimit;
  const permille = limit / 1000;
  const share = limit > 0 ? facts.quotaUsed / (permille > 0 ? permille : 1) : -1;
  if (share >= softShare) {
    if (soft) {
      decision.quotaMultiplier = 1100;
      decision.tier(downgrade);
    } else {
      decision.tpmMultiplier = softTpm;
    }
    if (share >= 2 * softShare) {
      decision.shadowDeny();
      decision.reason = 3;
    }
  }
  if (facts.dayOfMonth == facts.daysInMonth && decision.quotaMultiplier < 1050) decision.quotaMultiplier = 1050;
}

function byTime(): void {
  const hour = facts.minuteOfWeek % 1440 / 60;
  const weekend = facts.minuteOfWeek / 1440 >= 5;
  const night = nightFrom <= nightTo ? hour >= nightFrom && hour < nightTo : hour >= nightFrom || hour < nightTo;
  if (night) decision.qpsMultiplier = nightQps;
  if ((night || weekend) && <i32>facts.tier == pro) decision.burst = 3000;
  if (facts.nowMs / 3600000 % 2 == 1 && decision.reason == 0) decision.reason = <u16>(100 + hour);
}

function byMoney(soft: bool): void {
  if (<i32>facts.tier == enterprise && facts.balanceAvailable < facts.estimatedCost) {
    decision.overdraft = facts.estimatedCost - facts.balanceAvailable;
    decision.priceMultiplier = 1200;
  }
  if (facts.has(RETRY)) decision.priceMultiplier = 1100;
  if (facts.has(IMAGES | FILES) && <i32>facts.tier != enterprise) decision.outputTokensCap = bigTokens / 2;
  if (soft && facts.keyId % 7 == 0) decision.doNotBill();
  if (facts.concurrencyLimit > 0 && facts.concurrencyCurrent >= facts.concurrencyLimit) decision.doNotLimit();
}

function pickDimensions(user: Attribute, big: bool): void {
  const key = decision.pick(KIND_KEY);
  if (big) {
    key.costMultiplier = 1500;
    key.multiplier = 800;
  }
  decision.pick(KIND_MODEL).costMultiplier = costOf(facts.attr(ATTR_MODEL));
  decision.pick(KIND_GLOBAL);
  if (facts.tier == 0) {
    decision.pick(KIND_USER);
  } else {
    const org = decision.pick(KIND_ORG).countOnly();
    if (facts.entropy % 100 < samplePercent) org.shadow();
  }
  decision.pick(KIND_IP).skipIfAbsent();
  if (!user.absent) decision.pick(KIND_END_USER).tier(pro);
  const pair = decision.pick(KIND_KEY_MODEL);
  if (facts.has(STREAM)) pair.qpsLimit = 5;
  pair.tpmLimit = facts.tpmLimit / 2;
  if (facts.qpsLimit > 0 && <u64>facts.qpsCurrent * 2 > facts.qpsLimit) pair.burst = 1500;
  const team = facts.attr(teamLabel);
  const region = facts.attr(regionLabel);
  if (!team.absent) decision.pick(KIND_CUSTOM).text("team:").attr(team).qpsLimit = teamQps;
  if (region.endsWith("-eu")) decision.pick(KIND_CUSTOM).countOnly().text("eu/").attr(region).text("/").attr(facts.attr(ATTR_MODEL));
  decision.pick(facts.endpoint == ENDPOINT_MESSAGES ? KIND_CHANNEL : KIND_MODEL_CHANNEL);
}

export function weir_decide(): i32 {
  if (facts.endpoint == ENDPOINT_EMBEDDINGS && <i32>facts.tier == enterprise) return ABSTAINED;
  decision.reset();
  const user = facts.attr(ATTR_END_USER);
  if (isBlocked(user)) return deny(403, "this end user is blocked", 0, 1);
  const total = <u64>facts.inputTokens + facts.outputTokensMax;
  if (strict && total > 4 * <u64>bigTokens) return deny(429, "too many tokens für eine Anfrage", 60000, 2);
  const soft = facts.attr(softLabel).on;
  byMonth(soft);
  byTime();
  byMoney(soft);
  pickDimensions(user, total > bigTokens);
  return decision.done();
}
