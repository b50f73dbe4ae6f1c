// A module that uses every part of the SDK; the test tells it by the model attribute what to do.
import {
  ABSTAINED, ATTR_END_USER, ATTR_KEY_NAME, ATTR_MODEL, Config, decision, facts, IMAGES, KIND_CUSTOM, KIND_END_USER, KIND_KEY, log,
  LOG_WARN, STREAM,
} from "../../assembly";

export * from "../../assembly/exports";

let config = new Config(0);

export function weir_configure(len: i32): i32 {
  config = new Config(len);
  const p = config.params;
  if (p.absent) return 0;
  if (p.get("text").string("") != "a\"b\\c/\b\f\n\r\té😀\u0001") return 1;
  if (p.get("number").integer(0) != -1234567890123) return 2;
  if (p.get("fraction").integer(7) != 7 || p.get("big").integer(8) != 8 || p.get("text").integer(9) != 9) return 3;
  if (!p.get("yes").bool(false) || p.get("no").bool(true) || !p.get("none").bool(true)) return 4;
  if (!p.get("none").absent || !p.get("missing").absent || p.get("no").absent) return 5;
  const list = p.get("list").elements();
  if (list.length != 3 || list[0].integer(0) != 1 || list[1].get("deep").elements()[1].string("") != "}]") return 6;
  if (list[2].elements().length != 0 || p.get("empty").get("x").string("fallback") != "fallback") return 7;
  if (config.tier("b") != 1 || config.tier("c") != -1 || config.label("y") != 9 || config.label("z") != -1) return 8;
  return 0;
}

export function weir_decide(): i32 {
  const model = facts.attr(ATTR_MODEL);
  decision.reset();
  if (model.equals("match")) return match();
  if (model.equals("facts")) return numbers();
  if (model.equals("everything")) return everything();
  if (model.equals("deny")) {
    decision.deny(429, "später 😀", 1500);
    decision.reason = 7;
    return decision.done();
  }
  if (model.equals("explain")) {
    decision.explain(9, "Nachtrabatt ☾");
    decision.qpsMultiplier = 500;
    return decision.done();
  }
  if (model.equals("shadow")) {
    decision.shadowDeny();
    return decision.done();
  }
  if (model.equals("full")) {
    for (let i = 0; i < 16; i++) decision.pick(KIND_KEY);
    return decision.done();
  }
  if (model.equals("overfull")) {
    for (let i = 0; i < 17; i++) decision.pick(KIND_KEY);
    return decision.done();
  }
  if (model.equals("arena")) {
    const d = decision.pick(KIND_CUSTOM);
    for (let i = 0; i < 147; i++) d.text("0123456789");
    d.text("é"); // the last two of 1472 bytes
    return decision.done();
  }
  if (model.equals("arena overfull")) {
    const d = decision.pick(KIND_CUSTOM);
    for (let i = 0; i < 147; i++) d.text("0123456789");
    d.text("xé");
    return decision.done();
  }
  if (model.equals("log")) log(LOG_WARN, "straße 😀");
  return ABSTAINED;
}

// Each bit of the answer is one comparison of the end user's text.
function match(): i32 {
  const a = facts.attr(ATTR_END_USER);
  let bits = 1 << 8;
  if (a.equals("grüße 😀 x")) bits |= 1;
  if (a.startsWith("grüß")) bits |= 2;
  if (a.startsWith("grüss")) bits |= 4;
  if (a.endsWith("😀 x")) bits |= 8;
  if (a.endsWith("")) bits |= 16;
  if (a.equals("grüße 😀 xx")) bits |= 32;
  if (a.on) bits |= 64;
  if (a.absent) bits |= 128;
  return bits;
}

function numbers(): i32 {
  if (facts.nowMs != 1_700_000_000_000 || facts.entropy != 0xfedcba9876543210) return 2;
  if (!facts.has(STREAM) || facts.has(IMAGES) || facts.endpoint != 5 || facts.inputTokens != 11 || facts.outputTokensMax != 12) return 3;
  if (facts.choices != 13 || facts.bodyBytes != 14 || facts.keyId != 15 || facts.userId != 16 || facts.orgId != 17) return 4;
  if (facts.qpsLimit != 18 || facts.qpsCurrent != 19 || facts.tpmLimit != 20 || facts.tpmCurrent != 21) return 5;
  if (facts.concurrencyLimit != 22 || facts.concurrencyCurrent != 23 || facts.quotaLimit != 24 || facts.quotaUsed != 25) return 6;
  if (facts.balanceAvailable != -26 || facts.estimatedCost != 27 || facts.minuteOfWeek != 28) return 7;
  if (facts.dayOfMonth != 29 || facts.daysInMonth != 30 || facts.tier != 31 || facts.generation != 32) return 8;
  return 0;
}

function everything(): i32 {
  decision.tier(1);
  decision.tier(-1);
  decision.doNotBill();
  decision.doNotLimit();
  decision.qpsMultiplier = 1001;
  decision.tpmMultiplier = 1002;
  decision.quotaMultiplier = 1003;
  decision.burst = 1004;
  decision.overdraft = 1 << 40;
  decision.outputTokensCap = 1005;
  decision.priceMultiplier = 1006;
  const end = decision.pick(KIND_END_USER).skipIfAbsent().shadow();
  end.qpsLimit = 5;
  end.tpmLimit = 6;
  const team = decision.pick(KIND_CUSTOM).countOnly().tier(0).text("team:").attr(facts.attr(ATTR_KEY_NAME)).text("/ü");
  team.multiplier = 7;
  team.burst = 8;
  team.costMultiplier = 9;
  decision.pick(KIND_CUSTOM).text("second");
  return decision.done();
}
