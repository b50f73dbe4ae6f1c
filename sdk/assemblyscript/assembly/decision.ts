import * as abi from "./abi";
import { RESPONSE, write } from "./memory";
import { Attribute } from "./facts";

/** One limit to test, as the policy wants it. Every multiplier is in 1/1000; 0 stands for 1000. */
@unmanaged
export class Dimension {
  private kind: u8;
  private flags: u8;
  private tierIndex: u16;
  qpsLimit: u32; // requests per second; 0: as configured for this dimension
  tpmLimit: u32; // tokens per minute; 0: as configured
  multiplier: u32; // of both limits
  burst: u32;
  private valueOff: u32;
  private valueLen: u32;
  costMultiplier: u32; // of the tokens that this dimension counts

  /** Takes the limits from a tier (an index, as config.tier gives; negative: no change). */
  tier(index: i32): Dimension {
    if (index >= 0) this.tierIndex = <u16>(index + 1);
    return this;
  }

  /** Counts, and never refuses. */
  countOnly(): Dimension {
    this.flags |= <u8>abi.DIM_COUNT_ONLY;
    return this;
  }

  /** Counts, never refuses, and reports what it would have refused. */
  shadow(): Dimension {
    this.flags |= <u8>abi.DIM_SHADOW;
    return this;
  }

  /** Is left out when the request has no such value. */
  skipIfAbsent(): Dimension {
    this.flags |= <u8>abi.DIM_SKIP_ABSENT;
    return this;
  }

  /** Adds text to a custom dimension's value. */
  text(value: string): Dimension {
    this.grow(decision.append(value));
    return this;
  }

  /** Adds an attribute to a custom dimension's value. */
  attr(value: Attribute): Dimension {
    this.grow(decision.copy(value.ptr, value.length));
    return this;
  }

  private grow(size: u32): void {
    if (this.valueLen == 0) this.valueOff = abi.RESP_ARENA + decision.arenaUsed - size;
    this.valueLen += size;
  }
}

/** What the module answers. Call reset first; every multiplier is in 1/1000, and 0 stands for 1000. */
@unmanaged
export class Decision {
  private major: u16;
  private nDims: u16;
  private verdict: u8;
  private flags: u8;
  private tierIndex: u16;
  qpsMultiplier: u32; // of the key dimension, as the next three
  tpmMultiplier: u32;
  quotaMultiplier: u32;
  burst: u32;
  overdraft: i64; // micro-units: how far below zero the balance may go
  outputTokensCap: u32; // 0: none
  priceMultiplier: u32;
  private status: u16;
  reason: u16; // shown in reports
  private retryAfterMs: u32;
  private messageOff: u32;
  private messageLen: u32;
  private arena: u32;
  private failed: u32; // in reserved space, which the host ignores: more was asked for than fits

  /** Clears the answer of the call before. */
  reset(): void {
    memory.fill(RESPONSE, 0, abi.RESP_DIMS);
    this.major = <u16>abi.MAJOR;
  }

  /** Picks a dimension (KIND_…), after those picked before. Picking none keeps key, model, global. */
  pick(kind: u32): Dimension {
    if (this.nDims == <u16>abi.MAX_DIMS) {
      this.failed = 1;
      this.nDims--;
    }
    const ptr = RESPONSE + abi.RESP_DIMS + <usize>this.nDims * abi.DIM_SIZE;
    memory.fill(ptr, 0, abi.DIM_SIZE);
    store<u8>(ptr, kind, abi.DIM_KIND);
    this.nDims++;
    return changetype<Dimension>(ptr);
  }

  /** Puts the key into another tier (an index, as config.tier gives; negative: no change). */
  tier(index: i32): void {
    if (index >= 0) this.tierIndex = <u16>(index + 1);
  }

  /** Does not bill this request, where the operator's envelope allows. */
  doNotBill(): void {
    this.flags |= <u8>abi.RESP_NO_BILL;
  }

  /** Does not limit this request, where the operator's envelope allows. */
  doNotLimit(): void {
    this.flags |= <u8>abi.RESP_NO_LIMIT;
  }

  /**
   * Refuses with a status (400..499) and a text for the client; a wait of 0 ms means: do not try again. A decision has one
   * message: of deny and explain the later one's counts.
   */
  deny(status: u32, message: string, retryAfterMs: u32 = 0): void {
    this.verdict = <u8>abi.VERDICT_DENY;
    this.status = <u16>status;
    this.retryAfterMs = retryAfterMs;
    const size = this.append(message);
    this.messageOff = abi.RESP_ARENA + this.arena - size;
    this.messageLen = size;
  }

  /**
   * Says which rule fired, whatever the verdict: a number and a text for reports, the log and, where enabled, answers. After
   * deny its text takes the place of the one for the client.
   */
  explain(reason: u16, message: string): void {
    this.reason = reason;
    const size = this.append(message);
    this.messageOff = abi.RESP_ARENA + this.arena - size;
    this.messageLen = size;
  }

  /** Reports that it would refuse, and lets the request pass. */
  shadowDeny(): void {
    this.verdict = <u8>abi.VERDICT_SHADOW_DENY;
  }

  /** What weir_decide returns for this decision: a guest error when more was asked for than the ABI has room for. */
  done(): i32 {
    return this.failed == 0 ? <i32>abi.DECIDED : GUEST_ERROR;
  }

  /** Bytes of the arena in use. */
  get arenaUsed(): u32 {
    return this.arena;
  }

  /** Adds text to the arena; gives its length in bytes. */
  append(text: string): u32 {
    const size = write(RESPONSE + abi.RESP_ARENA + this.arena, abi.ARENA_SIZE - this.arena, text);
    return this.took(size);
  }

  /** Adds len bytes from ptr to the arena; gives len. */
  copy(ptr: usize, len: u32): u32 {
    if (len > abi.ARENA_SIZE - this.arena) return this.took(-1);
    memory.copy(RESPONSE + abi.RESP_ARENA + this.arena, ptr, len);
    return this.took(len);
  }

  private took(size: i32): u32 {
    if (size < 0) {
      this.failed = 1;
      return 0;
    }
    this.arena += size;
    return size;
  }
}

/** What Decision.done returns when the decision does not fit. */
export const GUEST_ERROR: i32 = 2;

/** The decision of the call that runs. */
export const decision = changetype<Decision>(RESPONSE);

// The classes must lie exactly over the ABI's layout.
if (
  offsetof<Decision>("qpsMultiplier") != abi.RESP_QPS_MULTIPLIER || offsetof<Decision>("burst") != abi.RESP_BURST ||
  offsetof<Decision>("overdraft") != abi.RESP_OVERDRAFT || offsetof<Decision>("priceMultiplier") != abi.RESP_PRICE_MULTIPLIER ||
  offsetof<Decision>("reason") != abi.RESP_REASON || offsetof<Decision>("arena") != abi.RESP_ARENA_USED ||
  offsetof<Decision>("failed") != abi.RESP_RESERVED || offsetof<Decision>() != abi.RESP_DIMS ||
  offsetof<Dimension>("qpsLimit") != abi.DIM_QPS_LIMIT || offsetof<Dimension>("burst") != abi.DIM_BURST ||
  offsetof<Dimension>("costMultiplier") != abi.DIM_COST_MULTIPLIER || offsetof<Dimension>() != abi.DIM_SIZE
) {
  ERROR("Decision does not match the ABI");
}
