// When a request came: in the zone of its key, which the host sends, at a fixed offset from UTC, or in a zone by its name. A
// module has no zone database; the host gives it the offsets of a named zone as a table beside the name.
import { facts } from "../../sdk/assemblyscript/assembly";
import { NO_TEXT, Reader, Text } from "./json";
import { EMPTY_TIME, fail, MALFORMED, quoted } from "./refusal";

export const DAY: u32 = 1440; // minutes
const WEEK: u32 = 7 * DAY;
export const ALL_WEEK: u32 = 0x7f;

const IN_KEYS_ZONE: i32 = i32.MIN_VALUE;
let offset: i32 = IN_KEYS_ZONE; // minutes east of UTC

/** Minutes since Monday 00:00. */
export function minuteOfWeek(): u32 {
  if (offset == IN_KEYS_ZONE) return facts.minuteOfWeek % WEEK;
  return <u32>((minutes() + 3 * DAY) % WEEK); // 1970 began on a Thursday
}

/** Minutes since 1970 at the offset. */
function minutes(): i64 {
  const now = <i64>(facts.nowMs / 60_000);
  return max(now + (entries > 0 ? east(now) : offset), 0);
}

// The table of a named zone: from which minute on, and how many minutes east of UTC. The first entry is from the beginning.
const MAX_ENTRIES: i32 = 256;
const ENTRY: usize = 8;
const table = memory.data(MAX_ENTRIES * ENTRY, 4);
let entries: i32 = 0;
let zoneName: Text = NO_TEXT;
let tableName: Text = NO_TEXT;

// east finds the last entry that has begun.
function east(now: i64): i32 {
  let low = 0;
  let high = entries - 1;
  while (low < high) {
    const middle = (low + high + 1) >> 1;
    if (<i64>load<i32>(table + ENTRY * middle) <= now) low = middle;
    else high = middle - 1;
  }
  return load<i32>(table + ENTRY * low, 4);
}

/** Bit d: this is day d of the month. Bit 32 + d: it is the d-th from the end, which is 1. */
export function dayOfMonth(): u64 {
  let day = <u64>facts.dayOfMonth;
  let days = <u64>facts.daysInMonth;
  if (offset != IN_KEYS_ZONE) {
    const date = civil(minutes() / DAY);
    day = date & 31;
    days = date >> 5;
  }
  return ((<u64>1) << (day & 31)) | ((<u64>1) << (32 + ((days + 1 - day) & 31)));
}

// civil gives the day of the month of a day since 1970, plus 32 times the days of that month. Years are counted from
// March, so that the odd day is the last one: a month of day n of a year is (5 n + 2) / 153.
function civil(day: i64): u64 {
  const z = day + 719_468; // since 0000-03-01
  const inEra = z % 146_097; // 400 years
  const year = (inEra - inEra / 1460 + inEra / 36_524 - inEra / 146_096) / 365;
  const inYear = inEra - (365 * year + year / 4 - year / 100);
  const month = (5 * inYear + 2) / 153; // 0 is March
  const first = (153 * month + 2) / 5;
  const leap = (year + 1) % 4 == 0 && ((year + 1) % 100 != 0 || year + 1 == 400);
  const next = month == 11 ? (leap ? 366 : 365) : (153 * (month + 1) + 2) / 5;
  return <u64>(inYear - first + 1) | ((<u64>(next - first)) << 5);
}

/** Some hours of some days of the week. */
export class Hours {
  weekdays: u32 = ALL_WEEK; // bit 0: Monday
  from: u32 = 0; // minutes of the day; past to: over midnight, and the day is the one it begins on
  to: u32 = DAY; // not included

  include(minuteOfWeek: u32): bool {
    return this.has(minuteOfWeek / DAY, minuteOfWeek % DAY);
  }

  /** The same of a day, Monday being 0, and a minute of the day. */
  has(day: u32, minute: u32): bool {
    if (this.from >= this.to && minute < this.to) return ((this.weekdays >> ((day + 6) % 7)) & 1) != 0;
    if (minute < this.from || (minute >= this.to && this.from < this.to)) return false;
    return ((this.weekdays >> day) & 1) != 0;
  }

  /** Refuses hours that hold no minute. */
  check(): void {
    if (this.from == this.to) fail(EMPTY_TIME, "from and to are the same time; a whole day is 00:00 to 24:00");
  }
}

/** Reads "key", "UTC", "+08:00" or "Europe/Berlin": where times are looked at. checkZone belongs behind everything. */
export function readZone(json: Reader): void {
  const text = json.text();
  const name = text.toString();
  zoneName = NO_TEXT;
  if (name == "key") {
    offset = IN_KEYS_ZONE;
    return;
  }
  if (name == "UTC") {
    offset = 0;
    return;
  }
  const sign = name.charCodeAt(0);
  if (sign != 0x2b && sign != 0x2d) {
    zoneName = text;
    offset = 0;
    return;
  }
  const east = clock(text, 1);
  if (text.size != 6 || east > 14 * 60) fail(MALFORMED, 'want "key", "UTC", an offset as "+08:00" or a name as "Europe/Berlin"');
  offset = sign == 0x2d ? -<i32>east : <i32>east;
}

/** Reads the table that the host makes of a zone's name. */
export function readZoneTable(json: Reader): void {
  if (!json.object()) return;
  while (json.member()) {
    if (json.is("name")) tableName = json.text();
    else if (json.is("offsets")) readOffsets(json);
    else json.unknown();
  }
}

// readOffsets reads an offset, and then pairs of a minute and the offset from there on.
function readOffsets(json: Reader): void {
  entries = 0;
  if (!json.array()) return;
  let from: i64 = i32.MIN_VALUE;
  let expectsOffset = true;
  while (json.element()) {
    if (!expectsOffset) {
      const next = json.integer(i32.MIN_VALUE, i32.MAX_VALUE);
      if (next <= from) fail(MALFORMED, "the table of the zone is out of order");
      from = next;
    } else {
      const minutes = <i32>json.integer(-1440, 1440);
      if (entries == MAX_ENTRIES) {
        fail(MALFORMED, "the table of the zone is too long");
        return;
      }
      store<i32>(table + ENTRY * entries, <i32>from);
      store<i32>(table + ENTRY * entries, minutes, 4);
      entries++;
    }
    expectsOffset = !expectsOffset;
  }
}

/** Refuses a name without its table; a table that belongs to no name is left alone. */
export function checkZone(): void {
  if (zoneName.size == 0) entries = 0;
  else if (entries == 0 || !tableName.equals(zoneName)) fail(MALFORMED, "the gateway knows no offsets of the zone " + quoted(zoneName.toString()));
}

/** Reads a time of day, "00:00" to "24:00", as minutes. */
export function readTime(json: Reader): u32 {
  const text = json.text();
  const t = clock(text, 0);
  if (text.size != 5 || t > DAY) fail(MALFORMED, 'want a time as "08:30"');
  return t;
}

// clock reads hh:mm from a place in a text; u32.MAX_VALUE when that is not there.
function clock(text: Text, from: u32): u32 {
  if (text.size < from + 5 || load<u8>(text.ptr + from + 2) != 0x3a) return u32.MAX_VALUE;
  let t: u32 = 0;
  for (let i: u32 = 0; i < 5; i++) {
    if (i == 2) continue;
    const digit = <u32>load<u8>(text.ptr + from + i) - 0x30;
    if (digit > 9 || (i == 3 && digit > 5)) return u32.MAX_VALUE;
    t = t * (i == 3 ? 6 : 10) + digit;
  }
  return t;
}

/** Reads an array of weekdays as bits. */
export function readWeekdays(json: Reader): u32 {
  let days: u32 = 0;
  if (json.array()) while (json.element()) days |= 1 << json.word("mon tue wed thu fri sat sun");
  return days;
}

/** Reads an array of days of the month, -1 being the last one, as the bits of dayOfMonth. */
export function readDays(json: Reader): u64 {
  let days: u64 = 0;
  if (!json.array()) return 0;
  while (json.element()) {
    const d = json.integer(-31, 31);
    if (d == 0) fail(MALFORMED, "0 is no day of a month; the last one is -1");
    days |= (<u64>1) << (d > 0 ? d : 32 - d);
  }
  return days;
}
