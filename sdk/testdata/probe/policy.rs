//! A module that uses every part of the SDK; the test tells it by the model attribute what to do.
#![no_std]
use weir::*;

struct Probe;

impl Policy for Probe {
    const ATTRIBUTES: u64 = 1 << ATTR_MODEL | 1 << ATTR_KEY_NAME | 1 << ATTR_END_USER;

    fn configure(config: &Config) -> Result<Self, u32> {
        let p = config.params;
        let refuse = |code: u32, unless: bool| if unless { Ok(()) } else { Err(code) };
        if p.absent() {
            return Ok(Probe);
        }
        refuse(
            1,
            p.get("text").string("") == "a\"b\\c/\u{8}\u{c}\n\r\té😀\u{1}",
        )?;
        refuse(2, p.get("number").integer(0) == -1234567890123)?;
        refuse(
            3,
            p.get("fraction").integer(7) == 7
                && p.get("big").integer(8) == 8
                && p.get("text").integer(9) == 9,
        )?;
        refuse(
            4,
            p.get("yes").bool(false) && !p.get("no").bool(true) && p.get("none").bool(true),
        )?;
        refuse(
            5,
            p.get("none").absent() && p.get("missing").absent() && !p.get("no").absent(),
        )?;
        let list = slice(4, p.get("missing"));
        let mut n = 0;
        for e in p.get("list").elements() {
            list[n] = e;
            n += 1;
        }
        refuse(6, n == 3 && list[0].integer(0) == 1)?;
        refuse(
            6,
            list[1].get("deep").elements().nth(1).map(|e| e.string("")) == Some("}]"),
        )?;
        refuse(
            7,
            list[2].elements().count() == 0
                && p.get("empty").get("x").string("fallback") == "fallback",
        )?;
        refuse(
            8,
            config.tier("b") == Some(1)
                && config.tier("c") == None
                && config.label("y") == Some(9)
                && config.label("z") == None,
        )?;
        Ok(Probe)
    }

    fn decide(&self, facts: &Facts, decision: &mut Decision) -> u32 {
        match facts.attr(ATTR_MODEL) {
            "match" => return compare(facts.attr(ATTR_END_USER)),
            "facts" => return numbers(facts),
            "everything" => everything(facts, decision),
            "deny" => {
                decision.deny(429, "später 😀", 1500);
                decision.reason = 7;
            }
            "shadow" => decision.shadow_deny(),
            "full" => (0..16).for_each(|_| drop(decision.pick(KIND_KEY))),
            "overfull" => (0..17).for_each(|_| drop(decision.pick(KIND_KEY))),
            "arena" => arena(decision, "é"), // the last two of 1472 bytes
            "arena overfull" => arena(decision, "xé"),
            "log" => {
                log(LOG_WARN, "straße 😀");
                return ABSTAINED;
            }
            _ => return ABSTAINED,
        }
        decision.done()
    }
}

// Each bit of the answer is one comparison of the end user's text.
fn compare(a: &str) -> u32 {
    let bits = [
        a == "grüße 😀 x",
        a.starts_with("grüß"),
        a.starts_with("grüss"),
        a.ends_with("😀 x"),
        a.ends_with(""),
        a == "grüße 😀 xx",
        on(a),
        a.is_empty(),
    ];
    bits.iter()
        .enumerate()
        .fold(1 << 8, |all, (i, bit)| all | (*bit as u32) << i)
}

fn numbers(f: &Facts) -> u32 {
    let checks = [
        f.now_ms == 1_700_000_000_000 && f.entropy == 0xfedcba9876543210,
        f.has(FLAG_STREAM)
            && !f.has(FLAG_IMAGES)
            && f.endpoint == 5
            && f.input_tokens == 11
            && f.output_tokens_max == 12,
        f.choices == 13
            && f.body_bytes == 14
            && f.key_id == 15
            && f.user_id == 16
            && f.org_id == 17,
        f.qps_limit == 18 && f.qps_current == 19 && f.tpm_limit == 20 && f.tpm_current == 21,
        f.concurrency_limit == 22
            && f.concurrency_current == 23
            && f.quota_limit == 24
            && f.quota_used == 25,
        f.balance_available == -26 && f.estimated_cost == 27 && f.minute_of_week == 28,
        f.day_of_month == 29 && f.days_in_month == 30 && f.tier == 31 && f.generation == 32,
    ];
    checks
        .iter()
        .position(|ok| !ok)
        .map_or(DECIDED, |i| i as u32 + 2)
}

fn everything(facts: &Facts, d: &mut Decision) {
    d.tier(1);
    d.tier(None);
    d.do_not_bill();
    d.do_not_limit();
    d.qps_multiplier = 1001;
    d.tpm_multiplier = 1002;
    d.quota_multiplier = 1003;
    d.burst = 1004;
    d.overdraft = 1 << 40;
    d.output_tokens_cap = 1005;
    d.price_multiplier = 1006;
    let mut end = d.pick(KIND_END_USER).skip_if_absent().shadow();
    end.qps_limit = 5;
    end.tpm_limit = 6;
    let mut team = d
        .pick(KIND_CUSTOM)
        .count_only()
        .tier(0)
        .text("team:")
        .text(facts.attr(ATTR_KEY_NAME))
        .text("/ü");
    team.multiplier = 7;
    team.burst = 8;
    team.cost_multiplier = 9;
    d.pick(KIND_CUSTOM).text("second");
}

fn arena(d: &mut Decision, last: &str) {
    let mut x = d.pick(KIND_CUSTOM);
    for _ in 0..147 {
        x = x.text("0123456789");
    }
    x.text(last);
}

weir::export!(Probe);
