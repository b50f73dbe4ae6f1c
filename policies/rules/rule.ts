// One rule as a decision reads it: everything was read, checked and laid out while the module was configured.
import { decision, facts } from "../../sdk/assemblyscript/assembly";
import { tighter, times } from "../parts/answer";
import { NO_TEXT, Text } from "../parts/json";
import { ALWAYS, dayOfMonth, Hours, minuteOfWeek } from "../parts/moment";
import { Condition } from "../parts/pattern";
import { Extra } from "./extra";

// What a rule asks for, beside numbers and names; a rule pays only for what it asks.
export const ASKS_FLAGS: u32 = 1;
export const ASKS_ENDPOINT: u32 = 2;
export const ASKS_HOURS: u32 = 4;
export const ASKS_DAYS: u32 = 8;
export const ASKS_TIER: u32 = 16;

// The numbers a rule can bound.
export const NUMBERS: string = "input_tokens output_tokens_max month_used_permille balance_micro estimated_cost_micro";
export const BALANCE: u32 = 3;
const numbers = memory.data(5 * 8, 8);
let minute: u32 = 0;
let day: u64 = 0;

/** Looks at the facts once for all rules. */
export function look(): void {
  store<i64>(numbers, facts.inputTokens);
  store<i64>(numbers, facts.outputTokensMax, 8);
  store<i64>(numbers, monthUsed(), 16);
  store<i64>(numbers, facts.balanceAvailable, 24);
  store<i64>(numbers, facts.estimatedCost, 32);
  minute = minuteOfWeek();
  day = dayOfMonth();
}

// monthUsed is the share of the month's quota that is posted or held, in 1/1000; -1 without a quota, which is in no range.
function monthUsed(): i64 {
  let limit = facts.quotaLimit;
  if (limit <= 0) return -1;
  let used = max(facts.quotaUsed, 0);
  while (used > i64.MAX_VALUE / 1000) {
    used >>= 1;
    limit >>= 1;
  }
  return used * 1000 / max(limit, 1);
}

/** A number that must lie in bounds, both included. */
export class Range {
  number: u32 = 0;
  least: i64 = 0;
  most: i64 = i64.MAX_VALUE;
}

export const PASSES: u32 = 0;
export const DENIES: u32 = 1;
export const SHADOW_DENIES: u32 = 2;

export class Rule {
  number: u16 = 0; // from 1
  name: Text = NO_TEXT;

  asks: u32 = 0;
  flags: u32 = 0;
  flagsAsked: u32 = 0;
  endpoints: u32 = 0; // bits
  hours: Hours = ALWAYS;
  days: u64 = 0; // bits, as dayOfMonth gives
  tiers: u64 = 0; // bits
  ranges: Range[] = [];
  conditions: Condition[] = [];

  qps: u32 = 0; // factors in 1/1000, 0 is 1000
  tpm: u32 = 0;
  month: u32 = 0;
  burst: u32 = 0;
  price: u32 = 0;
  outputTokensCap: u32 = 0;
  tier: i32 = -1;
  extras: Extra[] = [];
  verdict: u32 = PASSES;
  status: u32 = 403;
  retryAfterMs: u32 = 0;
  message: Text = NO_TEXT;

  /** Reports that the request is what the rule is for. */
  matches(): bool {
    const asks = this.asks;
    if (asks != 0) {
      if ((asks & ASKS_FLAGS) != 0 && ((facts.flags ^ this.flags) & this.flagsAsked) != 0) return false;
      if ((asks & ASKS_ENDPOINT) != 0 && !bit(this.endpoints, facts.endpoint)) return false;
      if ((asks & ASKS_TIER) != 0 && !bit(this.tiers, facts.tier)) return false;
      if ((asks & ASKS_DAYS) != 0 && (this.days & day) == 0) return false;
      if ((asks & ASKS_HOURS) != 0 && !this.hours.include(minute)) return false;
    }
    for (let i = 0, length = this.ranges.length; i < length; i++) {
      const r = unchecked(this.ranges[i]);
      const n = load<i64>(numbers + 8 * r.number);
      if (n < r.least || n > r.most) return false;
    }
    for (let i = 0, length = this.conditions.length; i < length; i++) {
      if (!unchecked(this.conditions[i]).holds()) return false;
    }
    return true;
  }

  /** Adds what the rule wants to the decision: factors multiply, the smallest cap and the first tier count. */
  apply(tierChosen: bool): void {
    decision.qpsMultiplier = times(decision.qpsMultiplier, this.qps);
    decision.tpmMultiplier = times(decision.tpmMultiplier, this.tpm);
    decision.quotaMultiplier = times(decision.quotaMultiplier, this.month);
    decision.burst = times(decision.burst, this.burst);
    decision.priceMultiplier = times(decision.priceMultiplier, this.price);
    decision.outputTokensCap = tighter(decision.outputTokensCap, this.outputTokensCap);
    if (!tierChosen) decision.tier(this.tier);
    for (let i = 0; i < this.extras.length; i++) unchecked(this.extras[i]).pick();
  }
}

function bit(bits: u64, i: u32): bool {
  return i < 64 && ((bits >> i) & 1) != 0;
}
