import { write } from "./memory";

@external("weir", "log")
declare function weir_log(level: u32, ptr: usize, len: u32): void;

const LINE_SIZE: u32 = 256;
const LINE: usize = memory.data(256);

/** Writes a line (at most 256 bytes; a longer one is left out) to the gateway's log, at LOG_DEBUG .. LOG_ERROR. */
export function log(level: u32, text: string): void {
  const size = write(LINE, LINE_SIZE, text);
  if (size > 0) weir_log(level, LINE, size);
}
