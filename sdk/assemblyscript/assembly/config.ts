import { ATTR_LABEL0, PARAMS_MAX } from "./abi";
import { Json } from "./json";

let buffer: usize = 0;

/** Room for the configuration; asked for once per instance. */
export function paramsBuffer(len: i32): usize {
  if (len < 0 || <u32>len > PARAMS_MAX) return 0;
  buffer = heap.alloc(len + 8); // eight bytes are read at a time
  return buffer;
}

/** What the operator configured: the tiers in index order, the names of attributes 8 to 15, and the module's params. */
export class Config {
  readonly tiers: string[];
  readonly labels: string[];
  readonly params: Json;

  constructor(len: i32) {
    const root = Json.read(buffer, buffer + len);
    this.tiers = strings(root.get("tiers"));
    this.labels = strings(root.get("labels"));
    this.params = root.get("params");
  }

  /** Index of the tier of that name; -1: there is none. */
  tier(name: string): i32 {
    return this.tiers.indexOf(name);
  }

  /** Number of the attribute that carries the label of that name; -1: it is not configured. */
  label(name: string): i32 {
    const i = this.labels.indexOf(name);
    return i < 0 ? -1 : i + <i32>ATTR_LABEL0;
  }
}

function strings(list: Json): string[] {
  const names: string[] = [];
  const elements = list.elements();
  for (let i = 0; i < elements.length; i++) names.push(elements[i].string(""));
  return names;
}
