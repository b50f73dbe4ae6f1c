//! The configuration: a reader for the JSON that `weir_configure` is given. The host wrote it, so it is valid JSON; a
//! value that is missing or of another type reads as the fallback.
use crate::abi::ATTR_LABEL0;
use crate::guest::{slice, Growing};

/// What the operator configured.
pub struct Config {
    /// The module's own params.
    pub params: Json,
    tiers: Json,
    labels: Json,
}

impl Config {
    pub(crate) fn new(text: &'static [u8]) -> Config {
        let root = Json::read(text);
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

/// One value of the configuration. The document is read once, into nodes: a value is followed by what it contains, in
/// an object a name, then its value.
#[derive(Clone, Copy)]
pub struct Json {
    text: &'static [u8],    // the document
    nodes: &'static [Node], // this value, then what it contains; empty: there is none
}

#[derive(Clone, Copy)]
struct Node {
    from: u32, // in the text
    to: u32,
    size: u32,   // nodes, with this one
    parent: u32, // only while reading
}

const NOTHING: Json = Json {
    text: &[],
    nodes: &[],
};

impl Json {
    /// Reads a document once, front to back.
    fn read(text: &'static [u8]) -> Json {
        const NONE: u32 = !0;
        let mut list: Growing<Node> = Growing::new();
        let (mut at, mut parent) = (0, NONE);
        loop {
            at = separators_end(text, at);
            let close = match text.get(at) {
                Some(c) => matches!(c, b'}' | b']'),
                None => break,
            };
            if close {
                at += 1;
                let count = list.0.len() as u32;
                match list.0.get_mut(parent as usize) {
                    Some(node) => {
                        node.to = at as u32;
                        node.size = count - parent;
                        parent = node.parent;
                    }
                    None => break,
                }
                continue;
            }
            let from = at as u32;
            let open = matches!(text[at], b'{' | b'[');
            at = match text[at] {
                _ if open => at + 1,
                b'"' => text_end(text, at),
                _ => word_end(text, at),
            };
            list.push(Node {
                from,
                to: at as u32,
                size: 1,
                parent,
            });
            if open {
                parent = list.0.len() as u32 - 1;
            }
        }
        let count = list.0.len() as u32;
        while let Some(node) = list.0.get_mut(parent as usize) {
            node.size = count - parent; // of a broken document
            parent = node.parent;
        }
        let nodes: &'static [Node] = list.0;
        Json::of(text, nodes).0
    }

    /// The value that some nodes start with, and the nodes behind it.
    fn of(text: &'static [u8], nodes: &'static [Node]) -> (Json, &'static [Node]) {
        match nodes.first() {
            Some(node) => {
                let (own, rest) = nodes.split_at(node.size as usize);
                (Json { text, nodes: own }, rest)
            }
            None => (NOTHING, nodes),
        }
    }

    fn raw(self) -> &'static [u8] {
        match self.nodes.first() {
            Some(node) => &self.text[node.from as usize..node.to as usize],
            None => &[],
        }
    }

    fn first(self) -> u8 {
        self.raw().first().copied().unwrap_or(0)
    }

    /// Reports that there is no such value, or that it is null.
    pub fn absent(self) -> bool {
        matches!(self.first(), 0 | b'n')
    }

    /// A member of an object.
    pub fn get(self, name: &str) -> Json {
        if self.first() != b'{' {
            return NOTHING;
        }
        let mut members = Elements(self.text, &self.nodes[1..]);
        while let (Some(key), Some(value)) = (members.next(), members.next()) {
            if key.is(name) {
                return value;
            }
        }
        NOTHING
    }

    /// The elements of an array; none for anything else.
    pub fn elements(self) -> Elements {
        match self.first() {
            b'[' => Elements(self.text, &self.nodes[1..]),
            _ => Elements(&[], &[]),
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
        let digits = &self.raw()[negative as usize..];
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
        let text = match self.plain() {
            Some(plain) => plain,
            None => self.decode(),
        };
        core::str::from_utf8(text).unwrap_or(fallback)
    }

    /// Reports whether it is this string.
    pub fn is(self, want: &str) -> bool {
        match self.plain() {
            Some(plain) => plain == want.as_bytes(),
            None => self.first() == b'"' && Chars(&self.raw()[1..]).eq(want.chars()),
        }
    }

    /// The text of a string that has no escapes.
    fn plain(self) -> Option<&'static [u8]> {
        match self.raw() {
            [b'"', text @ .., b'"'] if plain_end(text) == text.len() => Some(text),
            _ => None,
        }
    }

    fn decode(self) -> &'static [u8] {
        let raw = self.raw();
        let text = slice(raw.len() + 4, 0u8);
        let (mut chars, mut n) = (Chars(&raw[1..]), 0);
        loop {
            let run = plain_end(chars.0);
            text[n..n + run].copy_from_slice(&chars.0[..run]);
            n += run;
            chars.0 = &chars.0[run..];
            match chars.next() {
                Some(c) => n += c.encode_utf8(&mut text[n..]).len(),
                None => return &text[..n],
            }
        }
    }
}

/// Where the first backslash or quote is.
#[inline(never)]
fn plain_end(s: &[u8]) -> usize {
    let mut at = 0;
    while let Some(bytes) = eight(s, at) {
        let marks = marks(bytes, b'"') | marks(bytes, b'\\');
        if marks != 0 {
            return at + marks.trailing_zeros() as usize / 8;
        }
        at += 8;
    }
    while at < s.len() && s[at] != b'"' && s[at] != b'\\' {
        at += 1;
    }
    at
}

/// The eight bytes from `at` on, as a number.
fn eight(s: &[u8], at: usize) -> Option<u64> {
    let mut bytes = [0; 8];
    bytes.copy_from_slice(s.get(at..at + 8)?);
    Some(u64::from_le_bytes(bytes))
}

/// The elements of an array.
pub struct Elements(&'static [u8], &'static [Node]);

impl Iterator for Elements {
    type Item = Json;
    fn next(&mut self) -> Option<Json> {
        if self.1.is_empty() {
            return None;
        }
        let (value, rest) = Json::of(self.0, self.1);
        self.1 = rest;
        Some(value)
    }
}

/// Where the blanks, commas and colons from `at` on end.
#[inline(never)]
fn separators_end(s: &[u8], mut at: usize) -> usize {
    while at < s.len() && matches!(s[at], 0..=b' ' | b',' | b':') {
        at += 1;
    }
    at
}

/// Where the string that starts at `at` ends.
#[inline(never)]
fn text_end(s: &[u8], mut at: usize) -> usize {
    at += 1;
    while at < s.len() {
        at += plain_end(&s[at..]);
        match s.get(at) {
            Some(b'"') => return at + 1,
            _ => at += 2, // a backslash and what it escapes
        }
    }
    s.len()
}

/// Marks which of eight bytes are c, by their highest bits; exact up to the first.
fn marks(bytes: u64, c: u8) -> u64 {
    const ONES: u64 = 0x0101_0101_0101_0101;
    let x = bytes ^ (ONES * c as u64);
    x.wrapping_sub(ONES) & !x & (ONES << 7)
}

/// Where the number or word that starts at `at` ends.
#[inline(never)]
fn word_end(s: &[u8], at: usize) -> usize {
    let word = s[at + 1..]
        .iter()
        .take_while(|c| !matches!(c, 0..=b' ' | b',' | b']' | b'}' | b':'));
    at + 1 + word.count()
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
