// The keys with the same label "team" share one limit, and at night each key may ask faster.
import { ABSTAINED, Config, decision, facts, KIND_CUSTOM, KIND_GLOBAL, KIND_KEY, KIND_MODEL } from "./weir";
export * from "./weir/exports"; // what every module exports

let team: i32 = -1;
let teamQps: u32 = 0;
let nightPermille: u32 = 0;

// Once per instance: what depends on the configuration. Anything but 0 refuses the activation.
export function weir_configure(len: i32): i32 {
  const config = new Config(len);
  team = config.label("team");
  teamQps = <u32>config.params.get("team_qps").integer(10);
  nightPermille = <u32>config.params.get("night_permille").integer(2000);
  return 0;
}

// Once per request: which limits apply. The gateway then decides whether they are met.
export function weir_decide(): i32 {
  if (team < 0 || facts.attr(team).absent) return ABSTAINED;
  decision.reset();
  decision.pick(KIND_KEY);
  decision.pick(KIND_MODEL);
  decision.pick(KIND_GLOBAL);
  decision.pick(KIND_CUSTOM).text("team:").attr(facts.attr(team)).qpsLimit = teamQps;
  const minute = facts.minuteOfWeek % 1440;
  if (minute < 6 * 60 || minute >= 22 * 60) decision.qpsMultiplier = nightPermille;
  return decision.done();
}
