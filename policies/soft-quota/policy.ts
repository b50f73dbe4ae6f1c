// A month that does not end with a wall: in its last days the quota stretches, and who has spent the month's own share goes
// on in a cheaper tier. The reason says which: 1 stretched, 2 the cheaper tier.
import { ABSTAINED, decision, facts, MAX_MULTIPLIER } from "../../sdk/assemblyscript/assembly";
import { Change, monthUsed } from "../parts/change";
import { Config } from "../parts/config";
import { refusal } from "../parts/refusal";

export { weir_abi_version, weir_request, weir_response } from "../../sdk/assemblyscript/assembly/exports";
export { weir_params_buffer } from "../parts/config";

let label: i32 = -1; // every key
let permille: u32 = 1100;
let lastDays: u32 = 3;
let spentPermille: i64 = 1000;
const cheaper = new Change();

export function weir_configure(len: i32): i32 {
  const config = new Config(len);
  const json = config.params;
  if (!json.object()) return refusal();
  while (json.member()) {
    if (json.is("label")) label = config.label(json.text());
    else if (json.is("permille")) permille = json.small(1000, MAX_MULTIPLIER);
    else if (json.is("last_days")) lastDays = json.small(0, 31);
    else if (json.is("spent_permille")) spentPermille = json.integer(1, MAX_MULTIPLIER);
    else if (!cheaper.take(json, config)) json.unknown();
  }
  return refusal();
}

export function weir_attributes(): i64 {
  return 0xff00; // the labels
}

export function weir_decide(): i32 {
  if (label >= 0 && !facts.attr(label).on) return ABSTAINED;
  const used = monthUsed();
  if (used < 0) return ABSTAINED; // no monthly quota
  const ending = <u32>facts.daysInMonth - facts.dayOfMonth < lastDays;
  const spent = used >= spentPermille;
  if (!ending && !spent) return ABSTAINED;
  decision.reset();
  if (ending) decision.quotaMultiplier = permille;
  if (spent) cheaper.apply(false);
  decision.reason = spent ? 2 : 1;
  return decision.done();
}
