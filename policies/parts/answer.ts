// Writing what the SDK's decision has no word for: a message beside any verdict, and the dimensions that a module tests
// beside its own.
import {
  decision, Dimension, DIM_KIND, DIM_SIZE, DIM_VALUE_LEN, DIM_VALUE_OFF, KIND_CHANNEL, KIND_CUSTOM, KIND_END_USER, KIND_GLOBAL, KIND_IP,
  KIND_KEY, KIND_KEY_MODEL, KIND_MODEL, KIND_MODEL_CHANNEL, KIND_ORG, KIND_USER, RESP_ARENA, RESP_DIMS, RESP_MESSAGE_LEN, RESP_MESSAGE_OFF,
  RESP_N_DIMS,
} from "../../sdk/assemblyscript/assembly";
import { Reader } from "./json";
import { fail, TOO_MANY } from "./refusal";

/** Makes the message of what was added to the arena since it had so many bytes. */
export function messageSince(used: u32): void {
  const response = changetype<usize>(decision);
  store<u32>(response, RESP_ARENA + used, RESP_MESSAGE_OFF);
  store<u32>(response, decision.arenaUsed - used, RESP_MESSAGE_LEN);
}

/** Makes the value of a custom dimension of what was added to the arena since it had so many bytes. */
export function valueSince(dimension: Dimension, used: u32): void {
  const entry = changetype<usize>(dimension);
  store<u32>(entry, RESP_ARENA + used, DIM_VALUE_OFF);
  store<u32>(entry, decision.arenaUsed - used, DIM_VALUE_LEN);
}

// The kinds in the order of their words; the first five are what is tested when params do not say.
const KINDS: StaticArray<u8> = [
  <u8>KIND_KEY, <u8>KIND_MODEL, <u8>KIND_GLOBAL, <u8>KIND_USER, <u8>KIND_ORG, <u8>KIND_CHANNEL, <u8>KIND_IP, <u8>KIND_END_USER,
  <u8>KIND_KEY_MODEL, <u8>KIND_MODEL_CHANNEL, <u8>KIND_CUSTOM,
];
const USUAL: u32 = 5;

/** Reads the word for a dimension's kind. */
export function readKind(json: Reader): u32 {
  return KINDS[json.word("key model global user org channel ip end_user key+model model+channel custom")];
}

const MAX_KINDS: u32 = 10;
const kinds = memory.data(16);
let kindsUsed: u32 = 0;

/** Reads the dimensions that are tested beside what a module adds. */
export function readKinds(json: Reader): u32 {
  kindsUsed = 0;
  if (!json.array()) return 0;
  while (json.element()) {
    const kind = readKind(json);
    if (kindsUsed == MAX_KINDS) fail(TOO_MANY, "more than " + MAX_KINDS.toString() + " dimensions");
    else store<u8>(kinds + kindsUsed++, kind);
  }
  return kindsUsed;
}

/** Picks them; without params the ones that a configured limit may need: key, model, global, user and org. */
export function pickKinds(): void {
  if (kindsUsed == 0) {
    for (let i: u32 = 0; i < USUAL; i++) decision.pick(unchecked(KINDS[i]));
    return;
  }
  for (let i: u32 = 0; i < kindsUsed; i++) decision.pick(load<u8>(kinds + i)).skipIfAbsent();
}

/** The dimension of that kind, picked when it is not yet. */
export function pickOnce(kind: u32): Dimension {
  const response = changetype<usize>(decision);
  const n = <usize>load<u16>(response, RESP_N_DIMS);
  for (let i: usize = 0; i < n; i++) {
    const entry = response + RESP_DIMS + i * DIM_SIZE;
    if (load<u8>(entry, DIM_KIND) == <u8>kind) return changetype<Dimension>(entry);
  }
  return decision.pick(kind);
}

/** How many pickKinds picks. */
export function kindsPicked(): u32 {
  return kindsUsed == 0 ? USUAL : kindsUsed;
}
