// A dimension that a rule adds, and the values of custom ones: "team:{label.team}" is one meter for each team.
import { decision, facts, KIND_CUSTOM, VALUE_MAX } from "../../sdk/assemblyscript/assembly";
import { pickKinds, valueSince } from "../parts/answer";
import { Config } from "../parts/config";
import { Text } from "../parts/json";
import { BAD_VALUE, fail, quoted, TOO_MANY } from "../parts/refusal";

const MAX_PIECES = 8;

/** A piece of a value: the attribute of that number, or a text. */
export class Piece {
  attribute: i32 = -1;
  ptr: usize = 0;
  size: u32 = 0;

  // meet finds where the piece lies in this call; false when there is nothing.
  meet(): bool {
    if (this.attribute < 0) return true;
    const a = facts.attr(this.attribute);
    this.ptr = a.ptr;
    this.size = a.length;
    return this.size > 0;
  }
}

export class Extra {
  kind: u32 = 0;
  qpsLimit: u32 = 0;
  tpmLimit: u32 = 0;
  multiplier: u32 = 0;
  burst: u32 = 0;
  cost: u32 = 0;
  tier: i32 = -1;
  countOnly: bool = false;
  shadow: bool = false;
  pieces: Piece[] = [];

  /** Picks it, after the ones that stand beside every rule's. Left out when its value needs what the request has not. */
  pick(): void {
    let size: u32 = 0;
    for (let i = 0; i < this.pieces.length; i++) {
      const p = unchecked(this.pieces[i]);
      if (!p.meet()) return;
      size += p.size;
    }
    if (!extended) {
      extended = true;
      pickKinds();
    }
    const d = decision.pick(this.kind).skipIfAbsent().tier(this.tier);
    d.qpsLimit = this.qpsLimit;
    d.tpmLimit = this.tpmLimit;
    d.multiplier = this.multiplier;
    d.burst = this.burst;
    d.costMultiplier = this.cost;
    if (this.countOnly) d.countOnly();
    if (this.shadow) d.shadow();
    if (this.kind != KIND_CUSTOM) return;
    const used = decision.arenaUsed;
    if (size > VALUE_MAX) this.writeLong();
    else this.write();
    valueSince(d, used);
  }

  private write(): void {
    for (let i = 0; i < this.pieces.length; i++) {
      const p = unchecked(this.pieces[i]);
      decision.copy(p.ptr, p.size);
    }
  }

  // writeLong keeps the beginning, cut between characters, and a hash of the whole, so that long values stay apart.
  private writeLong(): void {
    let room: u32 = VALUE_MAX - 17;
    let hash: u64 = 0xcbf29ce484222325;
    for (let i = 0; i < this.pieces.length; i++) {
      const p = unchecked(this.pieces[i]);
      hash = mix(hash, p.ptr, p.size);
      let n = min(p.size, room);
      while (n > 0 && n < p.size && (load<u8>(p.ptr + n) & 0xc0) == 0x80) n--;
      decision.copy(p.ptr, n);
      room = n < p.size ? 0 : room - n;
    }
    store<u8>(hex, 0x7e); // ~
    for (let i: usize = 1; i <= 16; i++, hash >>= 4) {
      const digit = <u32>(hash & 15);
      store<u8>(hex + i, digit < 10 ? 0x30 + digit : 0x57 + digit);
    }
    decision.copy(hex, 17);
  }
}

const hex = memory.data(17);
let extended = false;

/** Forgets the call before. */
export function resetExtras(): void {
  extended = false;
}

// mix is FNV-1a by words of eight bytes, folded so that the upper half counts.
function mix(hash: u64, ptr: usize, size: u32): u64 {
  for (let i: u32 = 0; i < size; i += 8) {
    let word = load<u64>(ptr + i);
    if (size - i < 8) word &= (<u64>1 << (8 * (size - i))) - 1;
    hash = (hash ^ word) * 0x100000001b3;
    hash ^= hash >> 32;
  }
  return hash ^ size;
}

// The names a template may hold, by the numbers of their attributes.
const ATTRIBUTES: string = "model key_name user_name org_name end_user client_ip tier provider";

/** Reads a template: texts, and names in braces. */
export function readValue(template: Text, config: Config): Piece[] {
  const pieces: Piece[] = [];
  const end = template.ptr + template.size;
  for (let from = template.ptr; from < end; ) {
    const braced = load<u8>(from) == 0x7b;
    const to = seek(from + 1, end, braced ? 0x7d : 0x7b);
    const p = new Piece();
    if (braced) {
      if (to == end) fail(BAD_VALUE, "a brace is not closed in " + quoted(template.toString()));
      p.attribute = attribute(new Text(from + 1, <u32>(to - from - 1)), config);
      from = to + 1;
    } else {
      p.ptr = from;
      p.size = <u32>(to - from);
      from = to;
    }
    pieces.push(p);
  }
  if (pieces.length > MAX_PIECES) fail(TOO_MANY, "more than " + MAX_PIECES.toString() + " pieces in " + quoted(template.toString()));
  return pieces;
}

function seek(from: usize, end: usize, c: u8): usize {
  while (from < end && load<u8>(from) != c) from++;
  return from;
}

function attribute(name: Text, config: Config): i32 {
  const word = name.toString();
  if (word.startsWith("label.")) return config.label(new Text(name.ptr + 6, name.size - 6));
  const i = name.among(ATTRIBUTES);
  if (i < 0) fail(BAD_VALUE, quoted(word) + " in braces is none of " + ATTRIBUTES + " label.NAME");
  return i;
}
