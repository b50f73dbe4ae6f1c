// Other limits outside business hours than inside, or none of it outside: then the denial says when the next hours begin.
// The reason says which: 1 inside, 2 outside.
import { ABSTAINED, decision, facts, MESSAGE_MAX } from "../../sdk/assemblyscript/assembly";
import { messageSince } from "../parts/answer";
import { Change } from "../parts/change";
import { Config } from "../parts/config";
import { Reader, Text, textOf } from "../parts/json";
import { checkZone, DAY, Hours, minuteOfWeek, readTime, readWeekdays, readZone, readZoneTable } from "../parts/moment";
import { at, fail, refusal, TOO_LONG } from "../parts/refusal";

export { weir_abi_version, weir_request, weir_response } from "../../sdk/assemblyscript/assembly/exports";
export { weir_params_buffer } from "../parts/config";

let label: i32 = -1; // every key
const hours = new Hours();
let inside: Change | null = null;
let outside: Change | null = null;
let closed: bool = false;
let status: u32 = 403;
let message: Text = textOf("closed outside business hours");

export function weir_configure(len: i32): i32 {
  const config = new Config(len);
  const json = config.params;
  hours.weekdays = 0x1f; // Monday to Friday
  hours.from = 9 * 60;
  hours.to = 18 * 60;
  if (!json.object()) return refusal();
  while (json.member()) {
    if (json.is("label")) label = config.label(json.text());
    else if (json.is("zone")) readZone(json);
    else if (json.is("zone_table")) readZoneTable(json);
    else if (json.is("weekdays")) hours.weekdays = readWeekdays(json);
    else if (json.is("from")) hours.from = readTime(json);
    else if (json.is("to")) hours.to = readTime(json);
    else if (json.is("inside")) inside = readChange(json, config);
    else if (json.is("outside")) outside = readChange(json, config);
    else if (json.is("closed")) readClosed(json);
    else json.unknown();
  }
  hours.check();
  checkZone();
  return refusal();
}

function readChange(json: Reader, config: Config): Change {
  const change = new Change();
  if (json.object()) while (json.member()) if (!change.take(json, config)) json.unknown();
  return change;
}

function readClosed(json: Reader): void {
  closed = true;
  at("closed: ");
  if (!json.object()) return;
  while (json.member()) {
    if (json.is("status")) status = json.small(400, 499);
    else if (json.is("message")) message = json.text();
    else json.unknown();
  }
  if (message.size > MESSAGE_MAX) fail(TOO_LONG, "a message of more than " + MESSAGE_MAX.toString() + " bytes");
  at("");
}

export function weir_attributes(): i64 {
  return 0xff00; // the labels
}

export function weir_decide(): i32 {
  if (label >= 0 && !facts.attr(label).on) return ABSTAINED;
  const now = minuteOfWeek();
  const open = hours.include(now);
  const change = open ? inside : outside;
  if (!change && (open || !closed)) return ABSTAINED;
  decision.reset();
  decision.reason = open ? 1 : 2;
  if (change) change.apply(false);
  if (!open && closed) {
    decision.deny(status, "", untilOpen(now));
    const used = decision.arenaUsed;
    decision.copy(message.ptr, message.size);
    messageSince(used);
  }
  return decision.done();
}

// untilOpen is the time to the next beginning of the hours, which is at most a week away.
function untilOpen(now: u32): u32 {
  const today = now / DAY;
  for (let days: u32 = 0; days <= 7; days++) {
    const opens = (today + days) * DAY + hours.from;
    if (opens > now && ((hours.weekdays >> ((today + days) % 7)) & 1) != 0) return (opens - now) * 60_000 - <u32>(facts.nowMs % 60_000);
  }
  return 0;
}
