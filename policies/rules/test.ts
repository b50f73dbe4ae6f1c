// The conditions of a rule. Each is a record and a small function called through the table, so that a call pays only for the
// conditions it comes to: fuel is taken for a whole function at its beginning, and for a whole loop body at each turn.
import { facts } from "../../sdk/assemblyscript/assembly";
import { monthUsed } from "../parts/change";
import { DAY, dayOfMonth, Hours, minuteOfWeek } from "../parts/moment";
import { Patterns } from "../parts/pattern";

export class Test {
  constructor(readonly holds: (t: Test) => bool) {}
}

// The numbers a rule can bound.
export const NUMBERS: string = "input_tokens output_tokens_max month_used_permille balance_micro estimated_cost_micro";
export const BALANCE: u32 = 3;
const numbers = memory.data(5 * 8, 8);
let weekday: u32 = 0;
let minute: u32 = 0;
let day: u64 = 0; // bits

/** Looks at the facts once for all rules. */
export function look(): void {
  store<i64>(numbers, facts.inputTokens);
  store<i64>(numbers, facts.outputTokensMax, 8);
  store<i64>(numbers, monthUsed(), 16); // -1, no quota, is in no range
  store<i64>(numbers, facts.balanceAvailable, 24);
  store<i64>(numbers, facts.estimatedCost, 32);
  const now = minuteOfWeek();
  weekday = now / DAY;
  minute = now % DAY;
  day = dayOfMonth();
}

/** Flags that must be set or clear. */
export class FlagsTest extends Test {
  asked: u32 = 0;
  set: u32 = 0;

  constructor() {
    super((t: Test): bool => {
      const own = changetype<FlagsTest>(t);
      return ((facts.flags ^ own.set) & own.asked) == 0;
    });
  }
}

/** An endpoint, of some. */
export class EndpointTest extends Test {
  constructor(readonly bits: u32) {
    super((t: Test): bool => ((changetype<EndpointTest>(t).bits >> min(facts.endpoint, 31)) & 1) != 0);
  }
}

/** The key's tier, of some. */
export class TierTest extends Test {
  constructor(readonly bits: u64) {
    super((t: Test): bool => facts.tier < 64 && ((changetype<TierTest>(t).bits >> facts.tier) & 1) != 0);
  }
}

/** A day of the month, of some. */
export class DayTest extends Test {
  constructor(readonly bits: u64) {
    super((t: Test): bool => (changetype<DayTest>(t).bits & day) != 0);
  }
}

/** A time of the week. */
export class HoursTest extends Test {
  constructor(readonly hours: Hours) {
    super((t: Test): bool => changetype<HoursTest>(t).hours.has(weekday, minute));
  }
}

/** A number in bounds, both included. */
export class NumberTest extends Test {
  least: i64 = 0;
  most: i64 = i64.MAX_VALUE;

  constructor(readonly number: u32) {
    super((t: Test): bool => {
      const own = changetype<NumberTest>(t);
      const n = load<i64>(numbers + 8 * own.number);
      return n >= own.least && n <= own.most;
    });
  }
}

/** A name that matches one of some patterns. */
export class NameTest extends Test {
  readonly patterns: Patterns = new Patterns();

  constructor(readonly attribute: u32) {
    super((t: Test): bool => {
      const own = changetype<NameTest>(t);
      return own.patterns.match(facts.attr(own.attribute));
    });
  }
}
