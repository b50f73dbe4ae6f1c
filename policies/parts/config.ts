// What the operator configured, read with this folder's reader. A module that uses it exports weir_params_buffer from here
// and the other three functions from the SDK.
import { ATTR_LABEL0, PARAMS_MAX } from "../../sdk/assemblyscript/assembly";
import { Reader, Text, textOf } from "./json";
import { fail, quoted, UNKNOWN_LABEL, UNKNOWN_TIER } from "./refusal";

let buffer: usize = 0;

export function weir_params_buffer(len: i32): usize {
  if (len < 0 || <u32>len > PARAMS_MAX) return 0;
  buffer = heap.alloc(len);
  return buffer;
}

export class Config {
  readonly tiers: Text[];
  readonly labels: Text[];
  readonly params: Reader; // stands at the params

  constructor(len: i32) {
    this.tiers = texts(seek(len, "tiers"));
    this.labels = texts(seek(len, "labels"));
    this.params = seek(len, "params");
  }

  /** Index of the tier of that name; a name that no tier has refuses the params. */
  tier(name: Text): i32 {
    const i = indexOf(this.tiers, name);
    if (i < 0) fail(UNKNOWN_TIER, "tier " + quoted(name.toString()) + " is not configured; tiers: " + listed(this.tiers) + nearest(this.tiers, name));
    return i;
  }

  /** Number of the attribute that carries the label of that name; an unknown one refuses the params. */
  label(name: Text): i32 {
    const i = indexOf(this.labels, name);
    if (i < 0) fail(UNKNOWN_LABEL, "label " + quoted(name.toString()) + " is not in policies.labels: " + listed(this.labels) + nearest(this.labels, name));
    return i < 0 ? -1 : i + <i32>ATTR_LABEL0;
  }
}

/** A label's number as Config.label gives; -1, and no refusal, when it is not configured. */
export function labelIfAny(config: Config, name: string): i32 {
  const i = indexOf(config.labels, textOf(name));
  return i < 0 ? -1 : i + <i32>ATTR_LABEL0;
}

function seek(len: i32, name: string): Reader {
  const json = new Reader(buffer, buffer + len);
  if (!json.object()) return json;
  while (json.member()) {
    if (json.is(name)) break;
    json.skip();
  }
  return json;
}

function texts(json: Reader): Text[] {
  const list: Text[] = [];
  if (json.array()) while (json.element()) list.push(json.text());
  return list;
}

function indexOf(list: Text[], name: Text): i32 {
  for (let i = 0; i < list.length; i++) {
    if (list[i].equals(name)) return i;
  }
  return -1;
}

function listed(names: Text[]): string {
  let line = "";
  for (let i = 0; i < names.length; i++) {
    if (i > 0) line += ", ";
    if (line.length > 60) return line + "…";
    line += names[i].toString();
  }
  return line == "" ? "none" : line;
}

// nearest asks for the name that is at most a third of the word, or two signs, away.
function nearest(names: Text[], word: Text): string {
  let best = max(word.size / 3, 2) + 1;
  let near = "";
  for (let i = 0; i < names.length; i++) {
    const d = distance(word, names[i], best);
    if (d >= best) continue;
    best = d;
    near = names[i].toString();
  }
  return near == "" ? "" : "; did you mean " + quoted(near) + "?";
}

const NEAREST_BYTES: u32 = 64;
const row = memory.data(NEAREST_BYTES + 1);

// distance is Levenshtein's, over bytes; most for what is too long to be looked at.
function distance(a: Text, b: Text, most: u32): u32 {
  if (a.size > NEAREST_BYTES || b.size > NEAREST_BYTES) return most;
  for (let j: u32 = 0; j <= b.size; j++) store<u8>(row + j, <u8>j);
  for (let i: u32 = 1; i <= a.size; i++) {
    let diagonal: u32 = i - 1;
    store<u8>(row, <u8>i);
    for (let j: u32 = 1; j <= b.size; j++) {
      const over: u32 = load<u8>(row + j);
      const cost: u32 = load<u8>(a.ptr + i - 1) == load<u8>(b.ptr + j - 1) ? 0 : 1;
      store<u8>(row + j, <u8>min(min(over, load<u8>(row + j - 1)) + 1, diagonal + cost));
      diagonal = over;
    }
  }
  return load<u8>(row + b.size);
}
