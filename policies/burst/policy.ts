// Short bursts above a key's limits. What a burst takes is paid back by the window itself: under the sliding rule ten windows
// hold ten limits, however one of them was spent, and a token bucket refills at the base rate. The reason is 1 for a burst.
import { ABSTAINED, ATTR_MODEL, decision, facts, MAX_MULTIPLIER } from "../../sdk/assemblyscript/assembly";
import { monthUsed } from "../parts/change";
import { Config } from "../parts/config";
import { Reader } from "../parts/json";
import { Patterns } from "../parts/pattern";
import { refusal } from "../parts/refusal";

export { weir_abi_version, weir_request, weir_response } from "../../sdk/assemblyscript/assembly/exports";
export { weir_params_buffer } from "../parts/config";

let label: i32 = -1; // every key
let permille: u32 = 3000;
let tiers: StaticArray<u32> = []; // by index; 0: permille
let models: Patterns | null = null; // every model
let maxTokens: u64 = 0; // any
let untilPermille: i64 = 900;

export function weir_configure(len: i32): i32 {
  const config = new Config(len);
  const json = config.params;
  tiers = new StaticArray<u32>(config.tiers.length);
  if (!json.object()) return refusal();
  while (json.member()) {
    if (json.is("label")) label = config.label(json.text());
    else if (json.is("burst_permille")) permille = json.small(1000, MAX_MULTIPLIER);
    else if (json.is("tiers")) readTiers(json, config);
    else if (json.is("models")) models = readModels(json);
    else if (json.is("max_tokens")) maxTokens = json.integer(0, u32.MAX_VALUE);
    else if (json.is("until_month_permille")) untilPermille = json.integer(1, MAX_MULTIPLIER);
    else json.unknown();
  }
  return refusal();
}

function readTiers(json: Reader, config: Config): void {
  if (!json.object()) return;
  while (json.member()) {
    const tier = config.tier(json.key());
    const factor = json.small(1000, MAX_MULTIPLIER);
    if (tier >= 0) tiers[tier] = factor;
  }
}

function readModels(json: Reader): Patterns {
  const patterns = new Patterns();
  patterns.read(json);
  return patterns;
}

export function weir_attributes(): i64 {
  return 0xff01; // the model and the labels
}

export function weir_decide(): i32 {
  if (label >= 0 && !facts.attr(label).on) return ABSTAINED;
  if (models && !models!.match(facts.attr(ATTR_MODEL))) return ABSTAINED;
  if (maxTokens > 0 && <u64>facts.inputTokens + facts.outputTokensMax > maxTokens) return ABSTAINED;
  if (monthUsed() >= untilPermille) return ABSTAINED;
  const tier = facts.tier < <u32>tiers.length ? unchecked(tiers[facts.tier]) : 0;
  const factor = tier > 0 ? tier : permille;
  if (factor == 1000) return ABSTAINED;
  decision.reset();
  decision.burst = factor;
  decision.reason = 1;
  return decision.done();
}
