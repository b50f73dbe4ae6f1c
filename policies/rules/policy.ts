// A table of rules for operators and tenants: params say when a rule is for a request and what it then changes. The answer
// says which rule fired: the reason is its number, from 1, and the message its name.
import { ABSTAINED, decision, facts, FLAG_CUT, MESSAGE_MAX } from "../../sdk/assemblyscript/assembly";
import { messageSince } from "../parts/answer";
import { Config } from "../parts/config";
import { refusal } from "../parts/refusal";
import { resetExtras } from "./extra";
import { DENIES, PASSES, Rule } from "./rule";
import { look } from "./test";
import { attributesAsked, MAX_RULES, readTable, rules, takeAll } from "./table";

export { weir_abi_version, weir_request, weir_response } from "../../sdk/assemblyscript/assembly/exports";
export { weir_params_buffer } from "../parts/config";

export function weir_configure(len: i32): i32 {
  const config = new Config(len);
  readTable(config.params, config);
  return refusal();
}

const fired = memory.data(4 * MAX_RULES, 8);

export function weir_decide(): i32 {
  decision.reset();
  if (facts.has(FLAG_CUT) && missing()) {
    decision.deny(400, "a name or a header of this request is too long for the rules");
    return decision.done();
  }
  look();
  resetExtras();
  let n: usize = 0;
  let verdict = PASSES;
  let tierChosen = false;
  for (let i = firing(0); i < rules.length; i = firing(i + 1)) {
    const r = unchecked(rules[i]);
    store<usize>(fired + 4 * n++, changetype<usize>(r));
    if (r.verdict != PASSES) {
      if (verdict == PASSES || r.verdict == DENIES) decision.reason = r.number;
      verdict = r.verdict;
      if (verdict == DENIES) break;
      continue; // a shadow changes nothing
    }
    if (decision.reason == 0) decision.reason = r.number;
    r.apply(tierChosen);
    tierChosen = tierChosen || r.change.choosesTier;
    if (!takeAll) break;
  }
  if (n == 0) return ABSTAINED;
  say(n, verdict);
  return decision.done();
}

// firing finds the next rule that fires, from one on. A loop of its own, because a turn of a loop takes the fuel of all of its
// body, and most rules do not fire.
function firing(i: i32): i32 {
  const length = rules.length;
  while (i < length && !unchecked(rules[i]).matches()) i++;
  return i;
}

// missing reports that an attribute the rules look at is not there, in a call where one did not fit.
function missing(): bool {
  for (let i = 0; i < 16; i++) {
    if (((attributesAsked >> i) & 1) != 0 && facts.attr(i).absent) return true;
  }
  return false;
}

// say writes the verdict and the message: a denial's own, or the names of the rules that fired.
function say(n: usize, verdict: u32): void {
  const used = decision.arenaUsed;
  const last = changetype<Rule>(load<usize>(fired + 4 * (n - 1)));
  if (verdict == DENIES) decision.deny(last.status, "", last.retryAfterMs);
  else if (verdict != PASSES) decision.shadowDeny();
  if (verdict == DENIES && last.message.size > 0) {
    decision.copy(last.message.ptr, last.message.size);
  } else {
    for (let i: usize = 0; i < n; i++) {
      const name = changetype<Rule>(load<usize>(fired + 4 * i)).name;
      if (decision.arenaUsed - used + name.size + 5 > MESSAGE_MAX) { // a comma, a blank and the last sign
        decision.append("…");
        break;
      }
      if (i > 0) decision.append(", ");
      decision.copy(name.ptr, name.size);
    }
  }
  messageSince(used);
}
