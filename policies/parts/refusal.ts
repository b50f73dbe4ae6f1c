// How the shipped modules refuse params that their schema cannot judge: the first reason is logged, which puts it into the
// answer to the activation, and its code is what weir_configure returns.
import { log, LOG_ERROR } from "../../sdk/assemblyscript/assembly";

export const MALFORMED: i32 = 1; // another type, an unknown member, a number out of range or not written plainly (1e3)
export const TOO_MANY: i32 = 2; // rules, patterns, dimensions or parts of a value
export const UNKNOWN_LABEL: i32 = 3; // not one of the configuration's policies.labels
export const UNKNOWN_TIER: i32 = 4; // not one of the configuration's tiers
export const EMPTY_TIME: i32 = 5; // from and to are the same time
export const BAD_VALUE: i32 = 6; // a template with an unknown name or an open brace
export const TOO_LONG: i32 = 7; // bytes of a text
export const UNKNOWN_TABLE: i32 = 8; // a name that no table has

let code: i32 = 0;
let place: string = "";

/** Says where what follows is, for instance "rule 3: ". */
export function at(where: string): void {
  place = where;
}

/** Notes a reason to refuse; the first one counts. */
export function fail(reason: i32, text: string): void {
  if (code != 0) return;
  code = reason;
  log(LOG_ERROR, place + text);
}

/** What weir_configure returns: 0 when nothing failed. */
export function refusal(): i32 {
  return code;
}

/** A name for a message, short enough for a line of the log. */
export function quoted(name: string): string {
  return '"' + (name.length > 40 ? name.substring(0, 40) + "…" : name) + '"';
}
