// A reader for the configuration: the host wrote it, so it is valid JSON. It runs once per instance, where strings may
// be made; a value that is missing or of another type reads as the fallback.
//
// The document is read once, front to back, into nodes that follow each other: a value is followed by what it contains, in
// an object a name, then its value. Looking up a member then steps over values instead of reading them again.
import { match } from "./memory";

const QUOTES: u64 = 0x2222222222222222;
const BACKSLASHES: u64 = 0x5c5c5c5c5c5c5c5c;

// marks tells which of the eight bytes at ptr are c (repeated in every byte of all), by their highest bits; exact up to the
// first. Behind the configuration there is room.
// @ts-ignore: decorator
@inline
function marks(ptr: usize, all: u64): u64 {
  const x = load<u64>(ptr) ^ all;
  return (x - 0x0101010101010101) & ~x & 0x8080808080808080;
}

/** The first quote or backslash from ptr on, or end. */
function plainEnd(ptr: usize, end: usize): usize {
  for (; ptr < end; ptr += 8) {
    const found = marks(ptr, QUOTES) | marks(ptr, BACKSLASHES);
    if (found != 0) return min(ptr + <usize>(ctz(found) >> 3), end);
  }
  return end;
}

/** The end of the string that starts at ptr. */
function stringEnd(ptr: usize, end: usize): usize {
  for (ptr = plainEnd(ptr + 1, end); ptr < end; ptr = plainEnd(ptr + 2, end)) { // a backslash and what it escapes
    if (load<u8>(ptr) == 0x22) return ptr + 1; // "
  }
  return end;
}

/** The end of the blanks, commas and colons from ptr on. */
function separatorsEnd(ptr: usize, end: usize): usize {
  for (; ptr < end; ptr++) {
    const c = load<u8>(ptr);
    if (c > 0x20 && c != 0x2c && c != 0x3a) break;
  }
  return ptr;
}

/** The first backslash from ptr on, or end. */
function backslash(ptr: usize, end: usize): usize {
  for (; ptr < end; ptr += 8) {
    const found = marks(ptr, BACKSLASHES);
    if (found != 0) return min(ptr + <usize>(ctz(found) >> 3), end);
  }
  return end;
}

/** A string of the UTF-8 at ptr. The standard library's decoder costs several times as much fuel for each byte. */
function toString(ptr: usize, len: usize): string {
  const end = ptr + len;
  const units = __new(len << 1, idof<string>());
  let to = units;
  while (ptr < end) {
    let c: u32 = load<u8>(ptr);
    while (c < 0x80 && ptr < end) {
      store<u16>(to, c);
      to += 2;
      c = load<u8>(++ptr);
    }
    if (ptr >= end) break;
    const more = c < 0xe0 ? 1 : c < 0xf0 ? 2 : 3;
    c &= 0x3f >> more;
    for (let i = 0; i < more; i++) c = (c << 6) | (load<u8>(++ptr) & 0x3f);
    ptr++;
    if (c > 0xffff) {
      store<u16>(to, 0xd7c0 + (c >> 10)); // 0xd800 - (0x10000 >> 10)
      to += 2;
      c = 0xdc00 | (c & 0x3ff);
    }
    store<u16>(to, c);
    to += 2;
  }
  return changetype<string>(__renew(units, to - units));
}

/** The end of the number or word that starts at ptr. */
function wordEnd(ptr: usize, end: usize): usize {
  for (ptr++; ptr < end; ptr++) {
    const c = load<u8>(ptr);
    if (c <= 0x20 || c == 0x2c || c == 0x3a || c == 0x5d || c == 0x7d) break; // , : ] }
  }
  return ptr;
}

/** One value of the configuration. */
@unmanaged
export class Json {
  private from: usize; // its text
  private to: usize;
  private next: usize; // where what it contains ends
  private parent: usize; // only while reading

  /** Reads a document. */
  static read(ptr: usize, end: usize): Json {
    let room: usize = 64;
    let count: usize = 0;
    let nodes = heap.alloc(room * NODE);
    let parent: usize = NONE; // nodes by their number: they may move while they become more
    for (;;) {
      ptr = separatorsEnd(ptr, end);
      if (ptr >= end) break;
      const c = load<u8>(ptr);
      if (c == 0x5d || c == 0x7d) { // ] }
        if (parent == NONE) break;
        const closed = changetype<Json>(nodes + parent * NODE);
        closed.to = ++ptr;
        closed.next = count;
        parent = closed.parent;
        continue;
      }
      if (count == room) nodes = heap.realloc(nodes, (room <<= 1) * NODE);
      const node = changetype<Json>(nodes + count * NODE);
      node.from = ptr;
      node.to = end;
      node.parent = parent;
      node.next = ++count;
      if (c == 0x5b || c == 0x7b) { // [ {
        parent = count - 1;
        ptr++;
      } else {
        ptr = node.to = c == 0x22 ? stringEnd(ptr, end) : wordEnd(ptr, end);
      }
    }
    while (parent != NONE) { // of a broken document
      const open = changetype<Json>(nodes + parent * NODE);
      open.next = count;
      parent = open.parent;
    }
    for (let i: usize = 0; i < count; i++) changetype<Json>(nodes + i * NODE).next = nodes + changetype<Json>(nodes + i * NODE).next * NODE;
    return count > 0 ? changetype<Json>(nodes) : nothing();
  }

  private get first(): u8 {
    return this.from < this.to ? load<u8>(this.from) : 0;
  }

  /** Reports that there is no such value, or that it is null. */
  get absent(): bool {
    return this.first == 0 || this.first == 0x6e; // n
  }

  /** A member of an object. */
  get(name: string): Json {
    if (this.first == 0x7b) { // {
      const end = this.next;
      let key = changetype<usize>(this) + NODE;
      while (key < end) {
        const value = changetype<Json>(key).next;
        if (value >= end) break;
        if (changetype<Json>(key).is(name)) return changetype<Json>(value);
        key = changetype<Json>(value).next;
      }
    }
    return nothing();
  }

  /** The elements of an array; none for anything else. */
  elements(): Json[] {
    const list: Json[] = [];
    if (this.first != 0x5b) return list; // [
    for (let at = changetype<usize>(this) + NODE; at < this.next; at = changetype<Json>(at).next) list.push(changetype<Json>(at));
    return list;
  }

  /** Reports whether it is this string. */
  is(text: string): bool {
    if (this.first != 0x22) return false;
    if (this.escaped) return this.string("") == text;
    const size = <u32>(this.to - this.from) - 2;
    return match(this.from + 1, size, text) == <i32>size;
  }

  private get escaped(): bool {
    return backslash(this.from, this.to) < this.to;
  }

  bool(fallback: bool): bool {
    const c = this.first;
    return c == 0x74 ? true : c == 0x66 ? false : fallback; // t f
  }

  /** A whole number; a fraction or an exponent reads as the fallback. */
  integer(fallback: i64): i64 {
    let p = this.from;
    const negative = this.first == 0x2d; // -
    if (negative) p++;
    if (p >= this.to) return fallback;
    let n: i64 = 0;
    for (; p < this.to; p++) {
      const digit = load<u8>(p) - 0x30;
      if (digit > 9 || n > 900_000_000_000_000_000) return fallback;
      n = n * 10 + digit;
    }
    return negative ? -n : n;
  }

  string(fallback: string): string {
    if (this.first != 0x22) return fallback;
    const from = this.from + 1;
    const to = max(from, this.to - 1);
    if (!this.escaped) return toString(from, to - from);
    const out = heap.alloc(to - from + 4);
    return toString(out, decode(from, to, out));
  }
}

/** Writes a text without its escapes to out; gives its length in bytes. */
function decode(from: usize, to: usize, out: usize): usize {
  let size: usize = 0;
  while (from < to) {
    const run = backslash(from, to) - from;
    memory.copy(out + size, from, run);
    size += run;
    from += run + 1;
    if (from > to) break;
    const letter = load<u8>(from++);
    if (letter != 0x75) { // u
      store<u8>(out + size++, control(letter));
      continue;
    }
    let point = hex(from);
    from += 4;
    if ((point & 0xfc00) == 0xd800 && from + 6 <= to && load<u16>(from) == 0x755c && (hex(from + 2) & 0xfc00) == 0xdc00) { // \u
      point = 0x10000 + ((point & 0x3ff) << 10) + (hex(from + 2) & 0x3ff);
      from += 6;
    }
    size += encodePoint((point & 0x1ff800) == 0xd800 ? 0xfffd : point, out + size); // half a pair is no character
  }
  return size;
}

/** What the letter of an escape stands for. */
function control(letter: u8): u8 {
  switch (letter) {
    case 0x62: return 0x08;
    case 0x66: return 0x0c;
    case 0x6e: return 0x0a;
    case 0x72: return 0x0d;
    case 0x74: return 0x09;
  }
  return letter;
}

function hex(ptr: usize): u32 {
  let n: u32 = 0;
  for (let i: usize = 0; i < 4; i++) {
    const c = <u32>load<u8>(ptr + i);
    n = (n << 4) | (c <= 0x39 ? c - 0x30 : (c | 0x20) - 0x57) & 15;
  }
  return n;
}

/** Writes a code point as UTF-8; it takes no more room than the escape that it stood as. */
function encodePoint(c: u32, to: usize): usize {
  if (c < 0x80) {
    store<u8>(to, c);
    return 1;
  }
  const more: usize = c < 0x800 ? 1 : c < 0x10000 ? 2 : 3;
  for (let i = more; i > 0; i--, c >>= 6) store<u8>(to + i, 0x80 | (c & 0x3f));
  store<u8>(to, (0xf00 >> <u32>(more + 1)) | c);
  return more + 1;
}

const NODE = offsetof<Json>();
const NONE: usize = usize.MAX_VALUE;

/** A value that is not there. */
function nothing(): Json {
  return changetype<Json>(memory.data(16, 4));
}
