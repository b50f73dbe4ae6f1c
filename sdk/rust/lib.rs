//! Weir's policy SDK for Rust: `no_std`, no dependency, no allocation during a call.
//!
//! The gateway writes the facts of a request into this module's memory, calls `weir_decide`, and reads the decision;
//! [`Facts`] and [`Decision`] lie over the two buffers exactly as the ABI says. A policy is a type:
//!
//! ```ignore
//! #![no_std]
//! use weir::*;
//!
//! struct Night { qps: u32 }
//!
//! impl Policy for Night {
//!     fn configure(config: &Config) -> Result<Self, u32> {
//!         Ok(Night { qps: config.params.get("night_qps").integer(50) as u32 })
//!     }
//!     fn decide(&self, facts: &Facts, decision: &mut Decision) -> u32 {
//!         if facts.minute_of_week % 1440 >= 6 * 60 {
//!             return ABSTAINED; // the gateway's own defaults
//!         }
//!         decision.pick(KIND_KEY).qps_limit = self.qps;
//!         decision.done()
//!     }
//! }
//!
//! weir::export!(Night);
//! ```
#![no_std]

mod abi;
mod config;
mod decision;
mod facts;
#[doc(hidden)]
pub mod guest;

pub use abi::*;
pub use config::{Config, Elements, Json};
pub use decision::{Decision, Dimension, Pick, GUEST_ERROR};
pub use facts::{on, Facts};
pub use guest::{log, slice};

/// A policy: a pure function of the facts and of what was configured.
pub trait Policy: Sized {
    /// Bit i asks for attribute i; those not asked for are not written.
    const ATTRIBUTES: u64 = !0;

    /// Reads the configuration, once per instance. An error's number refuses the activation and is reported.
    fn configure(config: &Config) -> Result<Self, u32>;

    /// Answers one request: `decision.done()`, or [`ABSTAINED`] for the gateway's own defaults. The decision is clear.
    fn decide(&self, facts: &Facts, decision: &mut Decision) -> u32;
}

/// Makes a type that implements [`Policy`] the module's policy: what the ABI wants exported.
#[macro_export]
macro_rules! export {
    ($policy:ty) => {
        static WEIR_POLICY: $crate::guest::Slot<$policy> = $crate::guest::Slot::new();

        #[no_mangle]
        pub extern "C" fn weir_abi_version() -> u32 {
            $crate::VERSION
        }
        #[no_mangle]
        pub extern "C" fn weir_request() -> usize {
            $crate::guest::request()
        }
        #[no_mangle]
        pub extern "C" fn weir_response() -> usize {
            $crate::guest::response()
        }
        #[no_mangle]
        pub extern "C" fn weir_attributes() -> u64 {
            <$policy as $crate::Policy>::ATTRIBUTES
        }
        #[no_mangle]
        pub extern "C" fn weir_params_buffer(len: u32) -> usize {
            $crate::guest::params_buffer(len)
        }
        #[no_mangle]
        pub extern "C" fn weir_configure(len: u32) -> u32 {
            WEIR_POLICY.configure(len)
        }
        #[no_mangle]
        pub extern "C" fn weir_decide() -> u32 {
            WEIR_POLICY.decide()
        }
    };
}
