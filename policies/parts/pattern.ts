// Names with an optional * at their end, compared where the attribute lies, eight bytes at a time.
import { Attribute } from "../../sdk/assemblyscript/assembly";
import { Reader, Text } from "./json";
import { fail, TOO_LONG, TOO_MANY } from "./refusal";

// What a call can cost is bounded by what it may have to compare.
const MAX_PATTERNS = 512;
const MAX_ALL: u32 = 16384; // bytes of all of them
const MAX_BYTES: u32 = 128;

let patterns = 0;
let bytes: u32 = 0;

@unmanaged
class Pattern {
  head: u64; // the first eight bytes, or as many as there are
  headMask: u64;
  lastMask: u64; // for the last eight
  rest: usize; // from byte 8 on, filled up with zeros
  size: u32;
  prefix: bool;

  // fits reports that the value, whose first eight bytes do, matches as a whole.
  fits(ptr: usize, size: u32): bool {
    if (size != this.size && (!this.prefix || size < this.size)) return false;
    if (this.size <= 8) return true;
    const last = (this.size - 1) & ~7;
    if (((load<u64>(ptr + last) ^ load<u64>(this.rest + last - 8)) & this.lastMask) != 0) return false;
    let i: usize = 8;
    if (last > 24) {
      do {
        const differ = (load<u64>(ptr + i) ^ load<u64>(this.rest + i - 8)) | (load<u64>(ptr + i, 8) ^ load<u64>(this.rest + i - 8, 8));
        if (differ != 0) return false;
        i += 16;
      } while (i + 8 < last);
    }
    while (i < last) {
      if (load<u64>(ptr + i) != load<u64>(this.rest + i - 8)) return false;
      i += 8;
    }
    return true;
  }
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
    for (let i = 0; i < texts.length; i++) bytes += texts[i].size;
    if (patterns > MAX_PATTERNS || bytes > MAX_ALL) {
      fail(TOO_MANY, "more than " + MAX_PATTERNS.toString() + " patterns, or " + MAX_ALL.toString() + " bytes of them");
      return;
    }
    this.first = heap.alloc(texts.length * offsetof<Pattern>());
    this.end = this.first + texts.length * offsetof<Pattern>();
    for (let i = 0; i < texts.length; i++) fill(changetype<Pattern>(this.first + i * offsetof<Pattern>()), texts[i]);
  }

  /** Reports that one of them matches; no value matches none, not even "*". */
  match(a: Attribute): bool {
    const size = a.length;
    const ptr = a.ptr;
    const end = this.end;
    if (size == 0) return false;
    const start = load<u64>(ptr); // beyond a short value lies the rest of the buffers
    let at = candidate(this.first, end, start);
    if (at == end) return false;
    do {
      if (changetype<Pattern>(at).fits(ptr, size)) return true;
      at = candidate(at + offsetof<Pattern>(), end, start);
    } while (at != end);
    return false;
  }
}

// candidate finds the next pattern whose first eight bytes match. A turn of a loop takes the fuel of all of its body, and most
// patterns end here.
function candidate(at: usize, end: usize, start: u64): usize {
  while (at != end && ((start ^ changetype<Pattern>(at).head) & changetype<Pattern>(at).headMask) != 0) at += offsetof<Pattern>();
  return at;
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
  const words = heap.alloc(room);
  memory.fill(words, 0, room);
  memory.copy(words, text.ptr, size);
  p.size = size;
  p.head = load<u64>(words);
  p.headMask = maskOf(min(size, 8));
  p.lastMask = maskOf(((size - 1) & 7) + 1);
  p.rest = words + 8;
}

// maskOf keeps the first n bytes, 0 to 8, of a little-endian word.
function maskOf(n: u32): u64 {
  return n == 0 ? 0 : ~(<u64>0) >> (64 - 8 * n);
}
