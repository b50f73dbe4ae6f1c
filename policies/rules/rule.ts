// One rule as a decision reads it: everything was read, checked and laid out while the module was configured.
import { facts } from "../../sdk/assemblyscript/assembly";
import { Change, monthUsed } from "../parts/change";
import { NO_TEXT, Text } from "../parts/json";
import { ALWAYS, dayOfMonth, Hours, minuteOfWeek } from "../parts/moment";
import { Condition } from "../parts/pattern";
import { Extra } from "./extra";

// What a rule asks for; it pays for nothing else. Loops test at their end, because fuel is counted at their beginning.
export const ASKS_FLAGS: u32 = 1;
export const ASKS_ENDPOINT: u32 = 2;
export const ASKS_HOURS: u32 = 4;
export const ASKS_DAYS: u32 = 8;
export const ASKS_TIER: u32 = 16;
export const ASKS_NUMBERS: u32 = 32;
export const ASKS_NAMES: u32 = 64;

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
  store<i64>(numbers, monthUsed(), 16); // -1, no quota, is in no range
  store<i64>(numbers, facts.balanceAvailable, 24);
  store<i64>(numbers, facts.estimatedCost, 32);
  minute = minuteOfWeek();
  day = dayOfMonth();
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

  change: Change = new Change();
  extras: Extra[] = [];
  verdict: u32 = PASSES;
  status: u32 = 403;
  retryAfterMs: u32 = 0;
  message: Text = NO_TEXT;

  /** Reports that the request is what the rule is for. */
  @inline
  matches(): bool {
    const asks = this.asks;
    if ((asks & ASKS_FLAGS) != 0 && ((facts.flags ^ this.flags) & this.flagsAsked) != 0) return false;
    if ((asks & ASKS_ENDPOINT) != 0 && !bit(this.endpoints, facts.endpoint)) return false;
    if ((asks & ASKS_TIER) != 0 && !bit(this.tiers, facts.tier)) return false;
    if ((asks & ASKS_DAYS) != 0 && (this.days & day) == 0) return false;
    if ((asks & ASKS_HOURS) != 0 && !this.hours.include(minute)) return false;
    if ((asks & ASKS_NUMBERS) != 0 && !this.inRange()) return false;
    return (asks & ASKS_NAMES) == 0 || this.named();
  }

  @inline
  private inRange(): bool {
    let i = this.ranges.length - 1;
    do {
      const r = unchecked(this.ranges[i]);
      const n = load<i64>(numbers + 8 * r.number);
      if (n < r.least || n > r.most) return false;
    } while (--i >= 0);
    return true;
  }

  @inline
  private named(): bool {
    let i = this.conditions.length - 1;
    do {
      if (!unchecked(this.conditions[i]).holds()) return false;
    } while (--i >= 0);
    return true;
  }

  apply(tierChosen: bool): void {
    this.change.apply(tierChosen);
    for (let i = 0; i < this.extras.length; i++) unchecked(this.extras[i]).pick();
  }
}

function bit(bits: u64, i: u32): bool {
  return i < 64 && ((bits >> i) & 1) != 0;
}
