//! The keys with the same label "team" share one limit, and at night each key may ask faster.
#![no_std]
use weir::*;

struct Teams {
    team: Option<u32>,
    team_qps: u32,
    night_permille: u32,
}

impl Policy for Teams {
    // Once per instance: what depends on the configuration. An error refuses the activation.
    fn configure(config: &Config) -> Result<Self, u32> {
        Ok(Teams {
            team: config.label("team"),
            team_qps: config.params.get("team_qps").integer(10) as u32,
            night_permille: config.params.get("night_permille").integer(2000) as u32,
        })
    }

    // Once per request: which limits apply. The gateway then decides whether they are met.
    fn decide(&self, facts: &Facts, decision: &mut Decision) -> u32 {
        let name = facts.attr(self.team);
        if name.is_empty() {
            return ABSTAINED;
        }
        decision.pick(KIND_KEY);
        decision.pick(KIND_MODEL);
        decision.pick(KIND_GLOBAL);
        decision
            .pick(KIND_CUSTOM)
            .text("team:")
            .text(name)
            .qps_limit = self.team_qps;
        let minute = facts.minute_of_week % 1440;
        if minute < 6 * 60 || minute >= 22 * 60 {
            decision.qps_multiplier = self.night_permille;
        }
        decision.done()
    }
}

weir::export!(Teams);
