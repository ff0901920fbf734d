//! How a client connects, as JavaScript says it.
//!
//! 1. `client.js` has checked types and ranges: what can't be here counts as 0.
//!
//! The thread of the JavaScript.

use crate::fault::Fault;
use napi_derive::napi;
use nigh_client::{Address, ClientOptions, LocalUse, SPIN_MOST};
use std::time::Duration;

/// `ClientOptions` of `client.d.ts`.
#[napi(object, object_to_js = false)]
pub struct ClientGiven {
    pub username: Option<String>,
    pub password: Option<String>,
    pub name: Option<String>,
    pub timeout_ms: Option<i64>,
    pub wait_ms: Option<i64>,
    pub local: Option<String>,
    pub spin_us: Option<i64>,
    pub reads_unsynced: Option<bool>,
}

impl ClientGiven {
    pub(crate) fn options(self) -> Result<ClientOptions, Fault> {
        let count = |given: i64| u64::try_from(given).unwrap_or_default();
        let mut options = ClientOptions::default();
        options.connection.user = self.username;
        options.connection.password = self.password;
        options.connection.client_name = self.name;
        if let Some(ms) = self.timeout_ms {
            options.connection.timeout = Some(Duration::from_millis(count(ms)));
        }
        if let Some(ms) = self.wait_ms {
            options.wait = Duration::from_millis(count(ms));
        }
        options.spin = self.spin_us.map(|us| Duration::from_micros(count(us)));
        if let Some(spin) = options.spin.filter(|spin| *spin > SPIN_MOST) {
            let (us, most) = (spin.as_micros(), SPIN_MOST.as_micros());
            let message = format!("the option spinUs is {us}: microseconds, {most} at most");
            return Err(Fault::invalid(message));
        }
        options.reads_unsynced = self.reads_unsynced.unwrap_or_default();
        options.local = match self.local.as_deref() {
            None | Some("auto") => LocalUse::Auto,
            Some("required") => LocalUse::Required,
            Some("never") => LocalUse::Never,
            Some(other) => {
                let message = format!("local is '{other}': give 'auto', 'required' or 'never'");
                return Err(Fault::invalid(message));
            }
        };
        Ok(options)
    }
}

/// The address that a text names.
pub(crate) fn address(text: &str) -> Result<Address, Fault> {
    text.parse().map_err(|error: nigh_client::AddressError| Fault::invalid(error.to_string()))
}
