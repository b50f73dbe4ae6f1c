// Five dimensions instead of three: beside the key, the model and the whole gateway, a user's keys share one limit, and
// so does each key's use of one model. In the tier "free", models labelled "hot" get half of the key's tokens.
import {
  Config, decision, facts, KIND_GLOBAL, KIND_KEY, KIND_KEY_MODEL, KIND_MODEL, KIND_USER,
} from "../../sdk/assemblyscript/assembly";

export * from "../../sdk/assemblyscript/assembly/exports";

let freeTier: i32 = -1;
let hotLabel: i32 = -1;
let hotPermille: u32 = 500;
let pairQps: u32 = 0;
let pairTpm: u32 = 0;

export function weir_configure(len: i32): i32 {
  const config = new Config(len);
  const params = config.params;
  freeTier = config.tier(params.get("tier").string("free"));
  hotLabel = config.label(params.get("label").string("hot"));
  hotPermille = <u32>params.get("tpm_permille").integer(500);
  pairQps = <u32>params.get("key_model_qps").integer(0);
  pairTpm = <u32>params.get("key_model_tpm").integer(0);
  return 0;
}

export function weir_attributes(): i64 {
  return 0xff00; // the labels
}

export function weir_decide(): i32 {
  decision.reset();
  if (<i32>facts.tier == freeTier && hotLabel >= 0 && facts.attr(hotLabel).on) decision.tpmMultiplier = hotPermille;
  decision.pick(KIND_KEY);
  decision.pick(KIND_MODEL);
  decision.pick(KIND_GLOBAL);
  decision.pick(KIND_USER);
  const pair = decision.pick(KIND_KEY_MODEL);
  pair.qpsLimit = pairQps;
  pair.tpmLimit = pairTpm;
  return decision.done();
}
