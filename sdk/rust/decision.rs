use crate::abi::*;
use core::ops::{Deref, DerefMut};

/// What [`Decision::done`] returns when the decision does not fit.
pub const GUEST_ERROR: u32 = 2;

/// One limit to test, as the policy wants it. Every multiplier is in 1/1000; 0 stands for 1000.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct Dimension {
    kind: u8,
    flags: u8,
    tier_plus_1: u16,
    pub qps_limit: u32, // requests per second; 0: as configured for this dimension
    pub tpm_limit: u32, // tokens per minute; 0: as configured
    pub multiplier: u32, // of both limits
    pub burst: u32,
    value_off: u32,
    value_len: u32,
    pub cost_multiplier: u32, // of the tokens that this dimension counts
}

/// What the module answers. Every multiplier is in 1/1000; 0 stands for 1000.
#[repr(C)]
pub struct Decision {
    major: u16,
    n_dims: u16,
    verdict: u8,
    flags: u8,
    tier_plus_1: u16,
    pub qps_multiplier: u32, // of the key dimension, as the next three
    pub tpm_multiplier: u32,
    pub quota_multiplier: u32,
    pub burst: u32,
    pub overdraft: i64, // micro-units: how far below zero the balance may go
    pub output_tokens_cap: u32, // 0: none
    pub price_multiplier: u32,
    status: u16,
    pub reason: u16, // shown in reports
    retry_after_ms: u32,
    message_off: u32,
    message_len: u32,
    arena_used: u32,
    failed: u32, // in reserved space, which the host ignores: more was asked for than fits
    dims: [Dimension; MAX_DIMS as usize],
    arena: [u8; ARENA_SIZE as usize],
}

const _: () = assert!(core::mem::size_of::<Decision>() == RESPONSE_SIZE as usize);
const _: () = assert!(core::mem::size_of::<Dimension>() == DIM_SIZE as usize);

impl Decision {
    /// Clears the answer of the call before; the SDK does it before each call.
    pub fn reset(&mut self) {
        unsafe {
            core::ptr::write_bytes(self as *mut Decision as *mut u64, 0, RESP_DIMS as usize / 8)
        };
        self.major = MAJOR as u16;
    }

    /// Picks a dimension (`KIND_…`), after those picked before. Picking none keeps key, model, global.
    pub fn pick(&mut self, kind: u32) -> Pick {
        if self.n_dims as u32 >= MAX_DIMS {
            self.failed = 1;
            self.n_dims = MAX_DIMS as u16 - 1;
        }
        let at = self.n_dims as usize;
        self.n_dims += 1;
        self.dims[at] = Dimension {
            kind: kind as u8,
            flags: 0,
            tier_plus_1: 0,
            qps_limit: 0,
            tpm_limit: 0,
            multiplier: 0,
            burst: 0,
            value_off: 0,
            value_len: 0,
            cost_multiplier: 0,
        };
        Pick { decision: self, at }
    }

    /// Puts the key into another tier (an index, as [`crate::Config::tier`] gives; `None`: no change).
    pub fn tier(&mut self, index: impl Into<Option<u32>>) {
        if let Some(i) = index.into() {
            self.tier_plus_1 = i as u16 + 1;
        }
    }

    /// Does not bill this request, where the operator's envelope allows.
    pub fn do_not_bill(&mut self) {
        self.flags |= RESP_NO_BILL as u8;
    }

    /// Does not limit this request, where the operator's envelope allows.
    pub fn do_not_limit(&mut self) {
        self.flags |= RESP_NO_LIMIT as u8;
    }

    /// Refuses with a status (400..499) and a text for the client; a wait of 0 ms means: do not try again.
    /// A decision has one message: of `deny` and `explain` the later one's counts.
    pub fn deny(&mut self, status: u16, message: &str, retry_after_ms: u32) {
        self.verdict = VERDICT_DENY as u8;
        self.status = status;
        self.retry_after_ms = retry_after_ms;
        self.message_off = RESP_ARENA + self.arena_used;
        self.message_len = self.append(message);
    }

    /// Says which rule fired, whatever the verdict: a number and a text for reports, the log and, where enabled, answers.
    /// After `deny` its text takes the place of the one for the client.
    pub fn explain(&mut self, reason: u16, message: &str) {
        self.reason = reason;
        self.message_off = RESP_ARENA + self.arena_used;
        self.message_len = self.append(message);
    }

    /// Reports that it would refuse, and lets the request pass.
    pub fn shadow_deny(&mut self) {
        self.verdict = VERDICT_SHADOW_DENY as u8;
    }

    /// What `decide` returns for this decision: a guest error when more was asked for than the ABI has room for.
    pub fn done(&self) -> u32 {
        if self.failed == 0 {
            DECIDED
        } else {
            GUEST_ERROR
        }
    }

    /// Adds text to the arena; gives its length, or 0 when it does not fit.
    fn append(&mut self, text: &str) -> u32 {
        let from = self.arena_used as usize;
        match self.arena.get_mut(from..from + text.len()) {
            Some(room) => {
                for (to, from) in room.iter_mut().zip(text.as_bytes()) {
                    *to = *from;
                }
                self.arena_used += text.len() as u32;
                text.len() as u32
            }
            None => {
                self.failed = 1;
                0
            }
        }
    }
}

/// A dimension that was picked: its fields are there to be set.
pub struct Pick<'a> {
    decision: &'a mut Decision,
    at: usize,
}

impl Pick<'_> {
    /// Takes the limits from a tier (an index, as [`crate::Config::tier`] gives; `None`: no change).
    pub fn tier(mut self, index: impl Into<Option<u32>>) -> Self {
        if let Some(i) = index.into() {
            self.tier_plus_1 = i as u16 + 1;
        }
        self
    }

    /// Counts, and never refuses.
    pub fn count_only(mut self) -> Self {
        self.flags |= DIM_COUNT_ONLY as u8;
        self
    }

    /// Counts, never refuses, and reports what it would have refused.
    pub fn shadow(mut self) -> Self {
        self.flags |= DIM_SHADOW as u8;
        self
    }

    /// Is left out when the request has no such value.
    pub fn skip_if_absent(mut self) -> Self {
        self.flags |= DIM_SKIP_ABSENT as u8;
        self
    }

    /// Adds text to a custom dimension's value.
    pub fn text(mut self, value: &str) -> Self {
        let off = RESP_ARENA + self.decision.arena_used;
        let len = self.decision.append(value);
        if self.value_len == 0 {
            self.value_off = off;
        }
        self.value_len += len;
        self
    }
}

impl Deref for Pick<'_> {
    type Target = Dimension;
    fn deref(&self) -> &Dimension {
        &self.decision.dims[self.at]
    }
}

impl DerefMut for Pick<'_> {
    fn deref_mut(&mut self) -> &mut Dimension {
        &mut self.decision.dims[self.at]
    }
}
