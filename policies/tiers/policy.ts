// Tables of limits, as a price list has them: a label of the key names its table, else the name of its org does, else there
// is one for everybody. The reason is the table's number, from 1, and the message its name.
import { ABSTAINED, ATTR_ORG_NAME, decision, facts, KIND_KEY, KIND_ORG } from "../../sdk/assemblyscript/assembly";
import { messageSince, pickKinds, pickOnce, readKinds } from "../parts/answer";
import { Change } from "../parts/change";
import { Config, labelIfAny } from "../parts/config";
import { Reader, Text, textOf } from "../parts/json";
import { Patterns } from "../parts/pattern";
import { at, fail, quoted, refusal, TOO_MANY, UNKNOWN_TABLE } from "../parts/refusal";

export { weir_abi_version, weir_request, weir_response } from "../../sdk/assemblyscript/assembly/exports";
export { weir_params_buffer } from "../parts/config";

const MAX_TABLES = 32;

class Table {
  readonly label: Patterns = new Patterns();
  readonly change: Change = new Change();
  qps: u32 = 0; // of the key; 0: as configured
  tpm: u32 = 0;
  orgQps: u32 = 0; // of the org's keys together
  orgTpm: u32 = 0;

  constructor(readonly name: Text) {
    this.label.compile([name]);
  }

  apply(): void {
    this.change.apply(false);
    if ((this.qps | this.tpm | this.orgQps | this.orgTpm) == 0) return;
    pickKinds();
    const key = pickOnce(KIND_KEY);
    key.qpsLimit = this.qps;
    key.tpmLimit = this.tpm;
    const org = pickOnce(KIND_ORG);
    org.qpsLimit = this.orgQps;
    org.tpmLimit = this.orgTpm;
  }
}

// Org is a line of the list of orgs; the table is looked up when all are known.
class Org {
  readonly names: Patterns = new Patterns();
  table: i32 = -1;
  // Longer patterns come before shorter ones, and a whole name before all.
  readonly weight: i32;

  constructor(pattern: Text, readonly tableName: Text) {
    const open = pattern.size > 0 && load<u8>(pattern.ptr + pattern.size - 1) == 0x2a; // *
    this.weight = open ? pattern.size : i32.MAX_VALUE;
    this.names.compile([pattern]);
  }
}

// What a price list without numbers holds, written as params are.
const USUAL = '{"free":{"key_qps_limit":2,"key_tpm_limit":20000,"output_tokens_cap":1024},' +
  '"pro":{"key_qps_limit":20,"key_tpm_limit":400000,"burst_permille":2000},' +
  '"enterprise":{"key_qps_limit":200,"key_tpm_limit":4000000,"burst_permille":3000,"month_permille":1100}}';

const tables: Table[] = [];
const orgs: Org[] = [];
let label: i32 = -1;
let everybody: i32 = -1;

export function weir_configure(len: i32): i32 {
  const config = new Config(len);
  const json = config.params;
  let other: Text | null = null;
  label = labelIfAny(config, "tier");
  if (!json.object()) return refusal();
  while (json.member()) {
    if (json.is("tables") && tables.length == 0) readTables(json, config);
    else if (json.is("label")) label = config.label(json.text());
    else if (json.is("orgs")) readOrgs(json);
    else if (json.is("default")) other = json.text();
    else if (json.is("dimensions")) readKinds(json);
    else json.unknown();
  }
  if (tables.length == 0) {
    const usual = textOf(USUAL);
    readTables(new Reader(usual.ptr, usual.ptr + usual.size), config);
  }
  for (let i = 0; i < orgs.length; i++) orgs[i].table = table(orgs[i].tableName);
  orgs.sort((a, b) => b.weight - a.weight); // the order of an object's members says nothing
  if (other) everybody = table(other);
  return refusal();
}

function readTables(json: Reader, config: Config): void {
  if (!json.object()) return;
  while (json.member()) {
    const t = new Table(json.key());
    at("table " + quoted(t.name.toString()) + ": ");
    readTable(json, t, config);
    tables.push(t);
  }
  at("");
  if (tables.length > MAX_TABLES) fail(TOO_MANY, "more than " + MAX_TABLES.toString() + " tables");
}

function readTable(json: Reader, t: Table, config: Config): void {
  if (!json.object()) return;
  while (json.member()) {
    if (json.is("key_qps_limit")) t.qps = json.small(0, u32.MAX_VALUE);
    else if (json.is("key_tpm_limit")) t.tpm = json.small(0, u32.MAX_VALUE);
    else if (json.is("org_qps_limit")) t.orgQps = json.small(0, u32.MAX_VALUE);
    else if (json.is("org_tpm_limit")) t.orgTpm = json.small(0, u32.MAX_VALUE);
    else if (!t.change.take(json, config)) json.unknown();
  }
}

function readOrgs(json: Reader): void {
  if (!json.object()) return;
  while (json.member()) {
    const pattern = json.key();
    orgs.push(new Org(pattern, json.text()));
  }
}

function table(name: Text): i32 {
  for (let i = 0; i < tables.length; i++) {
    if (tables[i].name.equals(name)) return i;
  }
  fail(UNKNOWN_TABLE, quoted(name.toString()) + " is none of the tables");
  return -1;
}

export function weir_attributes(): i64 {
  return 0xff08; // the org's name and the labels
}

export function weir_decide(): i32 {
  const i = chosen();
  if (i < 0) return ABSTAINED;
  decision.reset();
  const t = unchecked(tables[i]);
  t.apply();
  decision.reason = <u16>(i + 1);
  const used = decision.arenaUsed;
  decision.copy(t.name.ptr, t.name.size);
  messageSince(used);
  return decision.done();
}

function chosen(): i32 {
  if (label >= 0) {
    const value = facts.attr(label);
    for (let i = 0; i < tables.length; i++) {
      if (unchecked(tables[i]).label.match(value)) return i;
    }
  }
  const org = facts.attr(ATTR_ORG_NAME);
  for (let i = 0; i < orgs.length; i++) {
    if (unchecked(orgs[i]).names.match(org)) return unchecked(orgs[i]).table;
  }
  return everybody;
}
