// One limit for each model on each channel, so that a storm on one provider's model leaves the others alone. Both kinds of
// channel dimensions are tested per attempt, when the channel is known. The reason is the number of the limit, from 1.
import {
  ATTR_MODEL, decision, Dimension, facts, KIND_CHANNEL, KIND_MODEL_CHANNEL, MAX_MULTIPLIER,
} from "../../sdk/assemblyscript/assembly";
import { pickKinds, pickOnce, readKinds } from "../parts/answer";
import { Config } from "../parts/config";
import { Reader } from "../parts/json";
import { Patterns } from "../parts/pattern";
import { at, fail, refusal, TOO_MANY } from "../parts/refusal";

export { weir_abi_version, weir_request, weir_response } from "../../sdk/assemblyscript/assembly/exports";
export { weir_params_buffer } from "../parts/config";

const MAX_LIMITS = 32;

class Limit {
  models: Patterns | null = null; // every model
  qps: u32 = 0; // 0: as configured
  tpm: u32 = 0;
  burst: u32 = 0;
  shadow: bool = false;

  put(d: Dimension): void {
    d.qpsLimit = this.qps;
    d.tpmLimit = this.tpm;
    d.burst = this.burst;
    if (this.shadow) d.shadow();
  }
}

const limits: Limit[] = [];
let channel: Limit | null = null;

export function weir_configure(len: i32): i32 {
  const json = new Config(len).params;
  if (!json.object()) return refusal();
  while (json.member()) {
    if (json.is("dimensions")) readKinds(json);
    else if (json.is("channel")) channel = readLimit(json);
    else if (!json.is("limits") || limits.length > 0) json.unknown();
    else if (json.array()) {
      while (json.element()) {
        at("limit " + (limits.length + 1).toString() + ": ");
        limits.push(readLimit(json));
      }
      at("");
      if (limits.length > MAX_LIMITS) fail(TOO_MANY, "more than " + MAX_LIMITS.toString() + " limits");
    }
  }
  return refusal();
}

function readLimit(json: Reader): Limit {
  const l = new Limit();
  if (!json.object()) return l;
  while (json.member()) {
    if (json.is("models")) {
      const models = new Patterns();
      models.read(json);
      l.models = models;
    } else if (json.is("qps_limit")) l.qps = json.small(0, u32.MAX_VALUE);
    else if (json.is("tpm_limit")) l.tpm = json.small(0, u32.MAX_VALUE);
    else if (json.is("burst_permille")) l.burst = json.small(1, MAX_MULTIPLIER);
    else if (json.is("shadow")) l.shadow = json.bool();
    else json.unknown();
  }
  return l;
}

export function weir_attributes(): i64 {
  return 1; // the model
}

export function weir_decide(): i32 {
  decision.reset();
  pickKinds();
  const model = facts.attr(ATTR_MODEL);
  const pair = pickOnce(KIND_MODEL_CHANNEL);
  for (let i = 0; i < limits.length; i++) {
    const l = unchecked(limits[i]);
    if (l.models && !l.models!.match(model)) continue;
    l.put(pair);
    decision.reason = <u16>(i + 1);
    break;
  }
  if (channel) channel!.put(pickOnce(KIND_CHANNEL));
  return decision.done();
}
