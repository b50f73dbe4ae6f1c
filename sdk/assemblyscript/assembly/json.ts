// A reader for the configuration: the host wrote it, so it is valid JSON. It runs once per instance, where strings may
// be made; a value that is missing or of another type reads as the fallback.

function isBlank(c: u8): bool {
  return c == 0x20 || c == 0x0a || c == 0x0d || c == 0x09;
}

function skipBlank(ptr: usize, end: usize): usize {
  while (ptr < end && isBlank(load<u8>(ptr))) ptr++;
  return ptr;
}

function skipString(ptr: usize, end: usize): usize {
  for (ptr++; ptr < end; ptr++) {
    const c = load<u8>(ptr);
    if (c == 0x22) return ptr + 1; // "
    if (c == 0x5c) ptr++; // \
  }
  return end;
}

/** The end of the value that starts at ptr. */
function skipValue(ptr: usize, end: usize): usize {
  let depth = 0;
  while (ptr < end) {
    const c = load<u8>(ptr);
    if (c == 0x22) {
      ptr = skipString(ptr, end);
      if (depth == 0) return ptr;
      continue;
    }
    if (c == 0x7b || c == 0x5b) { // { [
      depth++;
    } else if (c == 0x7d || c == 0x5d) { // } ]
      if (depth == 0) return ptr;
      if (--depth == 0) return ptr + 1;
    } else if (depth == 0 && (c == 0x2c || isBlank(c))) {
      return ptr;
    }
    ptr++;
  }
  return end;
}

/** One value in the configuration's text. */
export class Json {
  constructor(private ptr: usize, private end: usize) {}

  private get first(): u8 {
    return this.ptr < this.end ? load<u8>(this.ptr) : 0;
  }

  /** Reports that there is no such value, or that it is null. */
  get absent(): bool {
    return this.first == 0 || this.first == 0x6e; // n
  }

  /** A member of an object. */
  get(name: string): Json {
    if (this.first != 0x7b) return new Json(0, 0);
    let p = skipBlank(this.ptr + 1, this.end);
    while (p < this.end && load<u8>(p) == 0x22) {
      const keyEnd = skipString(p, this.end);
      const key = new Json(p, keyEnd);
      p = skipBlank(keyEnd, this.end);
      p = skipBlank(p + 1, this.end); // :
      const valueEnd = skipValue(p, this.end);
      if (key.string("") == name) return new Json(p, valueEnd);
      p = this.next(valueEnd);
    }
    return new Json(0, 0);
  }

  /** The elements of an array; none for anything else. */
  elements(): Json[] {
    const list: Json[] = [];
    if (this.first != 0x5b) return list;
    let p = skipBlank(this.ptr + 1, this.end);
    while (p < this.end && load<u8>(p) != 0x5d) {
      const end = skipValue(p, this.end);
      list.push(new Json(p, end));
      p = this.next(end);
    }
    return list;
  }

  private next(p: usize): usize {
    p = skipBlank(p, this.end);
    if (p < this.end && load<u8>(p) == 0x2c) p = skipBlank(p + 1, this.end);
    return p;
  }

  bool(fallback: bool): bool {
    const c = this.first;
    return c == 0x74 ? true : c == 0x66 ? false : fallback; // t f
  }

  /** A whole number; a fraction or an exponent reads as the fallback. */
  integer(fallback: i64): i64 {
    let p = this.ptr;
    const negative = this.first == 0x2d; // -
    if (negative) p++;
    if (p >= this.end) return fallback;
    let n: i64 = 0;
    for (; p < this.end; p++) {
      const digit = load<u8>(p) - 0x30;
      if (digit > 9 || n > 900_000_000_000_000_000) return fallback;
      n = n * 10 + digit;
    }
    return negative ? -n : n;
  }

  string(fallback: string): string {
    if (this.first != 0x22) return fallback;
    let text = "";
    let from = this.ptr + 1;
    for (let p = from; p < this.end; p++) {
      const c = load<u8>(p);
      if (c != 0x22 && c != 0x5c) continue;
      text += String.UTF8.decodeUnsafe(from, p - from);
      if (c == 0x22) break;
      p++;
      text += unescape(p);
      if (load<u8>(p) == 0x75) p += 4; // u
      from = p + 1;
    }
    return text;
  }
}

/** What the escape whose letter is at ptr stands for. */
function unescape(ptr: usize): string {
  switch (load<u8>(ptr)) {
    case 0x62: return "\b";
    case 0x66: return "\f";
    case 0x6e: return "\n";
    case 0x72: return "\r";
    case 0x74: return "\t";
    case 0x75: {
      let unit = 0;
      for (let i = 1; i <= 4; i++) {
        const c = load<u8>(ptr + i);
        unit = (unit << 4) | (c <= 0x39 ? c - 0x30 : (c | 0x20) - 0x57);
      }
      return String.fromCharCode(unit);
    }
  }
  return String.fromCharCode(load<u8>(ptr));
}
