// The buffers the host and the module share, and the comparisons and copies on them. Nothing here makes a string or
// allocates: a policy runs once per request, and the runtime frees nothing.
import { REQUEST_SIZE, RESPONSE_SIZE } from "./abi";

/** Where the host writes the facts before a call. */
export const REQUEST: usize = memory.data(REQUEST_SIZE, 16);

/** Where the host reads the decision after a call. */
export const RESPONSE: usize = memory.data(RESPONSE_SIZE, 16);

const SCRATCH: usize = memory.data(4, 4);

/** Writes the UTF-8 form of the code point at index i of text to dst; gives its length in bytes. */
function encode(text: string, i: i32, dst: usize): u32 {
  const at = changetype<usize>(text) + (<usize>i << 1);
  let c = <u32>load<u16>(at);
  if (c < 0x80) {
    store<u8>(dst, c);
    return 1;
  }
  if (c < 0x800) {
    store<u8>(dst, 0xc0 | (c >> 6));
    store<u8>(dst, 0x80 | (c & 0x3f), 1);
    return 2;
  }
  if ((c & 0xfc00) == 0xd800 && i + 1 < text.length) {
    c = 0x10000 + ((c & 0x3ff) << 10) + (<u32>load<u16>(at, 2) & 0x3ff);
    store<u8>(dst, 0xf0 | (c >> 18));
    store<u8>(dst, 0x80 | ((c >> 12) & 0x3f), 1);
    store<u8>(dst, 0x80 | ((c >> 6) & 0x3f), 2);
    store<u8>(dst, 0x80 | (c & 0x3f), 3);
    return 4;
  }
  store<u8>(dst, 0xe0 | (c >> 12));
  store<u8>(dst, 0x80 | ((c >> 6) & 0x3f), 1);
  store<u8>(dst, 0x80 | (c & 0x3f), 2);
  return 3;
}

/** How many of the len bytes at ptr the whole of text takes up as UTF-8; -1 when they do not start with it. */
export function match(ptr: usize, len: u32, text: string): i32 {
  let used: u32 = 0;
  for (let i = 0, n = text.length; i < n; i++) {
    const c = <u32>load<u16>(changetype<usize>(text) + (<usize>i << 1));
    if (c < 0x80) {
      if (used == len || load<u8>(ptr + used) != c) return -1;
      used++;
      continue;
    }
    const size = encode(text, i, SCRATCH);
    if (used + size > len) return -1;
    for (let j: u32 = 0; j < size; j++) {
      if (load<u8>(ptr + used + j) != load<u8>(SCRATCH + j)) return -1;
    }
    used += size;
    if (size == 4) i++;
  }
  return used;
}

/** Writes text as UTF-8 to ptr, where room bytes are free; gives its length, or -1 when it does not fit. */
export function write(ptr: usize, room: u32, text: string): i32 {
  let used: u32 = 0;
  for (let i = 0, n = text.length; i < n; i++) {
    if (used + 4 > room && used + encode(text, i, SCRATCH) > room) return -1;
    const size = encode(text, i, ptr + used);
    used += size;
    if (size == 4) i++;
  }
  return used;
}
