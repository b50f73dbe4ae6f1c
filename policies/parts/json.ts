// A reader that walks the configuration once, front to back, in place: 64 KiB must be read with the fuel and the memory of one
// start, and nothing is freed. The host has checked that the document is JSON and fits the schema; what
// does not fit here all the same is refused, never skipped: a condition that was not understood must not be lost.
import { fail, MALFORMED } from "./refusal";

const QUOTE: u8 = 0x22;
const COMMA: u8 = 0x2c;
const BACKSLASH: u8 = 0x5c;
const QUOTES: u64 = 0x2222222222222222;
const BACKSLASHES: u64 = 0x5c5c5c5c5c5c5c5c;

/** UTF-8 that lives as long as the instance. */
export class Text {
  constructor(readonly ptr: usize, readonly size: u32) {}

  equals(other: Text): bool {
    return this.size == other.size && memory.compare(this.ptr, other.ptr, this.size) == 0;
  }

  /** Which of the words, which have blanks between them, it is; -1: none. */
  among(words: string): i32 {
    return wordAt(this.ptr, this.ptr + this.size, words);
  }

  toString(): string {
    return String.UTF8.decodeUnsafe(this.ptr, this.size);
  }
}

export const NO_TEXT = new Text(0, 0);

/** UTF-8 of a text in the source. */
export function textOf(source: string): Text {
  const size = <u32>String.UTF8.byteLength(source);
  const ptr = heap.alloc(size);
  String.UTF8.encodeUnsafe(changetype<usize>(source), source.length, ptr);
  return new Text(ptr, size);
}

export class Reader {
  private keyAt: usize = 0;
  private keyEnd: usize = 0;

  constructor(private at: usize, private end: usize) {}

  /** Enters an object; false, and past the value, when it is none. Then: while (member()) read one value. */
  object(): bool {
    return this.enters(0x7b, "an object");
  }

  /** Enters an array, as object does. Then: while (element()) read one value. */
  array(): bool {
    return this.enters(0x5b, "an array");
  }

  /** Moves to the next member's value; false at the object's end. */
  member(): bool {
    if (!this.more(QUOTE)) return false;
    this.keyAt = this.at + 1;
    this.skipString();
    this.keyEnd = this.at - 1;
    this.blanks();
    this.at++; // :
    return true;
  }

  /** Moves to the next element; false at the array's end. */
  element(): bool {
    return this.more(0);
  }

  /** Reports that the member is called so. One written with escapes is not, and ends up unknown. */
  is(name: string): bool {
    return spells(this.keyAt, this.keyEnd, name);
  }

  /** Which of the words, which have blanks between them, the member is called; -1: none. */
  among(words: string): i32 {
    return wordAt(this.keyAt, this.keyEnd, words);
  }

  /** The member's name. */
  key(): Text {
    return decode(this.keyAt, this.keyEnd);
  }

  /** Refuses the member, and skips its value. */
  unknown(): void {
    fail(MALFORMED, "unknown member " + this.keyStart());
    this.skip();
  }

  /** A text, its escapes undone. */
  text(): Text {
    if (this.first() != QUOTE) return this.mismatch<Text>("a text", NO_TEXT);
    const from = this.at + 1;
    this.skipString();
    return decode(from, this.at - 1);
  }

  /** Which of the words, which have blanks between them, a text is. */
  word(words: string): i32 {
    if (this.first() != QUOTE) return this.mismatch<i32>("a text", 0);
    const from = this.at + 1;
    this.skipString();
    const i = wordAt(from, this.at - 1, words);
    if (i < 0) this.refuse("want one of " + words);
    return max(i, 0);
  }

  bool(): bool {
    const c = this.first();
    if (c != 0x74 && c != 0x66) return this.mismatch<bool>("true or false", false);
    this.skip();
    return c == 0x74;
  }

  /** A whole number from least to most. */
  integer(least: i64, most: i64): i64 {
    const c = this.first();
    if (c != 0x2d && !digit(c)) return this.mismatch<i64>("a number", least);
    if (c == 0x2d) this.at++;
    let n: i64 = 0;
    let plain = true;
    for (; digit(this.peek()); this.at++) {
      plain = plain && n < 900_000_000_000_000_000;
      n = n * 10 + (this.peek() - 0x30);
    }
    if (c == 0x2d) n = -n;
    const next = this.peek();
    if (next == 0x2e || (next | 0x20) == 0x65) plain = false; // . e
    this.skip();
    if (plain && n >= least && n <= most) return n;
    this.refuse("want a whole number in plain digits from " + least.toString() + " to " + most.toString());
    return least;
  }

  /** The same as integer, for fields of 32 bits. */
  small(least: u32, most: u32): u32 {
    return <u32>this.integer(least, most);
  }

  /** Skips the rest of a value. */
  skip(): void {
    let depth = 0;
    this.blanks();
    for (; this.at < this.end; this.at++) {
      const c = load<u8>(this.at);
      if (c == QUOTE) {
        this.skipString();
        this.at--;
      } else if (c == 0x7b || c == 0x5b) {
        depth++;
      } else if (c == 0x7d || c == 0x5d) {
        if (depth-- == 0) return;
      } else if (c == COMMA && depth == 0) {
        return;
      }
    }
  }

  private enters(open: u8, what: string): bool {
    if (this.first() != open) return this.mismatch<bool>(what, false);
    this.at++;
    return true;
  }

  // more goes past a comma; at the end of the object or array, past that. A want of 0 is any value.
  private more(want: u8): bool {
    if (this.first() == COMMA) this.at++;
    const c = this.first();
    if (c != 0x7d && c != 0x5d && c != 0 && (want == 0 || c == want)) return true;
    this.at++;
    return false;
  }

  private mismatch<T>(what: string, fallback: T): T {
    this.refuse("want " + what);
    this.skip();
    return fallback;
  }

  private refuse(text: string): void {
    fail(MALFORMED, this.keyStart() + ": " + text);
  }

  private keyStart(): string {
    return String.UTF8.decodeUnsafe(this.keyAt, min(this.keyEnd - this.keyAt, 40));
  }

  private first(): u8 {
    this.blanks();
    return this.peek();
  }

  private peek(): u8 {
    return this.at < this.end ? load<u8>(this.at) : 0;
  }

  private blanks(): void {
    for (; this.at < this.end; this.at++) {
      const c = load<u8>(this.at);
      if (c != 0x20 && c != 0x0a && c != 0x0d && c != 0x09) return;
    }
  }

  private skipString(): void {
    const end = this.end;
    let at = this.at + 1;
    for (; at < end; at++) {
      while (at + 8 <= end && !hasByte(load<u64>(at), QUOTES) && !hasByte(load<u64>(at), BACKSLASHES)) at += 8;
      const c = load<u8>(at);
      if (c == QUOTE) break;
      if (c == BACKSLASH) at++;
    }
    this.at = at + 1;
  }
}

function digit(c: u8): bool {
  return c - 0x30 <= 9;
}

function spells(from: usize, to: usize, word: string): bool {
  return to - from == <usize>word.length && wordAt(from, to, word) == 0;
}

// wordAt finds an ASCII word among words in one pass.
function wordAt(from: usize, to: usize, words: string): i32 {
  let at = changetype<usize>(words);
  const end = at + (<usize>words.length << 1);
  for (let n = 0; at < end; n++, at += 2) {
    let p = from;
    while (p < to && at < end && load<u16>(at) == <u16>load<u8>(p)) {
      p++;
      at += 2;
    }
    if (p == to && (at == end || load<u16>(at) == 0x20)) return n;
    while (at < end && load<u16>(at) != 0x20) at += 2;
  }
  return -1;
}

// hasByte reports that one of the eight bytes is c, which is repeated in every byte of all.
// @ts-ignore: decorator
@inline
function hasByte(word: u64, all: u64): bool {
  const x = word ^ all;
  return ((x - 0x0101010101010101) & ~x & 0x8080808080808080) != 0;
}

// decode copies only what has escapes: the configuration stays where it is.
function decode(from: usize, to: usize): Text {
  if (!escaped(from, to)) return new Text(from, <u32>(to - from));
  const out = heap.alloc(to - from);
  let size: usize = 0;
  while (from < to) {
    const c = load<u8>(from++);
    if (c != BACKSLASH) {
      store<u8>(out + size++, c);
      continue;
    }
    const escape = load<u8>(from++);
    if (escape != 0x75) { // u
      store<u8>(out + size++, control(escape));
      continue;
    }
    let point = hex(from);
    from += 4;
    if ((point & 0xfc00) == 0xd800 && from + 6 <= to && load<u16>(from) == 0x755c && (hex(from + 2) & 0xfc00) == 0xdc00) { // \u
      point = 0x10000 + ((point & 0x3ff) << 10) + (hex(from + 2) & 0x3ff);
      from += 6;
    }
    size += encode(out + size, (point & 0x1ff800) == 0xd800 ? 0xfffd : point);
  }
  return new Text(out, <u32>size);
}

function escaped(from: usize, to: usize): bool {
  for (; from + 8 <= to; from += 8) if (hasByte(load<u64>(from), BACKSLASHES)) return true;
  for (; from < to; from++) if (load<u8>(from) == BACKSLASH) return true;
  return false;
}

function control(escape: u8): u8 {
  switch (escape) {
    case 0x62: return 0x08;
    case 0x66: return 0x0c;
    case 0x6e: return 0x0a;
    case 0x72: return 0x0d;
    case 0x74: return 0x09;
  }
  return escape;
}

function hex(ptr: usize): u32 {
  let n: u32 = 0;
  for (let i: usize = 0; i < 4; i++) {
    const c = <u32>load<u8>(ptr + i);
    n = (n << 4) | (c <= 0x39 ? c - 0x30 : (c | 0x20) - 0x57);
  }
  return n;
}

// encode needs no more room than the escape it stands for.
function encode(to: usize, c: u32): usize {
  if (c < 0x80) {
    store<u8>(to, c);
    return 1;
  }
  const more = c < 0x800 ? 1 : c < 0x10000 ? 2 : 3;
  store<u8>(to, (0xff00 >> (more + 1)) | (c >> (6 * more)));
  for (let i = more; i > 0; i--) store<u8>(to + <usize>(more - i + 1), 0x80 | ((c >> (6 * (i - 1))) & 0x3f));
  return more + 1;
}
