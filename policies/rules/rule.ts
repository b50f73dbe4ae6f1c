// One rule as a decision reads it: everything was read, checked and laid out while the module was configured.
import { Change } from "../parts/change";
import { NO_TEXT, Text } from "../parts/json";
import { Extra } from "./extra";
import { Test } from "./test";

export const PASSES: u32 = 0;
export const DENIES: u32 = 1;
export const SHADOW_DENIES: u32 = 2;

export class Rule {
  number: u16 = 0; // from 1
  name: Text = NO_TEXT;
  tests: Test[] = []; // all must hold
  change: Change = new Change();
  extras: Extra[] = [];
  verdict: u32 = PASSES;
  status: u32 = 403;
  retryAfterMs: u32 = 0;
  message: Text = NO_TEXT;

  /** Reports that the request is what the rule is for. */
  matches(): bool {
    const tests = this.tests;
    for (let i = tests.length - 1; i >= 0; i--) {
      const test = unchecked(tests[i]);
      if (!test.holds(test)) return false;
    }
    return true;
  }

  /** Adds what the rule wants to the decision. */
  apply(tierChosen: bool): void {
    this.change.apply(tierChosen);
    for (let i = 0; i < this.extras.length; i++) unchecked(this.extras[i]).pick();
  }
}
