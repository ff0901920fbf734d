//! C's options of a client, and of its writes, as the crate `nigh-client` takes them.
//!
//! Any thread: plain data.

use crate::client_types::{nigh_client_options, nigh_condition, nigh_local_use, nigh_set_options};
use crate::fault::Fault;
use nigh_client::{ClientOptions, ConnectionOptions, LocalUse, Protocol, SPIN_MOST};
use std::time::Duration;

/// The texts of a client's options.
#[derive(Default)]
pub(crate) struct OptionTexts<'a> {
    pub(crate) user: Option<&'a str>,
    pub(crate) password: Option<&'a str>,
    pub(crate) client_name: Option<&'a str>,
}

/// How a client connects, reads and waits.
pub(crate) fn client_options(
    given: &nigh_client_options,
    texts: &OptionTexts<'_>,
) -> Result<ClientOptions, Fault> {
    const AUTO: i32 = nigh_local_use::NIGH_LOCAL_AUTO as i32;
    const REQUIRED: i32 = nigh_local_use::NIGH_LOCAL_REQUIRED as i32;
    const NEVER: i32 = nigh_local_use::NIGH_LOCAL_NEVER as i32;
    let timeout = match u64::try_from(given.timeout_ms) {
        Ok(0) => ConnectionOptions::default().timeout,
        Ok(ms) => Some(Duration::from_millis(ms)),
        Err(_) => None,
    };
    let protocol = match given.protocol {
        0 | 2 => Protocol::Resp2,
        3 => Protocol::Resp3,
        other => return Err(Fault::invalid(format!("protocol is {other}: 0, 2 and 3 are known"))),
    };
    let local = match given.local {
        AUTO => LocalUse::Auto,
        REQUIRED => LocalUse::Required,
        NEVER => LocalUse::Never,
        other => {
            return Err(Fault::invalid(format!("local is {other}, which is no nigh_local_use")));
        }
    };
    let spin = u64::try_from(given.spin_us).map_or(Some(0), |us| (us != 0).then_some(us));
    let spin = spin.map(Duration::from_micros);
    if spin.is_some_and(|spin| spin > SPIN_MOST) {
        let most = SPIN_MOST.as_micros();
        return Err(Fault::invalid(format!("spin_us is {}: {most} are the most", given.spin_us)));
    }
    let owned = |text: Option<&str>| text.map(str::to_owned);
    Ok(ClientOptions {
        connection: ConnectionOptions {
            timeout,
            user: owned(texts.user),
            password: owned(texts.password),
            protocol,
            client_name: owned(texts.client_name),
            ..ConnectionOptions::default()
        },
        local,
        wait: Duration::from_millis(given.wait_ms),
        spin,
        reads_unsynced: given.reads_unsynced != 0,
        attach_once: given.attach_once != 0,
        ..ClientOptions::default()
    })
}

/// The words behind key and value of a SET.
pub(crate) fn set_words(given: &nigh_set_options) -> Result<Vec<String>, Fault> {
    const ALWAYS: i32 = nigh_condition::NIGH_ALWAYS as i32;
    const IF_ABSENT: i32 = nigh_condition::NIGH_IF_ABSENT as i32;
    const IF_PRESENT: i32 = nigh_condition::NIGH_IF_PRESENT as i32;
    let mut words = Vec::new();
    match (given.expires_in_ms, given.expires_at_ms, given.keeps_expiry != 0) {
        (0, 0, false) => {}
        (0, 0, true) => words.push("KEEPTTL".to_owned()),
        (in_ms, 0, false) => words.extend(["PX".to_owned(), in_ms.to_string()]),
        (0, at_ms, false) => words.extend(["PXAT".to_owned(), at_ms.to_string()]),
        _ => {
            let message = "more than one of expires_in_ms, expires_at_ms and keeps_expiry is \
                           given: set the others to 0";
            return Err(Fault::invalid(message));
        }
    }
    match given.condition {
        ALWAYS => {}
        IF_ABSENT => words.push("NX".to_owned()),
        IF_PRESENT => words.push("XX".to_owned()),
        other => {
            return Err(Fault::invalid(format!(
                "condition is {other}, which is no nigh_condition"
            )));
        }
    }
    Ok(words)
}
