// The policy that is active unless another is chosen. A key's label "tier" puts it into the tier of that name; a
// label "soft" lets its month run to 110 %. A key with neither gets the gateway's own defaults.
import { ABSTAINED, Config, decision, facts } from "../../sdk/assemblyscript/assembly";

export * from "../../sdk/assemblyscript/assembly/exports";

let tiers: string[] = [];
let tierLabel: i32 = -1;
let softLabel: i32 = -1;
let softPermille: u32 = 1100;

export function weir_configure(len: i32): i32 {
  const config = new Config(len);
  tiers = config.tiers;
  tierLabel = config.label(config.params.get("tier_label").string("tier"));
  softLabel = config.label(config.params.get("soft_label").string("soft"));
  softPermille = <u32>config.params.get("soft_permille").integer(1100);
  return 0;
}

export function weir_attributes(): i64 {
  return 0xff00; // the labels
}

export function weir_decide(): i32 {
  const tier = chosenTier();
  const soft = softLabel >= 0 && facts.attr(softLabel).on;
  if (tier < 0 && !soft) return ABSTAINED;
  decision.reset();
  decision.tier(tier);
  if (soft) decision.quotaMultiplier = softPermille;
  return decision.done();
}

// chosenTier is the index of the tier that the label names; -1 for no label, and for a name that no tier has.
function chosenTier(): i32 {
  if (tierLabel < 0) return -1;
  const name = facts.attr(tierLabel);
  if (name.absent) return -1;
  for (let i = 0; i < tiers.length; i++) {
    if (name.equals(tiers[i])) return i;
  }
  return -1;
}
