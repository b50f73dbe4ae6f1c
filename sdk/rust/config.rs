//! The configuration: a reader for the JSON that `weir_configure` is given. The host wrote it, so it is valid JSON; a
//! value that is missing or of another type reads as the fallback.
use crate::abi::ATTR_LABEL0;
use crate::guest::slice;

/// What the operator configured.
pub struct Config {
    /// The module's own params.
    pub params: Json,
    tiers: Json,
    labels: Json,
}

impl Config {
    pub(crate) fn new(text: &'static [u8]) -> Config {
        let root = Json(text);
        Config {
            tiers: root.get("tiers"),
            labels: root.get("labels"),
            params: root.get("params"),
        }
    }

    /// Index of the tier of that name.
    pub fn tier(&self, name: &str) -> Option<u32> {
        index(self.tiers, name)
    }

    /// Number of the attribute that carries the label of that name; `None`: it is not configured.
    pub fn label(&self, name: &str) -> Option<u32> {
        index(self.labels, name).map(|i| i + ATTR_LABEL0)
    }
}

fn index(names: Json, name: &str) -> Option<u32> {
    names.elements().position(|e| e.is(name)).map(|i| i as u32)
}

/// One value in the configuration's text.
#[derive(Clone, Copy)]
pub struct Json(&'static [u8]);

impl Json {
    fn first(self) -> u8 {
        self.0.first().copied().unwrap_or(0)
    }

    /// Reports that there is no such value, or that it is null.
    pub fn absent(self) -> bool {
        matches!(self.first(), 0 | b'n')
    }

    /// A member of an object.
    pub fn get(self, name: &str) -> Json {
        let mut rest = match self.first() {
            b'{' => blank(&self.0[1..]),
            _ => return Json(&[]),
        };
        while rest.first() == Some(&b'"') {
            let (key, after) = rest.split_at(text_end(rest));
            let after = blank(after);
            let after = blank(after.get(1..).unwrap_or(&[])); // :
            let (value, after) = after.split_at(value_end(after));
            if Json(key).is(name) {
                return Json(value);
            }
            rest = next(after);
        }
        Json(&[])
    }

    /// The elements of an array; none for anything else.
    pub fn elements(self) -> Elements {
        match self.first() {
            b'[' => Elements(blank(&self.0[1..])),
            _ => Elements(&[]),
        }
    }

    pub fn bool(self, fallback: bool) -> bool {
        match self.first() {
            b't' => true,
            b'f' => false,
            _ => fallback,
        }
    }

    /// A whole number; a fraction or an exponent reads as the fallback.
    pub fn integer(self, fallback: i64) -> i64 {
        let negative = self.first() == b'-';
        let digits = &self.0[negative as usize..];
        let mut n: i64 = 0;
        for c in digits {
            if !c.is_ascii_digit() || n > 900_000_000_000_000_000 {
                return fallback;
            }
            n = n * 10 + (c - b'0') as i64;
        }
        match digits.is_empty() {
            true => fallback,
            false if negative => -n,
            false => n,
        }
    }

    /// A string; it lives as long as the instance.
    pub fn string(self, fallback: &'static str) -> &'static str {
        if self.first() != b'"' {
            return fallback;
        }
        let text = slice(self.0.len(), 0u8);
        let mut n = 0;
        for c in Chars(&self.0[1..]) {
            match text.get_mut(n..n + c.len_utf8()) {
                Some(room) => n += c.encode_utf8(room).len(),
                None => return fallback,
            }
        }
        unsafe { core::str::from_utf8_unchecked(&text[..n]) }
    }

    /// Reports whether it is this string.
    pub fn is(self, want: &str) -> bool {
        self.first() == b'"' && Chars(&self.0[1..]).eq(want.chars())
    }
}

/// The elements of an array.
pub struct Elements(&'static [u8]);

impl Iterator for Elements {
    type Item = Json;
    fn next(&mut self) -> Option<Json> {
        if matches!(self.0.first(), None | Some(b']')) {
            return None;
        }
        let (value, after) = self.0.split_at(value_end(self.0));
        self.0 = next(after);
        match value {
            [] => None,
            _ => Some(Json(value)),
        }
    }
}

fn blank(s: &'static [u8]) -> &'static [u8] {
    let n = s
        .iter()
        .take_while(|c| matches!(c, b' ' | b'\n' | b'\r' | b'\t'))
        .count();
    &s[n..]
}

/// What follows a value: past a comma.
fn next(s: &'static [u8]) -> &'static [u8] {
    let s = blank(s);
    match s.first() {
        Some(b',') => blank(&s[1..]),
        _ => s,
    }
}

/// Where the string that s starts with ends.
fn text_end(s: &[u8]) -> usize {
    let mut i = 1;
    while i < s.len() {
        match s[i] {
            b'"' => return i + 1,
            b'\\' => i += 2,
            _ => i += 1,
        }
    }
    s.len()
}

/// Where the value that s starts with ends.
fn value_end(s: &[u8]) -> usize {
    let (mut i, mut depth) = (0, 0);
    while i < s.len() {
        match s[i] {
            b'"' => {
                i += text_end(&s[i..]);
                if depth == 0 {
                    return i;
                }
                continue;
            }
            b'{' | b'[' => depth += 1,
            b'}' | b']' if depth == 0 => return i,
            b'}' | b']' => {
                depth -= 1;
                if depth == 0 {
                    return i + 1;
                }
            }
            b',' | b' ' | b'\n' | b'\r' | b'\t' if depth == 0 => return i,
            _ => {}
        }
        i += 1;
    }
    s.len()
}

/// The characters of a string's text, behind its first quote. Half a surrogate pair is U+FFFD.
struct Chars(&'static [u8]);

impl Iterator for Chars {
    type Item = char;
    fn next(&mut self) -> Option<char> {
        match self.0.first() {
            None | Some(b'"') => None,
            Some(b'\\') => {
                self.0 = &self.0[1..];
                self.escape()
            }
            Some(_) => {
                let len = self
                    .0
                    .iter()
                    .skip(1)
                    .take_while(|c| **c & 0xc0 == 0x80)
                    .count()
                    + 1;
                let (c, after) = self.0.split_at(len);
                self.0 = after;
                Some(
                    core::str::from_utf8(c)
                        .ok()
                        .and_then(|s| s.chars().next())
                        .unwrap_or('\u{fffd}'),
                )
            }
        }
    }
}

impl Chars {
    fn escape(&mut self) -> Option<char> {
        let (letter, after) = self.0.split_first()?;
        self.0 = after;
        Some(match letter {
            b'b' => '\u{8}',
            b'f' => '\u{c}',
            b'n' => '\n',
            b'r' => '\r',
            b't' => '\t',
            b'u' => self.unicode(),
            c => *c as char,
        })
    }

    fn unicode(&mut self) -> char {
        let high = self.hex4();
        if (0xd800..0xdc00).contains(&high) && self.0.starts_with(b"\\u") {
            let mut ahead = Chars(&self.0[2..]);
            let low = ahead.hex4();
            if (0xdc00..0xe000).contains(&low) {
                self.0 = ahead.0;
                return char::from_u32(0x10000 + ((high & 0x3ff) << 10) + (low & 0x3ff))
                    .unwrap_or('\u{fffd}');
            }
        }
        char::from_u32(high).unwrap_or('\u{fffd}')
    }

    fn hex4(&mut self) -> u32 {
        let n = self.0.len().min(4);
        let (digits, after) = self.0.split_at(n);
        self.0 = after;
        digits
            .iter()
            .fold(0, |v, c| v << 4 | (*c as char).to_digit(16).unwrap_or(0))
    }
}
