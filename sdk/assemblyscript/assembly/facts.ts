import * as abi from "./abi";
import { REQUEST, match } from "./memory";

/** The flags of Facts.flags. */
export const STREAM: u32 = abi.FLAG_STREAM;
export const TOOLS: u32 = abi.FLAG_TOOLS;
export const IMAGES: u32 = abi.FLAG_IMAGES;
export const FILES: u32 = abi.FLAG_FILES;
export const RETRY: u32 = abi.FLAG_RETRY;

/** One text of the facts: bytes in the request buffer, compared where they lie. Valid during the call. */
@unmanaged
export class Attribute {
  private off: u32;
  private len: u32;

  /** Address of the first byte. */
  get ptr(): usize {
    return REQUEST + this.off;
  }

  /** Length in bytes of UTF-8; 0 when the request has no such value. */
  get length(): u32 {
    return this.len;
  }

  get absent(): bool {
    return this.len == 0;
  }

  equals(text: string): bool {
    return match(this.ptr, this.len, text) == <i32>this.len;
  }

  startsWith(text: string): bool {
    return match(this.ptr, this.len, text) >= 0;
  }

  endsWith(text: string): bool {
    const size = <u32>String.UTF8.byteLength(text);
    return size <= this.len && match(this.ptr + this.len - size, size, text) >= 0;
  }

  /** For labels that are switches: there, and neither "false", "no", "off" nor "0". */
  get on(): bool {
    return this.len > 0 && !this.equals("false") && !this.equals("no") && !this.equals("off") && !this.equals("0");
  }
}

/** What is known about the request, as the host wrote it. A limit of 0 means unlimited. */
@unmanaged
export class Facts {
  readonly size: u32;
  readonly hostMinor: u16;
  readonly nAttr: u16;
  readonly nowMs: u64; // unix time
  readonly entropy: u64; // from the request id: the same on a replay
  readonly flags: u32;
  readonly endpoint: u32; // ENDPOINT_…
  readonly inputTokens: u32; // estimate
  readonly outputTokensMax: u32; // upper bound over all choices
  readonly choices: u32;
  readonly bodyBytes: u32;
  readonly keyId: u64;
  readonly userId: u64;
  readonly orgId: u64;
  readonly qpsLimit: u32; // of the key, as the next five
  readonly qpsCurrent: u32;
  readonly tpmLimit: u32;
  readonly tpmCurrent: u32;
  readonly concurrencyLimit: u32;
  readonly concurrencyCurrent: u32;
  readonly quotaLimit: i64; // micro-units of the currency, as the next three
  readonly quotaUsed: i64; // posted and held
  readonly balanceAvailable: i64;
  readonly estimatedCost: i64;
  readonly minuteOfWeek: u32; // in the key's zone, Monday 00:00 is 0
  readonly dayOfMonth: u16;
  readonly daysInMonth: u16;
  readonly tier: u32; // index of the key's tier
  readonly generation: u32; // of the params

  /** Reports whether one of the given flags is set. */
  has(flag: u32): bool {
    return (this.flags & flag) != 0;
  }

  /** An attribute by its number: ATTR_MODEL, …, or what config.label gave. */
  attr(i: u32): Attribute {
    return changetype<Attribute>(REQUEST + abi.REQ_ATTRS + i * abi.ATTR_SIZE);
  }
}

/** The facts of the call that runs. */
export const facts = changetype<Facts>(REQUEST);

// The class must lie exactly over the ABI's layout.
if (
  offsetof<Facts>("nowMs") != abi.REQ_NOW_MS || offsetof<Facts>("flags") != abi.REQ_FLAGS ||
  offsetof<Facts>("keyId") != abi.REQ_KEY_ID || offsetof<Facts>("qpsLimit") != abi.REQ_QPS_LIMIT ||
  offsetof<Facts>("quotaLimit") != abi.REQ_QUOTA_LIMIT || offsetof<Facts>("estimatedCost") != abi.REQ_ESTIMATED_COST ||
  offsetof<Facts>("minuteOfWeek") != abi.REQ_MINUTE_OF_WEEK || offsetof<Facts>("daysInMonth") != abi.REQ_DAYS_IN_MONTH ||
  offsetof<Facts>("tier") != abi.REQ_TIER || offsetof<Facts>("generation") != abi.REQ_GENERATION
) {
  ERROR("Facts does not match the ABI");
}
