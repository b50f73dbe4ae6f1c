use crate::abi::*;

/// What is known about the request, as the host wrote it. A limit of 0 means unlimited.
#[repr(C)]
pub struct Facts {
    size: u32,
    pub host_minor: u16,
    n_attr: u16,
    pub now_ms: u64,            // unix time
    pub entropy: u64,           // from the request id: the same on a replay
    pub flags: u32,             // FLAG_…
    pub endpoint: u32,          // ENDPOINT_…
    pub input_tokens: u32,      // estimate
    pub output_tokens_max: u32, // upper bound over all choices
    pub choices: u32,
    pub body_bytes: u32,
    pub key_id: u64,
    pub user_id: u64,
    pub org_id: u64,
    pub qps_limit: u32, // of the key, as the next five
    pub qps_current: u32,
    pub tpm_limit: u32,
    pub tpm_current: u32,
    pub concurrency_limit: u32,
    pub concurrency_current: u32,
    pub quota_limit: i64, // micro-units of the currency, as the next three
    pub quota_used: i64,  // posted and held
    pub balance_available: i64,
    pub estimated_cost: i64,
    pub minute_of_week: u32, // in the key's zone, Monday 00:00 is 0
    pub day_of_month: u16,
    pub days_in_month: u16,
    pub tier: u32,       // index of the key's tier
    pub generation: u32, // of the params
    reserved: [u8; 16],
    attrs: [(u32, u32); N_ATTR as usize], // offset and length
    strings: [u8; (REQUEST_SIZE - REQ_STRINGS) as usize],
}

const _: () = assert!(core::mem::size_of::<Facts>() == REQUEST_SIZE as usize);

impl Facts {
    /// Reports whether one of the given flags is set.
    pub fn has(&self, flags: u32) -> bool {
        self.flags & flags != 0
    }

    /// An attribute by its number: `ATTR_MODEL`, …, or what [`crate::Config::label`] gave. Empty: absent.
    pub fn attr(&self, i: impl Into<Option<u32>>) -> &str {
        let (off, len) = match i.into() {
            Some(i) if i < N_ATTR => self.attrs[i as usize],
            _ => return "",
        };
        if off < REQ_STRINGS || off > REQUEST_SIZE || len > REQUEST_SIZE - off {
            return "";
        }
        let from = (off - REQ_STRINGS) as usize;
        // The host sends UTF-8, whole or empty.
        unsafe {
            core::str::from_utf8_unchecked(self.strings.get_unchecked(from..from + len as usize))
        }
    }
}

/// For labels that are switches: there, and neither "false", "no", "off" nor "0".
pub fn on(label: &str) -> bool {
    !matches!(label, "" | "false" | "no" | "off" | "0")
}
