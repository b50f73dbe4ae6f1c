// Names with an optional * at their end, compared where the attribute lies, eight bytes at a time.
import { Attribute } from "../../sdk/assemblyscript/assembly";
import { Reader, Text } from "./json";
import { fail, TOO_LONG, TOO_MANY } from "./refusal";

const MAX_PATTERNS = 512; // of one module: what a call can cost is bounded by what it may have to compare
const MAX_BYTES: u32 = 128;

let patterns = 0;

@unmanaged
class Pattern {
  head: u64; // the first eight bytes, or as many as there are
  headMask: u64;
  lastMask: u64; // for the last eight
  rest: usize; // from byte 8 on, filled up with zeros
  size: u32;
  prefix: bool;
}

/** Some patterns, any of which is to match. */
export class Patterns {
  private first: usize = 0;
  private end: usize = 0;

  /** Reads an array of them. */
  read(json: Reader): void {
    const texts: Text[] = [];
    if (json.array()) while (json.element()) texts.push(json.text());
    this.compile(texts);
  }

  compile(texts: Text[]): void {
    patterns += texts.length;
    if (patterns > MAX_PATTERNS) {
      fail(TOO_MANY, "more than " + MAX_PATTERNS.toString() + " patterns");
      return;
    }
    this.first = heap.alloc(texts.length * offsetof<Pattern>());
    this.end = this.first + texts.length * offsetof<Pattern>();
    for (let i = 0; i < texts.length; i++) fill(changetype<Pattern>(this.first + i * offsetof<Pattern>()), texts[i]);
  }

  /** Reports that one of them matches; no value matches none, not even "*". */
  @inline
  match(a: Attribute): bool {
    const size = a.length;
    let at = this.first;
    if (size == 0 || at == this.end) return false;
    const ptr = a.ptr;
    const start = load<u64>(ptr); // beyond a short value lies the rest of the buffers
    do {
      const p = changetype<Pattern>(at);
      if (((start ^ p.head) & p.headMask) == 0 && (size == p.size || (p.prefix && size > p.size)) && (p.size <= 8 || same(p, ptr))) return true;
      at += offsetof<Pattern>();
    } while (at != this.end);
    return false;
  }
}

/** A condition on one attribute: one of the patterns matches it. */
export class Condition extends Patterns {
  constructor(private attribute: Attribute) {
    super();
  }

  @inline
  holds(): bool {
    return this.match(this.attribute);
  }
}

function same(p: Pattern, ptr: usize): bool {
  const last = (p.size - 1) & ~7;
  for (let i: usize = 8; i < last; i += 8) {
    if (load<u64>(ptr + i) != load<u64>(p.rest + i - 8)) return false;
  }
  return ((load<u64>(ptr + last) ^ load<u64>(p.rest + last - 8)) & p.lastMask) == 0;
}

function fill(p: Pattern, text: Text): void {
  let size = text.size;
  if (size > MAX_BYTES) {
    fail(TOO_LONG, "a pattern of more than " + MAX_BYTES.toString() + " bytes");
    size = 0;
  }
  p.prefix = size > 0 && load<u8>(text.ptr + size - 1) == 0x2a;
  if (p.prefix) size--;
  const room: usize = (size + 15) & ~7;
  const bytes = heap.alloc(room);
  memory.fill(bytes, 0, room);
  memory.copy(bytes, text.ptr, size);
  p.size = size;
  p.head = load<u64>(bytes);
  p.headMask = maskOf(min(size, 8));
  p.lastMask = maskOf(((size - 1) & 7) + 1);
  p.rest = bytes + 8;
}

// maskOf keeps the first n bytes, 0 to 8, of a little-endian word.
function maskOf(n: u32): u64 {
  return n == 0 ? 0 : ~(<u64>0) >> (64 - 8 * n);
}
