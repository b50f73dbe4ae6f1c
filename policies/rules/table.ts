// Reading the params. A mistake is noted with its rule's number, and reading goes on: the first one is what is reported.
import {
  FLAG_FILES, FLAG_IMAGES, FLAG_RETRY, FLAG_STREAM, FLAG_TOOLS, ATTR_END_USER, ATTR_KEY_NAME, ATTR_MODEL, ATTR_ORG_NAME, ATTR_USER_NAME,
  KIND_CUSTOM, MAX_DIMS, MAX_MULTIPLIER, MESSAGE_MAX,
} from "../../sdk/assemblyscript/assembly";
import { kindsPicked, readKind, readKinds } from "../parts/answer";
import { Config } from "../parts/config";
import { Reader, Text, textOf } from "../parts/json";
import { checkZone, Hours, readDays, readTime, readWeekdays, readZone, readZoneTable } from "../parts/moment";
import { at, fail, TOO_LONG, TOO_MANY, UNKNOWN_TIER, BAD_VALUE } from "../parts/refusal";
import { Extra, readValue } from "./extra";
import { DENIES, Rule, SHADOW_DENIES } from "./rule";
import { BALANCE, DayTest, EndpointTest, FlagsTest, HoursTest, NameTest, NUMBERS, NumberTest, TierTest } from "./test";

export const MAX_RULES: i32 = 64;
const MAX_CUSTOM: u32 = 7; // values of 128 bytes, and a message, must fit the decision
const NAME_BYTES: u32 = 240;

export const rules: Rule[] = [];
export let takeAll: bool = false;
export let attributesAsked: u32 = 0; // bits

let count: u16 = 0;

/** Reads the whole table. */
export function readTable(json: Reader, config: Config): void {
  if (!json.object()) return;
  while (json.member()) {
    if (json.is("mode")) takeAll = json.word("first all") == 1;
    else if (json.is("zone")) readZone(json);
    else if (json.is("zone_table")) readZoneTable(json);
    else if (json.is("dimensions")) readKinds(json);
    else if (!json.is("rules") || count > 0) json.unknown(); // twice: only the last one was held to the schema
    else readRules(json, config);
  }
  checkZone();
  checkRoom();
}

function readRules(json: Reader, config: Config): void {
  if (json.array()) while (json.element()) readRule(json, config);
  at("");
}

// readRule leaves out a rule that is switched off; the numbers of the others stay.
function readRule(json: Reader, config: Config): void {
  const rule = new Rule();
  let enabled = true;
  rule.number = ++count;
  at("rule " + count.toString() + ": ");
  if (count > <u16>MAX_RULES) fail(TOO_MANY, "more than " + MAX_RULES.toString() + " rules");
  rule.name = textOf("rule " + count.toString());
  if (!json.object()) return;
  while (json.member()) {
    if (json.is("name")) rule.name = short(json.text(), NAME_BYTES);
    else if (json.is("enabled")) enabled = json.bool();
    else if (json.is("when")) readWhen(json, rule, config);
    else if (json.is("then")) readThen(json, rule, config);
    else json.unknown();
  }
  if (enabled) rules.push(rule);
}

const FLAGS: StaticArray<u32> = [FLAG_STREAM, FLAG_TOOLS, FLAG_IMAGES, FLAG_FILES, FLAG_RETRY];
const NAMES: StaticArray<u32> = [ATTR_MODEL, ATTR_KEY_NAME, ATTR_USER_NAME, ATTR_ORG_NAME, ATTR_END_USER];

function readWhen(json: Reader, rule: Rule, config: Config): void {
  const flags = new FlagsTest();
  if (!json.object()) return;
  while (json.member()) {
    if (json.is("hours")) rule.tests.push(new HoursTest(readHours(json)));
    else if (json.is("days_of_month")) rule.tests.push(new DayTest(readDays(json)));
    else if (json.is("tiers")) rule.tests.push(new TierTest(readTiers(json, config)));
    else if (json.is("endpoints")) rule.tests.push(new EndpointTest(readEndpoints(json)));
    else if (json.is("labels")) readLabels(json, rule, config);
    else readAlike(json, rule, flags);
  }
  if (flags.asked != 0) rule.tests.push(flags);
}

// readAlike reads the conditions of which there are many alike.
function readAlike(json: Reader, rule: Rule, flags: FlagsTest): void {
  const flag = json.among("stream tools images files retry");
  const number = json.among(NUMBERS);
  const name = json.among("models keys users orgs end_users");
  if (flag >= 0) {
    flags.asked |= FLAGS[flag];
    flags.set = json.bool() ? flags.set | FLAGS[flag] : flags.set & ~FLAGS[flag];
  } else if (number >= 0) {
    readRange(json, rule, number);
  } else if (name >= 0) {
    readNames(json, rule, NAMES[name]);
  } else {
    json.unknown();
  }
}

function readHours(json: Reader): Hours {
  const hours = new Hours();
  if (!json.object()) return hours;
  while (json.member()) {
    if (json.is("weekdays")) hours.weekdays = readWeekdays(json);
    else if (json.is("from")) hours.from = readTime(json);
    else if (json.is("to")) hours.to = readTime(json);
    else json.unknown();
  }
  hours.check();
  return hours;
}

function readTiers(json: Reader, config: Config): u64 {
  let tiers: u64 = 0;
  if (!json.array()) return 0;
  while (json.element()) {
    const i = config.tier(json.text());
    if (i > 63) fail(UNKNOWN_TIER, "only the first 64 tiers can be asked for");
    else if (i >= 0) tiers |= (<u64>1) << i;
  }
  return tiers;
}

function readEndpoints(json: Reader): u32 {
  let endpoints: u32 = 0;
  if (json.array()) while (json.element()) endpoints |= 2 << json.word("chat completions embeddings responses messages count_tokens");
  return endpoints;
}

function readLabels(json: Reader, rule: Rule, config: Config): void {
  if (!json.object()) return;
  while (json.member()) {
    const attribute = config.label(json.key());
    readNames(json, rule, max(attribute, 0));
  }
}

function readNames(json: Reader, rule: Rule, attribute: u32): void {
  const test = new NameTest(attribute);
  test.patterns.read(json);
  rule.tests.push(test);
  attributesAsked |= 1 << attribute;
}

// readRange: a balance may be below zero; the other numbers are not, and -1 stands for none.
function readRange(json: Reader, rule: Rule, number: u32): void {
  const test = new NumberTest(number);
  if (number == BALANCE) test.least = i64.MIN_VALUE;
  rule.tests.push(test);
  if (!json.object()) return;
  while (json.member()) {
    if (json.is("at_least")) test.least = json.integer(-MAX_NUMBER, MAX_NUMBER);
    else if (json.is("below")) test.most = json.integer(-MAX_NUMBER, MAX_NUMBER) - 1;
    else json.unknown();
  }
}

const MAX_NUMBER: i64 = 1_000_000_000_000_000;

function readThen(json: Reader, rule: Rule, config: Config): void {
  if (!json.object()) return;
  while (json.member()) {
    if (rule.change.take(json, config)) continue;
    if (json.is("dimensions")) readExtras(json, rule, config);
    else if (json.is("deny")) readDeny(json, rule);
    else json.unknown();
  }
}

function readDeny(json: Reader, rule: Rule): void {
  rule.verdict = DENIES;
  if (!json.object()) return;
  while (json.member()) {
    if (json.is("status")) rule.status = json.small(400, 499);
    else if (json.is("message")) rule.message = short(json.text(), MESSAGE_MAX);
    else if (json.is("retry_after_ms")) rule.retryAfterMs = json.small(0, u32.MAX_VALUE);
    else if (json.is("shadow")) rule.verdict = json.bool() ? SHADOW_DENIES : DENIES;
    else json.unknown();
  }
}

function readExtras(json: Reader, rule: Rule, config: Config): void {
  if (json.array()) while (json.element()) rule.extras.push(readExtra(json, config));
}

function readExtra(json: Reader, config: Config): Extra {
  const e = new Extra();
  if (!json.object()) return e;
  while (json.member()) {
    if (json.is("kind")) e.kind = readKind(json);
    else if (json.is("value")) e.pieces = readValue(json.text(), config);
    else if (json.is("qps_limit")) e.qpsLimit = json.small(0, u32.MAX_VALUE);
    else if (json.is("tpm_limit")) e.tpmLimit = json.small(0, u32.MAX_VALUE);
    else if (json.is("multiplier_permille")) e.multiplier = json.small(1, MAX_MULTIPLIER);
    else if (json.is("burst_permille")) e.burst = json.small(1, MAX_MULTIPLIER);
    else if (json.is("cost_permille")) e.cost = json.small(1, MAX_MULTIPLIER);
    else if (json.is("tier")) e.tier = config.tier(json.text());
    else if (json.is("count_only")) e.countOnly = json.bool();
    else if (json.is("shadow")) e.shadow = json.bool();
    else json.unknown();
  }
  if ((e.kind == KIND_CUSTOM) != (e.pieces.length > 0)) fail(BAD_VALUE, "value: a custom dimension needs one, and no other has one");
  for (let i = 0; i < e.pieces.length; i++) {
    if (e.pieces[i].attribute >= 0) attributesAsked |= 1 << e.pieces[i].attribute;
  }
  return e;
}

// checkRoom refuses a table that could ask for more dimensions than a decision holds: a decision must not depend on luck.
function checkRoom(): void {
  let all: u32 = 0;
  let custom: u32 = 0;
  for (let i = 0; i < rules.length; i++) {
    const rule = rules[i];
    if (!takeAll) {
      all = 0;
      custom = 0;
    }
    for (let j = 0; j < rule.extras.length; j++) {
      all++;
      if (rule.extras[j].kind == KIND_CUSTOM) custom++;
    }
    const room = MAX_DIMS - kindsPicked();
    if (all <= room && custom <= MAX_CUSTOM) continue;
    at((takeAll ? "all rules up to " : "rule ") + rule.number.toString() + ": ");
    fail(TOO_MANY, "more than " + room.toString() + " added dimensions, or " + MAX_CUSTOM.toString() + " custom ones");
  }
}

function short(text: Text, most: u32): Text {
  if (text.size > most) fail(TOO_LONG, "a text of more than " + most.toString() + " bytes");
  return text;
}
