//! One policy, written four times: the other three stand beside this one. Each part of the facts decides something.
#![no_std]
use weir::*;

struct Same {
    pro: Option<u32>, // tiers
    enterprise: Option<u32>,
    downgrade: Option<u32>,
    team: Option<u32>, // labels
    soft: Option<u32>,
    region: Option<u32>,
    night: (u32, u32), // hours
    night_qps: u32,
    soft_share: i64,
    soft_tpm: u32,
    big_tokens: u32,
    team_qps: u32,
    sample_percent: u32,
    strict: bool,
    blocked: &'static [&'static str],
    models: &'static [(&'static str, u32)], // prefix and cost
}

fn number(object: Json, member: &str, fallback: i64) -> u32 {
    object.get(member).integer(fallback) as u32
}

impl Policy for Same {
    fn configure(config: &Config) -> Result<Self, u32> {
        let p = config.params;
        let night = p.get("night");
        let users = p.get("blocked");
        let blocked = slice(users.elements().count(), "");
        blocked
            .iter_mut()
            .zip(users.elements())
            .for_each(|(to, e)| *to = e.string(""));
        let costs = p.get("models");
        let models = slice(costs.elements().count(), ("", 0));
        models.iter_mut().zip(costs.elements()).for_each(|(to, e)| {
            *to = (e.get("prefix").string(""), number(e, "cost_permille", 1000))
        });
        Ok(Same {
            pro: config.tier("pro"),
            enterprise: config.tier("enterprise"),
            downgrade: config.tier(p.get("downgrade").string("free")),
            team: config.label("team"),
            soft: config.label("soft"),
            region: config.label("region"),
            night: (number(night, "from_hour", 22), number(night, "to_hour", 6)),
            night_qps: number(night, "qps_permille", 2000),
            soft_share: p.get("soft_share_permille").integer(900),
            soft_tpm: number(p, "soft_tpm_permille", 500),
            big_tokens: number(p, "big_tokens", 20000),
            team_qps: number(p, "team_qps", 10),
            sample_percent: number(p, "sample_percent", 0),
            strict: p.get("strict").bool(false),
            blocked,
            models,
        })
    }

    fn decide(&self, f: &Facts, d: &mut Decision) -> u32 {
        if f.endpoint == ENDPOINT_EMBEDDINGS && Some(f.tier) == self.enterprise {
            return ABSTAINED;
        }
        let user = f.attr(ATTR_END_USER);
        if self.blocked.contains(&user) {
            return deny(d, 403, "this end user is blocked", 0, 1);
        }
        let total = f.input_tokens as u64 + f.output_tokens_max as u64;
        if self.strict && total > 4 * self.big_tokens as u64 {
            return deny(d, 429, "too many tokens für eine Anfrage", 60000, 2);
        }
        let soft = on(f.attr(self.soft));
        self.by_month(f, d, soft);
        self.by_time(f, d);
        self.by_money(f, d, soft);
        self.pick_dimensions(f, d, user, total > self.big_tokens as u64);
        d.done()
    }
}

fn deny(d: &mut Decision, status: u16, message: &str, wait: u32, reason: u16) -> u32 {
    d.deny(status, message, wait);
    d.reason = reason;
    d.done()
}

impl Same {
    // Of the prefixes that match, the longest counts.
    fn cost_of(&self, model: &str) -> u32 {
        let mut best = ("", 0);
        for m in self.models {
            if m.0.len() >= best.0.len() && model.starts_with(m.0) {
                best = *m;
            }
        }
        best.1
    }

    fn by_month(&self, f: &Facts, d: &mut Decision, soft: bool) {
        let share = if f.quota_limit > 0 {
            f.quota_used / (f.quota_limit / 1000).max(1)
        } else {
            -1
        };
        if share >= self.soft_share {
            if soft {
                d.quota_multiplier = 1100;
                d.tier(self.downgrade);
            } else {
                d.tpm_multiplier = self.soft_tpm;
            }
            if share >= 2 * self.soft_share {
                d.shadow_deny();
                d.reason = 3;
            }
        }
        if f.day_of_month == f.days_in_month {
            d.quota_multiplier = d.quota_multiplier.max(1050);
        }
    }

    fn by_time(&self, f: &Facts, d: &mut Decision) {
        let hour = f.minute_of_week % 1440 / 60;
        let weekend = f.minute_of_week / 1440 >= 5;
        let (from, to) = self.night;
        let night = if from <= to {
            hour >= from && hour < to
        } else {
            hour >= from || hour < to
        };
        if night {
            d.qps_multiplier = self.night_qps;
        }
        if (night || weekend) && Some(f.tier) == self.pro {
            d.burst = 3000;
        }
        if f.now_ms / 3_600_000 % 2 == 1 && d.reason == 0 {
            d.reason = 100 + hour as u16;
        }
    }

    fn by_money(&self, f: &Facts, d: &mut Decision, soft: bool) {
        if Some(f.tier) == self.enterprise && f.balance_available < f.estimated_cost {
            d.overdraft = f.estimated_cost - f.balance_available;
            d.price_multiplier = 1200;
        }
        if f.has(FLAG_RETRY) {
            d.price_multiplier = 1100;
        }
        if f.has(FLAG_IMAGES | FLAG_FILES) && Some(f.tier) != self.enterprise {
            d.output_tokens_cap = self.big_tokens / 2;
        }
        if soft && f.key_id % 7 == 0 {
            d.do_not_bill();
        }
        if f.concurrency_limit > 0 && f.concurrency_current >= f.concurrency_limit {
            d.do_not_limit();
        }
    }

    fn pick_dimensions(&self, f: &Facts, d: &mut Decision, user: &str, big: bool) {
        let mut key = d.pick(KIND_KEY);
        if big {
            key.cost_multiplier = 1500;
            key.multiplier = 800;
        }
        d.pick(KIND_MODEL).cost_multiplier = self.cost_of(f.attr(ATTR_MODEL));
        d.pick(KIND_GLOBAL);
        if f.tier == 0 {
            d.pick(KIND_USER);
        } else {
            let org = d.pick(KIND_ORG).count_only();
            if f.entropy % 100 < self.sample_percent as u64 {
                org.shadow();
            }
        }
        d.pick(KIND_IP).skip_if_absent();
        if !user.is_empty() {
            d.pick(KIND_END_USER).tier(self.pro);
        }
        let mut pair = d.pick(KIND_KEY_MODEL);
        if f.has(FLAG_STREAM) {
            pair.qps_limit = 5;
        }
        pair.tpm_limit = f.tpm_limit / 2;
        if f.qps_limit > 0 && f.qps_current as u64 * 2 > f.qps_limit as u64 {
            pair.burst = 1500;
        }
        let (team, region) = (f.attr(self.team), f.attr(self.region));
        if !team.is_empty() {
            d.pick(KIND_CUSTOM).text("team:").text(team).qps_limit = self.team_qps;
        }
        if region.ends_with("-eu") {
            d.pick(KIND_CUSTOM)
                .count_only()
                .text("eu/")
                .text(region)
                .text("/")
                .text(f.attr(ATTR_MODEL));
        }
        d.pick(if f.endpoint == ENDPOINT_MESSAGES {
            KIND_CHANNEL
        } else {
            KIND_MODEL_CHANNEL
        });
    }
}

weir::export!(Same);
