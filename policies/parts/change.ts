// What a module may change about a request beside its dimensions, as params write it.
import { decision, facts, MAX_MULTIPLIER } from "../../sdk/assemblyscript/assembly";
import { Config } from "./config";
import { Reader } from "./json";

/** Factors in 1/1000, a cap and a tier. */
export class Change {
  private qps: u32 = 0; // 0 is 1000
  private tpm: u32 = 0;
  private month: u32 = 0;
  private burst: u32 = 0;
  private price: u32 = 0;
  private outputTokensCap: u32 = 0; // 0: none
  private tier: i32 = -1;

  /** Reads the member that the reader stands at; false, and nothing read, when it is none of a change's. */
  take(json: Reader, config: Config): bool {
    if (json.is("qps_permille")) this.qps = json.small(1, MAX_MULTIPLIER);
    else if (json.is("tpm_permille")) this.tpm = json.small(1, MAX_MULTIPLIER);
    else if (json.is("month_permille")) this.month = json.small(1, MAX_MULTIPLIER);
    else if (json.is("burst_permille")) this.burst = json.small(1, MAX_MULTIPLIER);
    else if (json.is("price_permille")) this.price = json.small(1000, MAX_MULTIPLIER);
    else if (json.is("output_tokens_cap")) this.outputTokensCap = json.small(1, u32.MAX_VALUE);
    else if (json.is("tier")) this.tier = config.tier(json.text());
    else return false;
    return true;
  }

  /** Adds it to the decision: factors multiply, the smaller cap counts, and a tier unless one was chosen before. */
  apply(tierChosen: bool): void {
    decision.qpsMultiplier = times(decision.qpsMultiplier, this.qps);
    decision.tpmMultiplier = times(decision.tpmMultiplier, this.tpm);
    decision.quotaMultiplier = times(decision.quotaMultiplier, this.month);
    decision.burst = times(decision.burst, this.burst);
    decision.priceMultiplier = times(decision.priceMultiplier, this.price);
    decision.outputTokensCap = tighter(decision.outputTokensCap, this.outputTokensCap);
    if (!tierChosen) decision.tier(this.tier);
  }

  get choosesTier(): bool {
    return this.tier >= 0;
  }
}

function times(a: u32, b: u32): u32 {
  if (a == 0) return b;
  if (b == 0) return a;
  return <u32>min(max((<u64>a * b) / 1000, 1), MAX_MULTIPLIER);
}

function tighter(a: u32, b: u32): u32 {
  return a == 0 ? b : b == 0 ? a : min(a, b);
}

/** The share of the month's quota that is posted or held, in 1/1000 and rounded down; -1 without a quota. */
export function monthUsed(): i64 {
  let limit = facts.quotaLimit;
  if (limit <= 0) return -1;
  const used = max(facts.quotaUsed, 0);
  let rest = used % limit;
  const whole = min(used / limit, MAX_MULTIPLIER);
  while (rest > i64.MAX_VALUE / 1000) {
    rest >>= 1;
    limit >>= 1;
  }
  return whole * 1000 + min(rest * 1000 / limit, 999);
}
