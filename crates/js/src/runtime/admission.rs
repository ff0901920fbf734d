//! Decides whether a call may run. The runtime's thread.

use super::Runtime;
use crate::caller::fcall::{Call, Tenant};
use crate::caller::function_limits::FunctionLimits;
use crate::error_reply;
use crate::io::call_writer::How;
use crate::isolate::lingering::Stuck;
use crate::tenant::TenantState;

impl Runtime {
    /// Whether there is such a function, and it may be called so; else [`Runtime::run`] answers
    /// with the reason.
    #[must_use]
    pub fn admits(&self, tenant: Tenant, call: &Call<'_>) -> bool {
        self.admit(tenant, call).is_ok()
    }

    /// The function's number and how it runs; or the error reply.
    pub(super) fn admit(&self, tenant: Tenant, call: &Call<'_>) -> Result<(u32, How), Vec<u8>> {
        let TenantState { functions, arenas, libraries, .. } = &self.tenants[tenant.0 as usize];
        let id = functions.id(call.function);
        let Some((id, callable)) = id.and_then(|id| Some((id, functions.by_id(id)?))) else {
            return Err(error_reply::reply("ERR Function not found"));
        };
        if call.read_only && !callable.no_writes {
            return Err(error_reply::reply(
                "ERR Can not execute a script with write flag using *_ro command.",
            ));
        }
        if !self.lingering.is_empty()
            && let Some(installed) = libraries.get(&*callable.library)
            && let Some(stuck) =
                self.lingering.stuck(tenant, &callable.library, &callable.name, &installed.source)
        {
            return Err(error_reply::lingers(&callable.name, stuck == Stuck::ForGood));
        }
        let (no_writes, cross_slot) = (callable.no_writes, callable.cross_slot);
        Ok((id, How { no_writes, cross_slot, stable: arenas.is_foreign() }))
    }

    /// The error reply if a call has more arguments than the limits allow. Decoding them isn't part
    /// of the call's time.
    pub(super) fn limit_arguments(&self, call: &Call<'_>) -> Result<(), Vec<u8>> {
        let FunctionLimits { arguments, argument_bytes, .. } = self.limits;
        let count = call.keys.len() + call.args.len();
        let bytes: usize = call.keys.iter().chain(call.args).map(|text| text.len()).sum();
        let (much, limit, setting) = if count > arguments as usize {
            (count.to_string(), arguments.to_string(), "function-arguments-limit")
        } else if bytes > argument_bytes {
            (
                format!("{bytes} bytes of"),
                argument_bytes.to_string(),
                "function-arguments-limit-bytes",
            )
        } else {
            return Ok(());
        };
        Err(error_reply::reply(&format!(
            "ERR the call has {much} keys and arguments, more than {limit} (setting: {setting})"
        )))
    }
}
